"""Schedule and graph to binding: selectors, coverage, interfaces, row-wise check."""

from dynaflow_dsl.bind.bind import bind
from dynaflow_dsl.bind.capture import inactive
from dynaflow_dsl.bind.model import (
    Binding,
    Body,
    BoundPart,
    Carried,
    Instance,
    Iteration,
    Outer,
    Produced,
    Role,
)

__all__ = [
    "Binding",
    "Body",
    "BoundPart",
    "Carried",
    "Instance",
    "Iteration",
    "Outer",
    "Produced",
    "Role",
    "bind",
    "inactive",
]
