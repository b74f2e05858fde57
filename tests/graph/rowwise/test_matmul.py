import pytest
import torch
from torch.nn import functional

from tests.graph.rowwise.cases import Case, accepted, careful, check_case, refused
from tests.graph.rowwise.tracing import Given, rows, shared

CASES = [
    accepted("linear", functional.linear, rows(3, 4), shared(2, 4), shared(2)),
    accepted(
        "linear behind another axis",
        functional.linear,
        Given((3, "batch", 4)),
        shared(2, 4),
    ),
    accepted("mm", torch.mm, rows(4), shared(4, 3)),
    accepted("mm of columns", torch.mm, shared(3, 4), Given((4, "batch"))),
    accepted("bmm", torch.bmm, rows(3, 4), rows(4, 2)),
    accepted("bmm of rows inside", torch.bmm, Given((3, "batch", 4)), shared(3, 4, 2)),
    accepted("bmm of columns", torch.bmm, shared(3, 2, 4), Given((3, 4, "batch"))),
    accepted("matmul of heads", lambda a, b: a @ b.mT, rows(2, 3, 4), rows(2, 5, 4)),
    accepted("matmul by a weight", torch.matmul, rows(3, 4), shared(4, 2)),
    accepted("matmul by many weights", torch.matmul, rows(4), shared(3, 4, 2)),
    accepted("a weight times rows", torch.matmul, shared(2, 3), rows(3, 4)),
    accepted("heads of a weight times rows", torch.matmul, shared(1, 2, 3), rows(3, 4)),
    accepted("rows times a vector", torch.matmul, rows(4), shared(4)),
    accepted("matrices of rows times a vector", torch.matmul, rows(3, 4), shared(4)),
    accepted("a vector times rows", torch.matmul, shared(3), rows(3, 4)),
    accepted("a vector times columns", torch.matmul, shared(4), Given((4, "batch"))),
    accepted("addmm", torch.addmm, shared(3), rows(4), shared(4, 3)),
    accepted("addmm to rows", torch.addmm, rows(3), rows(4), shared(4, 3)),
    accepted("baddbmm", torch.baddbmm, rows(1, 2), rows(3, 4), rows(4, 2)),
    accepted("outer", torch.outer, rows(), shared(3)),
    accepted("outer of columns", torch.outer, shared(3), rows()),
    accepted(
        "einsum",
        lambda a, b: torch.einsum("bij,bjk->bki", a, b),
        rows(3, 4),
        rows(4, 2),
    ),
    accepted(
        "einsum of a weight",
        lambda a, b: torch.einsum("b i, o i -> b o", a, b),
        rows(4),
        shared(3, 4),
    ),
    refused("linear over rows", "adds up", lambda a, b: a.t() @ b, rows(4), rows(3)),
    refused("rows times rows", "dimension with rows", lambda a: a @ a.t(), rows(4)),
    refused(
        "rows times other rows",
        "dimension with rows",
        lambda a, b: torch.matmul(a, b.mT),
        rows(4),
        rows(4),
    ),
    refused(
        "bmm of rows with rows",
        "dimension with rows",
        lambda a, b: torch.bmm(a, b),
        Given((3, "batch", 4)),
        Given((3, 4, "batch")),
    ),
    refused("a vector of rows", "adds up", torch.matmul, rows(), rows(4)),
    refused("dot", "adds up", torch.dot, rows(), rows()),
    refused(
        "mv over rows", "adds up", lambda a, b: torch.mv(a.t(), b), rows(4), rows()
    ),
    refused(
        "outer of rows with rows", "dimension with rows", torch.outer, rows(), rows()
    ),
    careful(
        "split weight", "weight of the linear", functional.linear, shared(3, 4), rows(4)
    ),
    refused(
        "einsum over rows",
        "adds up",
        lambda a, b: torch.einsum("bi,bj->ij", a, b),
        rows(4),
        rows(3),
    ),
    refused(
        "einsum of rows with rows",
        "dimension with rows",
        lambda a, b: torch.einsum("bi,ci->bc", a, b),
        rows(4),
        rows(4),
    ),
    accepted(
        "einsum with an ellipsis",
        lambda a, b: torch.einsum("...i,oi->...o", a, b),
        rows(4),
        shared(3, 4),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matmul(case: Case) -> None:
    check_case(case)
