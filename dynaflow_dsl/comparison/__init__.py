"""What changes between two schedule files, in words: `compare`."""

from dynaflow_dsl.comparison.compare import compare
from dynaflow_dsl.comparison.effects import effects
from dynaflow_dsl.comparison.model import Change, Comparison, Effect

__all__ = ["Change", "Comparison", "Effect", "compare", "effects"]
