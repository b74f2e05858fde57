"""Schedule and graph to binding: selectors, coverage, interfaces, row-wise check."""

from dynaflow_dsl.bind.bind import bind
from dynaflow_dsl.bind.capture import inactive
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
from dynaflow_dsl.bind.stated import needless_statements
from dynaflow_dsl.bind.via import ReadsKernels, bind_kernels
from dynaflow_dsl.bind.weights import kept_resident

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
    "ReadsKernels",
    "Role",
    "bind",
    "bind_kernels",
    "inactive",
    "kept_resident",
    "needless_statements",
]
