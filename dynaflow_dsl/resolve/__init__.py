"""Syntax tree to schedules: `resolve`."""

from dynaflow_dsl.resolve.model import ScheduleFile
from dynaflow_dsl.resolve.resolve import resolve

__all__ = ["ScheduleFile", "resolve"]
