"""What changes between two schedule files, in words: `compare`."""

from dynaflow_dsl.comparison.compare import compare
from dynaflow_dsl.comparison.model import Change, Comparison

__all__ = ["Change", "Comparison", "compare"]
