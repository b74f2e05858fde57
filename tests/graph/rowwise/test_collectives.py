import pytest

from dynaflow_dsl.graph.model import Size
from dynaflow_dsl.graph.rowwise import Rows, check_rows
from tests.graph.rowwise.building import BATCH, Builder
from tests.graph.rowwise.tracing import Given, rows

PREFIX = "_c10d_functional"


def blocks_of_two(build: Builder) -> Given:
    """Make the shape [2 * batch, 4]."""

    class Doubled(Given):
        def tensor(self, batch: int):  # type: ignore[no-untyped-def]
            return rows(4).tensor(2 * batch)

    return Doubled(())


def test_all_reduce_keeps_rows() -> None:
    build = Builder()
    source = build.input(rows(4))
    started = build.declare(
        f"{PREFIX}.all_reduce.default", source, "sum", "0", given=rows(4)
    )
    done = build.declare(f"{PREFIX}.wait_tensor.default", started, given=rows(4))
    check = check_rows(build.graph(done), "batch", build.names())
    assert check.refusals == ()
    assert check.facts[done.name] == Rows(0)


def test_gathered_ranks_are_outer_blocks() -> None:
    build = Builder()
    source = build.input(rows(4))
    operator = f"{PREFIX}.all_gather_into_tensor.default"
    gathered = build.declare(operator, source, 2, "0", given=blocks_of_two(build))
    parts = build.call("aten.split.Tensor", gathered, BATCH)
    joined = build.call("aten.cat.default", parts, -1)
    check = check_rows(build.graph(joined), "batch", build.names())
    assert check.refusals == ()
    assert check.facts[gathered.name] == Rows(0, Size(2))
    assert check.facts[joined.name] == Rows(0)


def test_blocks_are_scattered_back() -> None:
    build = Builder()
    source = build.input(rows(4))
    gathered = build.declare(
        f"{PREFIX}.all_gather_into_tensor.default",
        source,
        2,
        "0",
        given=blocks_of_two(build),
    )
    back = build.declare(
        f"{PREFIX}.reduce_scatter_tensor.default",
        gathered,
        "sum",
        2,
        "0",
        given=rows(4),
    )
    check = check_rows(build.graph(back), "batch", build.names())
    assert check.refusals == ()
    assert check.facts[back.name] == Rows(0)


def test_gathered_ranks_do_not_leave() -> None:
    build = Builder()
    source = build.input(rows(4))
    operator = f"{PREFIX}.all_gather_into_tensor.default"
    gathered = build.declare(operator, source, 2, "0", given=blocks_of_two(build))
    (refusal,) = check_rows(build.graph(gathered), "batch", build.names()).refusals
    assert "do not lie together" in refusal.reason


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("reduce_scatter_tensor.default", ("sum", 2, "0")),
        ("all_to_all_single.default", ((1, 1), (1, 1), "0")),
    ],
)
def test_rows_are_not_spread_over_ranks(
    operator: str, arguments: tuple[str | int | tuple[int, ...], ...]
) -> None:
    build = Builder()
    source = build.input(rows(4))
    result = build.declare(f"{PREFIX}.{operator}", source, *arguments, given=rows(4))
    (refusal,) = check_rows(build.graph(result), "batch", build.names()).refusals
    assert "over ranks" in refusal.reason or "no row rule" in refusal.reason
