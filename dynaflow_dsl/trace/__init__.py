"""From an `nn.Module` to a graph of plain data; the one compiler room with torch."""

from dynaflow_dsl.trace.model import Entry, Persistent, Scalar, TraceSpec
from dynaflow_dsl.trace.target import load_target
from dynaflow_dsl.trace.tracing import export_entry, trace

__all__ = [
    "Entry",
    "Persistent",
    "Scalar",
    "TraceSpec",
    "export_entry",
    "load_target",
    "trace",
]
