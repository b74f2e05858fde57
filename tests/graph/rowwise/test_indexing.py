import pytest
import torch
from torch.nn import functional

from tests.graph.rowwise.cases import Case, accepted, careful, check_case, refused
from tests.graph.rowwise.tracing import Given, flags, rows, shared, whole_numbers


def numbers(a: torch.Tensor) -> torch.Tensor:
    return torch.arange(a.shape[0])


CASES = [
    accepted(
        "embedding", functional.embedding, whole_numbers(6, "batch", 3), shared(6, 4)
    ),
    accepted(
        "table by rows", lambda a, b: b[a], whole_numbers(6, "batch", 3), shared(6, 4)
    ),
    accepted(
        "table's columns by rows",
        lambda a, b: b[:, a],
        whole_numbers(6, "batch"),
        shared(4, 6),
    ),
    accepted(
        "table by rows and positions",
        lambda a, b: b[a, 1],
        whole_numbers(6, "batch"),
        shared(6, 4),
    ),
    accepted(
        "two indices of rows",
        lambda a, b, c: c[a, b],
        whole_numbers(6, "batch"),
        whole_numbers(4, "batch"),
        shared(6, 4),
    ),
    accepted(
        "apart indices of rows",
        lambda a, b: b[a, :, a],
        whole_numbers(4, "batch"),
        shared(4, 3, 4),
    ),
    accepted(
        "rows by shared positions",
        lambda a, b: a[:, b],
        rows(6, 2),
        whole_numbers(6, 3),
    ),
    accepted(
        "rows in front of apart positions",
        lambda a, b: a[:, b, :, b],
        rows(4, 2, 4),
        whole_numbers(4, 3),
    ),
    accepted(
        "rows behind positions",
        lambda a, b: a[b],
        Given((6, "batch")),
        whole_numbers(6, 3),
    ),
    accepted(
        "each row its own position",
        lambda a, b: a[numbers(a), b],
        rows(6),
        whole_numbers(6, "batch"),
    ),
    accepted(
        "each row its own positions",
        lambda a, b: a[numbers(a)[:, None], b],
        rows(6),
        whole_numbers(6, "batch", 3),
    ),
    accepted(
        "all rows by their numbers in a mask's shape",
        lambda a: a[numbers(a)[:, None, None, None], torch.arange(4)] + 1,
        rows(4),
    ),
    accepted(
        "last token of each row",
        lambda a, b: a[numbers(a), b.argmax(-1)],
        rows(6, 2),
        rows(6),
    ),
    accepted(
        "index_select behind",
        lambda a, b: a.index_select(1, b),
        rows(6),
        whole_numbers(6, 3),
    ),
    accepted(
        "index_select of a table",
        lambda a, b: b.index_select(0, a),
        whole_numbers(6, "batch"),
        shared(6, 4),
    ),
    accepted(
        "gather", lambda a, b: a.gather(1, b), rows(6), whole_numbers(6, "batch", 3)
    ),
    accepted(
        "gather a table by rows",
        lambda a, b: b.gather(0, a),
        whole_numbers(6, "batch", 4),
        shared(6, 4),
    ),
    accepted(
        "scatter",
        lambda a, b, c: a.scatter(1, b.argsort(1), c),
        rows(6),
        rows(6),
        rows(6),
    ),
    accepted(
        "scatter a number",
        lambda a, b: a.scatter(1, b, 0.5),
        rows(6),
        whole_numbers(6, "batch", 3),
    ),
    accepted(
        "scatter into zeros",
        lambda a, b: torch.zeros(a.shape[0], 6).scatter_(1, b, a),
        rows(1),
        whole_numbers(6, "batch", 1),
    ),
    accepted(
        "scatter_add",
        lambda a, b, c: a.scatter_add(1, b, c),
        rows(6),
        whole_numbers(6, "batch", 3),
        rows(3),
    ),
    accepted(
        "index_copy",
        lambda a, b: a.index_copy(1, torch.tensor([2, 0]), b),
        rows(6),
        rows(2),
    ),
    accepted(
        "index_add",
        lambda a, b, c: a.index_add(1, b, c),
        rows(6),
        whole_numbers(6, 3),
        rows(3),
    ),
    accepted(
        "index_fill", lambda a, b: a.index_fill(1, b, 0.5), rows(6), whole_numbers(6, 3)
    ),
    accepted(
        "write shared positions",
        lambda a, b: a.index_put((torch.tensor([1, 3]),), b),
        Given((6, "batch")),
        rows(),
    ),
    accepted(
        "write each row's position",
        lambda a, b, c: a.index_put((numbers(a), b), c),
        rows(6),
        whole_numbers(6, "batch"),
        rows(),
    ),
    accepted(
        "write where a mask holds",
        lambda a, b: a.index_put((b,), torch.tensor(0.5)),
        rows(4),
        flags("batch", 4),
    ),
    refused(
        "rows by an index",
        "picks rows",
        lambda a, b: a[b],
        rows(4),
        whole_numbers(1, 2),
    ),
    refused(
        "index_select of rows",
        "picks rows",
        lambda a, b: a.index_select(0, b) + 0,
        rows(4),
        whole_numbers(1, 3),
    ),
    refused(
        "rows by a table of rows",
        "picks rows",
        lambda a, b: a[b],
        rows(4),
        whole_numbers(1, "batch"),
    ),
    refused(
        "all rows by each row",
        "picks elements of all rows",
        lambda a, b: a[:, b],
        rows(6),
        whole_numbers(6, "batch"),
    ),
    refused(
        "index_select by each row",
        "picks elements of all rows",
        lambda a, b: a.index_select(1, b),
        rows(6),
        whole_numbers(6, "batch"),
    ),
    refused(
        "gather over rows",
        "picks rows",
        lambda a, b: a.gather(0, b),
        rows(6),
        whole_numbers(2, "batch", 6),
    ),
    refused(
        "scatter over rows",
        "picks rows",
        lambda a, b: torch.zeros(a.shape[0], 6).scatter_add_(0, b, a),
        rows(6),
        whole_numbers(2, "batch", 6),
    ),
    refused(
        "gather from the first row",
        "not all split",
        lambda a, b: a.gather(1, b) + 1,
        rows(6),
        whole_numbers(6, 1, 3),
    ),
    refused(
        "table by row numbers",
        "row numbers",
        lambda a, b: a + functional.embedding(numbers(a), b),
        rows(4),
        shared(9, 4),
    ),
    refused(
        "table indexed by row numbers",
        "row numbers",
        lambda a, b: a + b[numbers(a)],
        rows(4),
        shared(9, 4),
    ),
    refused(
        "columns by row numbers",
        "row numbers",
        lambda a: a[numbers(a), numbers(a)],
        rows(9),
    ),
    refused(
        "split table",
        "table is split",
        lambda a, b: functional.embedding(b, a),
        rows(4),
        whole_numbers(1, 3),
    ),
    refused(
        "counted into a shared tensor",
        "all microbatches share",
        lambda a, b: torch.zeros(6, 2).index_put_((a,), b, accumulate=True),
        whole_numbers(6, "batch"),
        rows(2),
    ),
    refused(
        "each row's position is written in all rows",
        "all rows by each row",
        lambda a, b: a.index_put((b,), torch.tensor(0.5)),
        Given((6, "batch")),
        whole_numbers(6, "batch"),
    ),
    careful(
        "index_copy of rows by row numbers",
        "row numbers",
        lambda a, b: a.index_copy(0, numbers(a), b),
        rows(4),
        rows(4),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_indexing(case: Case) -> None:
    check_case(case)
