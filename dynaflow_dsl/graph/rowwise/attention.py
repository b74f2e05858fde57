"""Attention."""

from __future__ import annotations

from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    Rule,
    Shared,
    only_rows,
)
from dynaflow_dsl.graph.rowwise.pointwise import align


def scaled_dot_product(call: Call) -> Fact:
    """Attention of shapes [..., length, width], independent along the leading axes.

    The causal mask looks at positions inside one row only.
    """
    if call.argument(4, "dropout_p", 0.0) not in (0, 0.0):
        raise RefusedError("attention drops elements at random: dropout_p is not 0")
    if call.all_shared():
        return Shared()
    query, key = call.tensor(0, "query"), call.tensor(1, "key")
    value, mask = call.tensor(2, "value"), call.optional(3, "attn_mask")
    rows = only_rows(query)
    if rows is None or {only_rows(key), only_rows(value)} != {rows}:
        raise RefusedError("query, key and value are not all split along the same axis")
    if {key.rank, value.rank} != {query.rank} or len(
        {tensor.shape[rows.axis] for tensor in (query, key, value)}
    ) > 1:
        raise RefusedError("query, key and value do not have the same rows")
    # Grouped heads are shared between neighbours along the axis before the last two.
    grouped = call.argument(7, "enable_gqa", False) is not False
    if rows.axis >= query.rank - (3 if grouped else 2):
        raise RefusedError("attends from one row of the split dimension to others")
    if mask is not None:
        scores = (*query.shape[:-1], key.shape[-2])
        if mask.rank > query.rank:
            raise RefusedError("the attention mask has more axes than the query")
        align([(scores, rows), (mask.shape, mask.fact)], scores)
    return rows


RULES = {
    "aten.scaled_dot_product_attention.default": Rule(scaled_dot_product, chance=True)
}
