import pytest
import torch

from dynaflow_dsl.graph.model import Size
from dynaflow_dsl.graph.rowwise import check_rows
from tests.graph.rowwise.building import BATCH, Builder
from tests.graph.rowwise.cases import Case, accepted, careful, check_case, check_graph
from tests.graph.rowwise.tracing import Given, rows, shared

CASES = [
    accepted("split the width", lambda a: a.view(a.shape[0], 2, 4), rows(8)),
    accepted("merge behind", lambda a: (a + 1).view(a.shape[0], -1), rows(3, 4)),
    accepted(
        "merge rows with what follows", lambda a: (a + 1).view(-1, 4) * 2, rows(3, 4)
    ),
    accepted(
        "merge rows and split again",
        lambda a: (a + 1).view(-1, 4).relu().view(-1, 3, 4),
        rows(3, 4),
    ),
    accepted(
        "transpose and back",
        lambda a: a.transpose(0, 1).relu().transpose(0, 1),
        rows(3, 4),
    ),
    accepted(
        "rows leave on another axis", lambda a: a.transpose(0, -1) + 1, rows(3, 4)
    ),
    accepted("permute", lambda a: a.permute(2, 0, 1) * 2, rows(3, 4)),
    accepted("movedim", lambda a: a.movedim(0, 2) + 1, rows(3, 4)),
    accepted("movedim of two", lambda a: a.movedim((0, 1), (2, 0)) + 1, rows(3, 4)),
    accepted("t", lambda a: a.t() + 1, rows(4)),
    accepted("mT", lambda a: a.mT + 1, rows(3, 4)),
    accepted("unsqueeze", lambda a: a.unsqueeze(0).unsqueeze(-1) + 1, rows(4)),
    accepted("squeeze behind", lambda a: a.squeeze(-1) + 1, rows(4, 1)),
    accepted("squeeze in front", lambda a: a.squeeze(0) + 1, Given((1, "batch", 4))),
    accepted("squeeze nothing", lambda a: a.squeeze(1) + 1, rows(4)),
    accepted("expand the width", lambda a: a.expand(-1, 6) + 1, rows(1)),
    accepted("expand in front", lambda a: a.expand(3, -1, -1) + 1, rows(4)),
    accepted(
        "expand to rows",
        lambda a, b: b.expand(a.shape[0], -1) + a,
        rows(4),
        shared(1, 4),
    ),
    accepted(
        "expand to rows in front",
        lambda a, b: b.expand(a.shape[0], 4) + 1,
        rows(4),
        shared(4),
    ),
    accepted("expand_as", lambda a, b: b.expand_as(a) + 1, rows(4), shared(1, 4)),
    accepted("flatten", lambda a: (a + 1).flatten(1), rows(3, 4)),
    accepted("flatten rows too", lambda a: (a + 1).flatten(0, 1) * 2, rows(3, 4)),
    accepted("unflatten", lambda a: a.unflatten(1, (2, -1)) + 1, rows(4)),
    accepted("view_as", lambda a, b: (a + 1).view_as(b) + b, rows(4), rows(2, 2)),
    accepted(
        "complex numbers",
        lambda a: torch.view_as_real(torch.view_as_complex(a + 0) * 2),
        rows(4, 2),
    ),
    careful(
        "another dtype's view",
        "no row rule for aten.view.dtype",
        lambda a: a.view(torch.int32) + 1,
        rows(4),
    ),
    careful(
        "as_strided",
        "no row rule for aten.as_strided.default",
        lambda a: torch.as_strided(a, (a.shape[0], 2), (4, 1)) + 1,
        rows(4),
    ),
]


def test_squeeze_of_every_axis() -> None:
    build = Builder()
    result = build.call("aten.squeeze.default", build.input(rows(1, 4)))
    (refusal,) = check_rows(build.graph(result), "batch", build.names()).refusals
    assert "microbatch of one row" in refusal.reason


@pytest.mark.parametrize("case", CASES, ids=str)
def test_views(case: Case) -> None:
    check_case(case)


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        ("aten._unsafe_view.default", "merges the split dimension"),
        ("aten.view.default", "merges the split dimension"),
        ("aten.reshape.default", None),
    ],
)
def test_axis_before_the_rows_of_a_slice(operator: str, reason: str | None) -> None:
    build = Builder()
    source = build.input(Given((3, "batch", 4)))
    merged = build.call(operator, source, (Size(3, ("batch",)), 4))
    result = build.call("aten.view.default", merged, (3, BATCH, 4))
    again = build.call("aten.relu.default", result)
    back = build.call("aten.transpose.int", again, 0, 1)
    check_graph(build.graph(back), build.names(), build.tensors(), reason)


def test_axis_before_rows_made_inside() -> None:
    build = Builder()
    source = build.call("aten.relu.default", build.input(Given((3, "batch", 4))))
    shape = (Size(3, ("batch",)), 4)
    merged = build.call("aten._unsafe_view.default", source, shape)
    result = build.call("aten.view.default", merged, (3, BATCH, 4))
    check_graph(build.graph(result), build.names(), build.tensors())
