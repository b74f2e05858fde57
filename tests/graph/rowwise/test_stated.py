"""What is only stated to be row-wise: where it is believed, and where not."""

from collections.abc import Mapping

from dynaflow_dsl.graph.model import Reference, Size
from dynaflow_dsl.graph.rowwise import RowCheck, Rows, check_rows
from tests.graph.rowwise.building import BATCH, Builder
from tests.graph.rowwise.tracing import Given, rows, shared


def ordered(build: Builder, source: Reference) -> tuple[Reference, Reference]:
    """The rows in another order, and the order, in a way that no rule follows."""
    column = build.call("aten.select.int", source, 1, 0)
    order = build.call("aten.argsort.default", column)
    order = build.call("aten.mul.Scalar", order, 1)
    return build.call("aten.index.Tensor", source, (order,)), order


def put_back(build: Builder, moved: Reference, order: Reference) -> Reference:
    back = build.call("aten.argsort.default", order)
    result: Reference = build.call("aten.index.Tensor", moved, (back,))
    return result


def checked(build: Builder, groups: Mapping[str, int], *results: Reference) -> RowCheck:
    return check_rows(build.graph(*results), "batch", build.names(), groups)


def everything(build: Builder, group: int = 0) -> dict[str, int]:
    return dict.fromkeys(build.names(), group)


def test_rows_that_are_moved_and_put_back() -> None:
    build = Builder()
    source = build.input(rows(4))
    moved, order = ordered(build, source)
    inside = build.call("aten.tanh.default", moved)
    result = put_back(build, inside, order)
    groups = everything(build)
    graph = build.graph(result)
    assert check_rows(graph, "batch", build.names()).refusals
    check = check_rows(graph, "batch", build.names(), groups)
    assert check.refusals == ()
    assert [refusal.operation for refusal in check.relied] == ["op_1"]
    assert set(check.private) == set(build.types) - {
        source.name,
        "op_0_0",
    }
    assert check.claimed == {result.name: Rows(0)}
    assert result.name not in check.facts


def test_what_is_proved_is_not_relied_on() -> None:
    build = Builder()
    result = build.call("aten.tanh.default", build.input(rows(4)))
    check = checked(build, everything(build), result)
    assert check.facts[result.name] == Rows(0)
    assert (check.relied, check.claimed, dict.fromkeys(check.private)) == ((), {}, {})


def test_readers_outside_take_rows() -> None:
    build = Builder()
    moved, _ = ordered(build, build.input(rows(4)))
    groups = everything(build)
    # What is stated is false here: it is for numbers to say, not for the rules.
    result = build.call("aten.relu.default", moved)
    check = checked(build, groups, result)
    assert check.refusals == ()
    assert check.claimed == {moved.name: Rows(0)}
    assert check.facts[result.name] == Rows(0)
    mixed = build.call("aten.cumsum.default", moved, 0)
    refusals = checked(build, groups, result, mixed).refusals
    assert [refusal.operation for refusal in refusals] == [build.names()[-1]]


def test_another_group_takes_rows_too() -> None:
    build = Builder()
    moved, order = ordered(build, build.input(rows(4)))
    groups = everything(build)
    result = put_back(build, moved, order)
    assert checked(build, everything(build), result).claimed == {result.name: Rows(0)}
    later = {name: 1 for name in build.names() if name not in groups}
    check = checked(build, {**groups, **later}, result)
    assert set(check.claimed) == {moved.name, order.name, result.name}


def test_views_of_private_values_are_followed() -> None:
    build = Builder()
    source = build.input(rows(4))
    moved, _ = ordered(build, source)
    groups = everything(build)
    turned = build.call("aten.transpose.int", moved, 0, 1)
    result = build.call("aten.relu.default", turned)
    assert checked(build, groups, result).facts[result.name] == Rows(1)
    # A view that cuts through rows is no way to claim that it has them.
    cut = build.call("aten.view.default", moved, (4, BATCH))
    other = build.call("aten.relu.default", cut)
    (refusal,) = checked(build, groups, other).refusals
    assert "cut" in refusal.reason or "rows" in refusal.reason


def test_a_value_without_rows_cannot_leave() -> None:
    build = Builder()
    source = build.input(rows(4))
    mean = build.call("aten.mean.dim", source, (0,))
    groups = everything(build)
    result = build.call("aten.add.Tensor", source, mean)
    (refusal,) = checked(build, groups, result).refusals
    assert refusal.operation == "op_1"
    assert "belongs to one microbatch" in refusal.reason
    assert "op_0_0 of shape [4]" in refusal.reason
    outside = check_rows(build.graph(mean), "batch", ["op_0"], groups)
    (refusal,) = outside.refusals
    assert refusal.operation == "op_0"
    assert "belongs to one microbatch" in refusal.reason
    inside = checked(build, everything(build), result)
    assert inside.refusals == ()


def test_memory_of_others_is_still_watched() -> None:
    build = Builder()
    source, table = build.input(rows(4)), build.input(shared(4))
    mean = build.call("aten.mean.dim", source, (0,))
    build.call("aten.add_.Tensor", table, mean)
    (refusal,) = checked(build, everything(build), source).refusals
    assert refusal.operation == "op_1"
    assert refusal.reason == "writes a tensor that all microbatches share"


def test_rows_of_others_may_be_written() -> None:
    build = Builder()
    source, cache = build.input(rows(4)), build.input(rows(4))
    moved, order = ordered(build, source)
    build.call("aten.copy_.default", cache, put_back(build, moved, order))
    check = checked(build, everything(build), source)
    assert check.refusals == ()
    assert check.written == {cache.name: build.names()[-1]}
    # By a view that cuts through rows, a microbatch would write those of others.
    build = Builder()
    source, cache = build.input(rows(4)), build.input(rows(4))
    cut = build.call("aten.view.default", cache, (4, BATCH))
    build.call("aten.mul_.Scalar", cut, 2.0)
    (refusal,) = checked(build, everything(build), source).refusals
    assert refusal.reason == "writes memory of others by a view that no rule follows"


def test_own_memory_may_be_written() -> None:
    build = Builder()
    source = build.input(rows(4))
    moved, order = ordered(build, source)
    target = build.call("aten.zeros.default", (BATCH, 4))
    build.call("aten.index_put_.default", target, (order,), moved)
    check = checked(build, everything(build), target)
    assert check.refusals == ()
    assert check.claimed == {target.name: Rows(0)}
    assert target.name not in check.facts


def test_what_enters_has_to_be_sliced() -> None:
    build = Builder()
    source = build.input(rows(3, 4))
    flat = build.call("aten.reshape.default", source, (Size(3, ("batch",)), 4))
    copy = build.call("aten.relu.default", flat)
    column = build.call("aten.select.int", copy, 1, 0)
    order = build.call("aten.argsort.default", column)
    graph = build.graph(order)
    inside = ["op_2", "op_3"]
    check = check_rows(graph, "batch", inside, dict.fromkeys(inside, 0))
    assert any("no one axis of size batch" in item.reason for item in check.refusals)


def test_a_size_twice_cannot_leave() -> None:
    build = Builder()
    source, other = build.input(rows(4)), build.input(Given((4, "batch")))
    square = build.call("aten.matmul.default", source, other)
    groups = everything(build)
    result = build.call("aten.relu.default", square)
    (refusal,) = checked(build, groups, result).refusals
    assert "belongs to one microbatch" in refusal.reason


def test_places_of_others_are_not_taken_on_trust() -> None:
    """A sort that is followed, and read by what is only stated, is refused."""
    build = Builder()
    source, cache = build.input(rows(4)), build.input(rows(4))
    column = build.call("aten.select.int", source, 1, 0)
    order = build.call("aten.argsort.default", column)
    moved = build.call("aten.index.Tensor", source, (order,))
    before = set(build.names())
    mean = build.call("aten.mean.dim", source, (0,))
    both = build.call("aten.add.Tensor", moved, mean)
    build.call("aten.copy_.default", cache, both)
    groups = dict.fromkeys(set(build.names()) - before, 0)
    refusals = checked(build, groups, source).refusals
    assert [refusal.operation for refusal in refusals] == ["op_1"]
    assert "argsort over the split dimension" in refusals[0].reason
