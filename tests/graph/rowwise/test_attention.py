from functools import partial

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attention

from tests.graph.rowwise.cases import Case, accepted, careful, check_case, refused
from tests.graph.rowwise.tracing import Given, flags, rows, shared

HEADS = (rows(2, 3, 4), rows(2, 6, 4), rows(2, 6, 4))
GROUPED = (rows(4, 3, 4), rows(2, 6, 4), rows(2, 6, 4))


def masked(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    return attention(query, key, value, mask)


CASES = [
    accepted("plain", attention, *HEADS),
    accepted("scaled", partial(attention, scale=0.5), *HEADS),
    accepted("causal", partial(attention, is_causal=True), *HEADS),
    accepted("grouped", partial(attention, enable_gqa=True), *GROUPED),
    accepted("without heads", attention, rows(3, 4), rows(6, 4), rows(6, 4)),
    accepted("shared mask", masked, *HEADS, shared(3, 6)),
    accepted("shared mask of one row", masked, *HEADS, flags(1, 1, 3, 6)),
    accepted("mask of rows", masked, *HEADS, flags("batch", 1, 3, 6)),
    accepted("mask of rows, all queries", masked, *HEADS, rows(2, 1, 6)),
    accepted(
        "mask of rows, expanded",
        lambda q, k, v, m: attention(q, k, v, m[:, None, None, :].expand(-1, 1, 3, -1)),
        *HEADS,
        rows(6),
    ),
    refused(
        "rows as positions",
        "from one row",
        lambda a: attention(a[None], a[None], a[None]),
        rows(4),
    ),
    careful(
        "shared keys",
        "not all split",
        attention,
        rows(2, 3, 4),
        shared(1, 2, 6, 4),
        shared(1, 2, 6, 4),
    ),
    careful(
        "rows on the heads of a group",
        "from one row",
        partial(attention, enable_gqa=True),
        *(Given((2, "batch", 3, 4)),) * 3,
    ),
    accepted("rows on the heads", attention, *(Given((2, "batch", 3, 4)),) * 3),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(case: Case) -> None:
    check_case(case)
