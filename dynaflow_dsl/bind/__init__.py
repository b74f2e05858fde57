"""Schedule and graph to binding: selectors, coverage, interfaces, row-wise check."""

from dynaflow_dsl.bind.bind import bind
from dynaflow_dsl.bind.model import (
    Binding,
    Body,
    BoundPart,
    BoundSection,
    Carried,
    Gaps,
    Instance,
    Iteration,
    Outer,
    Output,
    Place,
    Produced,
    Role,
)

__all__ = [
    "Binding",
    "Body",
    "BoundPart",
    "BoundSection",
    "Carried",
    "Gaps",
    "Instance",
    "Iteration",
    "Outer",
    "Output",
    "Place",
    "Produced",
    "Role",
    "bind",
]
