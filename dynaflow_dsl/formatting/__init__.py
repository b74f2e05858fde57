"""One layout for `.dfs` files: `format_source`, and `print_tree` for trees alone."""

from dynaflow_dsl.formatting.format import format_source, not_formatted
from dynaflow_dsl.formatting.print import print_tree

__all__ = ["format_source", "not_formatted", "print_tree"]
