import pytest
import torch

from tests.graph.rowwise.cases import Case, accepted, careful, check_case, refused
from tests.graph.rowwise.tracing import Given, rows, shared

CASES = [
    accepted("select behind", lambda a: a[:, 0] + 1, rows(3, 4)),
    accepted("select in front", lambda a: a.select(0, 1) + 1, Given((3, "batch", 4))),
    accepted("slice behind", lambda a: a[:, 1:3] + 1, rows(4)),
    accepted("slice with a step", lambda a: a[..., ::2] + 1, rows(4)),
    accepted("narrow behind", lambda a: a.narrow(1, 1, 2) + 1, rows(4)),
    accepted("split the width", lambda a: a.split(2, -1)[1] + 1, rows(4)),
    accepted("split by sizes", lambda a: a.split([1, 3], 1)[1] + 1, rows(4)),
    accepted("chunk", lambda a: torch.cat([-a.chunk(2, -1)[1], a], -1), rows(4)),
    accepted("unbind", lambda a: a.unbind(1)[0] * a.unbind(1)[1], rows(2, 4)),
    accepted("unbind in front", lambda a: a.unbind(0)[1] * 2, Given((3, "batch", 4))),
    accepted("windows", lambda a: a.unfold(1, 2, 1) + 1, rows(4)),
    accepted("diagonal", lambda a: a.diagonal(0, 1, 2) + 1, rows(3, 3)),
    accepted("all of a shared table", lambda a, b: a + b[1], rows(4), shared(3, 4)),
    accepted(
        "guidance: doubled and halved",
        lambda a: torch.cat([a, a * 2]).relu().view(2, -1, 4)[1] + 1,
        rows(4),
    ),
    accepted(
        "guidance: doubled and cut at the batch",
        lambda a: torch.cat([a, a * 2])[: a.shape[0]] + 1,
        rows(4),
    ),
    accepted(
        "guidance: doubled and the rest",
        lambda a: torch.cat([a, a * 2])[a.shape[0] :] + 1,
        rows(4),
    ),
    refused("first row", "selects one row", lambda a: a[0] + 1, rows(4)),
    refused("last row", "selects one row", lambda a: a - a[-1], rows(4)),
    refused("first rows", "slices the split", lambda a: a[:1] + 1, rows(4)),
    careful(
        "windows of one row", "windows", lambda a: a.t().unfold(1, 1, 1) + 1, rows(4)
    ),
    refused(
        "diagonal across rows",
        "diagonal",
        lambda a: a.diagonal(0, 0, 1) + 1,
        rows(1),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cutting(case: Case) -> None:
    check_case(case)
