"""Syntax tree to schedules: `resolve`; later `decide` and `choose`, by the model."""

from dynaflow_dsl.resolve.choices import EntrySizes, Selection, choose
from dynaflow_dsl.resolve.imports import Reader, Unreadable
from dynaflow_dsl.resolve.model import ScheduleFile
from dynaflow_dsl.resolve.requirements import Facts, decide
from dynaflow_dsl.resolve.resolve import resolve

__all__ = [
    "EntrySizes",
    "Facts",
    "Reader",
    "ScheduleFile",
    "Selection",
    "Unreadable",
    "choose",
    "decide",
    "resolve",
]
