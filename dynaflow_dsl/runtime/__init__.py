"""What generated modules import: executors, streams, and loading them with a model."""

from dynaflow_dsl.runtime.errors import InputError, LoadError, RankError, RuntimeFault
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.groups import bind_group, release_group, stand_in_group
from dynaflow_dsl.runtime.kernels import Kernel, kernel
from dynaflow_dsl.runtime.load import loader
from dynaflow_dsl.runtime.model import (
    Capture,
    Fetch,
    Into,
    Modules,
    Part,
    PhaseSplit,
    Split,
    StreamOptions,
    TensorSpec,
)
from dynaflow_dsl.runtime.report import SizeReport, StepReport
from dynaflow_dsl.runtime.select import Selected
from dynaflow_dsl.runtime.streams import Event, Stream, Streams, make_streams

__all__ = [
    "Capture",
    "Event",
    "Executor",
    "Fetch",
    "InputError",
    "Into",
    "Kernel",
    "LoadError",
    "Modules",
    "Part",
    "PhaseSplit",
    "RankError",
    "RuntimeFault",
    "Selected",
    "SizeReport",
    "Split",
    "StepReport",
    "Stream",
    "StreamOptions",
    "Streams",
    "TensorSpec",
    "bind_group",
    "kernel",
    "loader",
    "make_streams",
    "release_group",
    "stand_in_group",
]
