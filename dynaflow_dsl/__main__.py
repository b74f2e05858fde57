"""`python -m dynaflow_dsl` is `dfsc`."""

from dynaflow_dsl.cli.main import main

if __name__ == "__main__":
    main()
