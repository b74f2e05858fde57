import pytest
import torch
from torch.nn import functional

from tests.graph.rowwise.cases import Case, accepted, careful, check_case, refused
from tests.graph.rowwise.tracing import flags, rows, shared, whole_numbers

CASES = [
    accepted("add", lambda a, b: a + b, rows(4), rows(4)),
    accepted("add a shared row", lambda a, b: a + b, rows(4), shared(4)),
    accepted("add one shared row", lambda a, b: a + b, rows(4), shared(1, 4)),
    accepted("add a number", lambda a: a + 2, rows(4)),
    accepted("add a scalar tensor", lambda a, b: a + b, rows(4), shared()),
    accepted("rows come second", lambda a, b: a - b, shared(4), rows(4)),
    accepted("rows get an axis in front", lambda a, b: a + b, rows(4), shared(3, 1, 4)),
    accepted("rows moved alike", lambda a, b: a.t() * b.t(), rows(4), rows(4)),
    accepted("untagged", lambda a: functional.hardswish(a), rows(4)),
    accepted("clamp", lambda a: a.clamp(min=-1, max=1), rows(4)),
    accepted("clamp by rows", lambda a, b: a.clamp(max=b), rows(4), rows(1)),
    accepted(
        "where", lambda a, b, c: torch.where(a > 0, b, c), rows(4), rows(4), rows(4)
    ),
    accepted(
        "where a number",
        lambda a, b: torch.where(a, b, 0.0),
        flags("batch", 4),
        rows(4),
    ),
    accepted(
        "masked_fill", lambda a, b: a.masked_fill(b, 0.5), rows(4), flags("batch", 1)
    ),
    accepted("cast", lambda a: a.to(torch.float64).to(torch.int32), rows(4)),
    accepted("gelu", lambda a: functional.gelu(a, approximate="tanh"), rows(4)),
    accepted(
        "dropout that is off", lambda a: functional.dropout(a, 0.5, False) + 1, rows(4)
    ),
    accepted("compare", lambda a, b: (a > b) | (a == 0), rows(4), rows(4)),
    accepted(
        "type_as", lambda a, b: a.type_as(b) + 1, whole_numbers(9, "batch", 4), rows(4)
    ),
    accepted(
        "bucketize",
        lambda a, b: torch.bucketize(a, b.sort().values),
        rows(4),
        shared(6),
    ),
    refused(
        "rows against columns",
        "rows lie along different axes",
        lambda a: a[:, None] + a[None, :],
        rows(),
    ),
    refused(
        "rows against moved rows",
        "different axes",
        lambda a, b: a[:, None] * b,
        rows(),
        rows(),
    ),
    refused("the size as data", "as a number", lambda a: a / a.shape[0], rows(4)),
    refused("the size as a summand", "as a number", lambda a: a + a.shape[0], rows(4)),
    refused(
        "boundaries of rows",
        "boundaries",
        lambda a, b: torch.bucketize(b, a),
        rows(),
        shared(3),
    ),
    refused(
        "row numbers as data",
        "row numbers",
        lambda a: a + torch.arange(a.shape[0])[:, None],
        rows(4),
    ),
    refused(
        "row numbers compared",
        "row numbers",
        lambda a: a * (torch.arange(a.shape[0]) > 1)[:, None],
        rows(4),
    ),
    refused(
        "row numbers as floats",
        "row numbers",
        lambda a: a * torch.arange(a.shape[0]).float()[:, None],
        rows(4),
    ),
    careful(
        "row numbers of one row",
        "row numbers",
        lambda a: a + 0 * torch.arange(a.shape[0])[:, None],
        rows(4),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pointwise(case: Case) -> None:
    check_case(case)
