"""Proved plan to module text and line map; cannot fail."""

from dynaflow_dsl.emit.model import Module
from dynaflow_dsl.emit.module import emit

__all__ = ["Module", "emit"]
