"""Plan to proved plan: the only way to a plan that can be emitted."""

from dynaflow_dsl.prove.model import ProvedPlan
from dynaflow_dsl.prove.prove import prove

__all__ = ["ProvedPlan", "prove"]
