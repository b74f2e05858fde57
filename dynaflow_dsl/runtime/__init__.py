"""What generated modules import: executors, streams, and loading them with a model."""

from dynaflow_dsl.runtime.errors import InputError, LoadError, RuntimeFault
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.kernels import Kernel, kernel
from dynaflow_dsl.runtime.load import loader
from dynaflow_dsl.runtime.model import Part, Split, TensorSpec
from dynaflow_dsl.runtime.select import Selected
from dynaflow_dsl.runtime.streams import Event, Stream, Streams, make_streams

__all__ = [
    "Event",
    "Executor",
    "InputError",
    "Kernel",
    "LoadError",
    "Part",
    "RuntimeFault",
    "Selected",
    "Split",
    "Stream",
    "Streams",
    "TensorSpec",
    "kernel",
    "loader",
    "make_streams",
]
