"""What generated modules import: executors, streams, and loading them with a model."""

from dynaflow_dsl.runtime.errors import InputError, LoadError, RuntimeFault
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.groups import bind_group, stand_in_group
from dynaflow_dsl.runtime.load import loader
from dynaflow_dsl.runtime.model import Part, Split, TensorSpec
from dynaflow_dsl.runtime.streams import Event, Stream, Streams, make_streams

__all__ = [
    "Event",
    "Executor",
    "InputError",
    "LoadError",
    "Part",
    "RuntimeFault",
    "Split",
    "Stream",
    "Streams",
    "TensorSpec",
    "bind_group",
    "loader",
    "make_streams",
    "stand_in_group",
]
