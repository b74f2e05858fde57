"""Text to syntax tree: `parse`."""

from dynaflow_dsl.syntax.model import SyntaxTree
from dynaflow_dsl.syntax.parse import parse

__all__ = ["SyntaxTree", "parse"]
