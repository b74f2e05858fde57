"""Texts and the places in them that every later stage points back to."""

from dynaflow_dsl.source.model import Source, Span

__all__ = ["Source", "Span"]
