"""Syntax tree to schedules: `resolve`, and `decide` for what they require."""

from dynaflow_dsl.resolve.imports import Reader, Unreadable
from dynaflow_dsl.resolve.model import ScheduleFile
from dynaflow_dsl.resolve.requirements import Facts, decide
from dynaflow_dsl.resolve.resolve import resolve

__all__ = ["Facts", "Reader", "ScheduleFile", "Unreadable", "decide", "resolve"]
