import pytest
import torch

from tests.graph.rowwise.cases import Case, accepted, careful, check_case, refused
from tests.graph.rowwise.tracing import rows

CASES = [
    accepted("zeros of rows", lambda a: torch.zeros(a.shape[0], 4) + a, rows(4)),
    accepted(
        "full of rows behind", lambda a: torch.full((3, a.shape[0]), 0.5) * a, rows()
    ),
    accepted("ones of no rows", lambda a: a + torch.ones(4), rows(4)),
    accepted(
        "new_zeros", lambda a: torch.cat([a, a.new_zeros(a.shape[0], 2)], -1), rows(4)
    ),
    accepted("new_full without rows", lambda a: a + a.new_full((4,), 2.0), rows(4)),
    accepted("zeros_like", lambda a: torch.zeros_like(a.t()) + a.t(), rows(4)),
    accepted("full_like", lambda a: torch.full_like(a, 2.0) * a, rows(4)),
    accepted(
        "ones like row numbers",
        lambda a: a + torch.ones_like(torch.arange(a.shape[0]))[:, None],
        rows(4),
    ),
    accepted("positions", lambda a: a + torch.arange(4), rows(4)),
    accepted("positions from", lambda a: a * torch.arange(1, 9, 2), rows(4)),
    accepted("identity matrix", lambda a: a @ torch.eye(4), rows(4)),
    accepted("linspace", lambda a: a * torch.linspace(0, 1, 4), rows(4)),
    accepted("causal mask", lambda a: a + torch.full((4, 4), -9.0).triu(1), rows(4, 4)),
    accepted(
        "zeros of rows times heads",
        lambda a: torch.zeros(a.shape[0] * 3) + a.view(-1),
        rows(3),
    ),
    refused(
        "filled with the size",
        "as a number",
        lambda a: a + torch.full((4,), a.shape[0]),
        rows(4),
    ),
    refused(
        "filled rows with the size",
        "as a number",
        lambda a: a + a.new_full((a.shape[0], 4), a.shape[0]),
        rows(4),
    ),
    refused(
        "filled alike with the size",
        "as a number",
        lambda a: a + torch.full_like(a, a.shape[0]),
        rows(4),
    ),
    refused(
        "scalar of the size",
        "as a number",
        lambda a: a + torch.scalar_tensor(a.shape[0]),
        rows(4),
    ),
    refused(
        "rows by rows", "twice", lambda a: torch.zeros(a.shape[0], a.shape[0]), rows(4)
    ),
    refused(
        "numbers of more than rows",
        "as a number",
        lambda a: a.view(-1) + torch.arange(3 * a.shape[0]),
        rows(3),
    ),
    refused(
        "row numbers backwards",
        "as a number",
        lambda a: a + torch.arange(a.shape[0], 0, -1)[:, None],
        rows(4),
    ),
    refused(
        "row numbers leave", "start again", lambda a: torch.arange(a.shape[0]), rows(4)
    ),
    careful(
        "floats up to the size",
        "as a number",
        lambda a: a + 0 * torch.arange(a.shape[0], dtype=torch.float32)[:, None],
        rows(4),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_factories(case: Case) -> None:
    check_case(case)
