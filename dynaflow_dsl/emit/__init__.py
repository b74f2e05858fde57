"""Proved plan to module text and line map; cannot fail."""

from dynaflow_dsl.emit.executors import trusted_faults
from dynaflow_dsl.emit.model import Module
from dynaflow_dsl.emit.module import emit

__all__ = ["Module", "emit", "trusted_faults"]
