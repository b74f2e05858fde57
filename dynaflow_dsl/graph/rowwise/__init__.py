"""The row check: may a region of a graph run once per microbatch?"""

from dynaflow_dsl.graph.rowwise.check import check_rows
from dynaflow_dsl.graph.rowwise.model import (
    Fact,
    Refusal,
    RowCheck,
    RowNumbers,
    Rows,
    Shared,
)

__all__ = [
    "Fact",
    "Refusal",
    "RowCheck",
    "RowNumbers",
    "Rows",
    "Shared",
    "check_rows",
]
