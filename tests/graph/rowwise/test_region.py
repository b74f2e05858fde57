"""What enters and leaves a region, and what is outside it."""

import pytest

from dynaflow_dsl.graph.model import Constant, Reference, Size
from dynaflow_dsl.graph.rowwise import Rows, Shared, check_rows
from tests.graph.rowwise.building import BATCH, Builder
from tests.graph.rowwise.cases import check_graph
from tests.graph.rowwise.tracing import Given, rows, shared, whole_numbers

CONTIGUOUS = Constant("memory_format", "contiguous_format")


def relu(build: Builder, source: Reference) -> Reference:
    result: Reference = build.call("aten.relu.default", source)
    return result


def mean_over_rows(build: Builder, source: Reference) -> Reference:
    result: Reference = build.call("aten.mean.dim", source, (0,), True)
    return result


def test_operations_outside_may_mix_rows() -> None:
    build = Builder()
    source = build.input(rows(4))
    inside = relu(build, source)
    mean = mean_over_rows(build, inside)
    result = build.call("aten.sub.Tensor", inside, mean)
    graph = build.graph(result)
    check_graph(graph, ["op_0", "op_2"], build.tensors())
    check_graph(graph, build.names(), build.tensors(), "mean over the split")


def test_facts_of_what_enters() -> None:
    build = Builder()
    source = build.input(Given((4, "batch")))
    weight = build.input(shared(4, 1))
    unread = build.input(rows(4))
    result = build.call("aten.mul.Tensor", source, weight)
    check = check_rows(build.graph(result), "batch", build.names())
    assert check.refusals == ()
    assert check.facts == {
        source.name: Rows(1),
        weight.name: Shared(),
        result.name: Rows(1),
    }
    assert unread.name not in check.facts


def test_several_rows_in_one_do_not_enter() -> None:
    build = Builder()
    source = build.input(rows(3, 4))
    flat = build.call("aten.reshape.default", source, (Size(3, ("batch",)), 4))
    copy = relu(build, flat)
    result = relu(build, copy)
    graph = build.graph(result)
    (refusal,) = check_rows(graph, "batch", ["op_2"]).refusals
    assert refusal.operation == "op_2"
    assert "no one axis of size batch" in refusal.reason
    check_graph(graph, ["op_0", "op_1", "op_2"], build.tensors())


def test_two_axes_of_rows_do_not_enter() -> None:
    build = Builder()
    source = build.input(rows())
    pairs = build.call("aten.outer.default", source, source)
    graph = build.graph(relu(build, pairs))
    (refusal,) = check_rows(graph, "batch", ["op_1"]).refusals
    assert "no one axis of size batch" in refusal.reason


def test_view_needed_outside_is_made_again_there() -> None:
    build = Builder()
    source = build.input(rows(3, 4))
    turned = build.call("aten.transpose.int", source, 0, 1)
    inside = build.call("aten.clone.default", turned, memory_format=CONTIGUOUS)
    merged = build.call("aten.view.default", inside, (Size(3, ("batch",)), 4))
    used = relu(build, merged)
    back = relu(build, build.call("aten.view.default", used, (3, BATCH, 4)))
    total = build.call("aten.sum.default", merged)
    graph = build.graph(back, total)
    region = [name for name in build.names() if name != "op_6"]
    # `op_2` is no boundary, though its rows do not lie together; `op_1` is one.
    assert graph.operations[2].view
    check_graph(graph, region, build.tensors())


def test_what_a_view_shows_has_to_leave() -> None:
    build = Builder()
    source = build.input(rows(4))
    doubled = build.call("aten.cat.default", (source, source))
    shown = build.call("aten.t.default", doubled)
    graph = build.graph(shown)
    check_graph(graph, build.names(), build.tensors(), "do not lie together")


def test_shared_result_leaves_once() -> None:
    build = Builder()
    weight, source = build.input(shared(4)), build.input(rows(4))
    bias = relu(build, weight)
    result = build.call("aten.add.Tensor", source, bias)
    check_graph(build.graph(result, bias), build.names(), build.tensors())


def test_poison_hides_what_follows() -> None:
    build = Builder()
    source = build.input(rows(4))
    mixed = mean_over_rows(build, source)
    result = build.call("aten.sub.Tensor", source, mixed)
    turned = build.call("aten.flip.default", source, (0,))
    after = build.call("aten.flip.default", result, (0,))
    graph = build.graph(result, turned, after)
    check = check_rows(graph, "batch", build.names())
    assert [item.operation for item in check.refusals] == ["op_0", "op_2"]
    assert result.name not in check.facts


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        ("custom.mix.default", "no row rule for custom.mix.default"),
        ("aten.item.default", "reads a number out of a tensor"),
        ("aten.masked_select.default", "depends on the values of all rows"),
    ],
)
def test_operators_without_a_rule(operator: str, reason: str) -> None:
    build = Builder()
    weight = build.input(shared(4))
    result = build.declare(operator, weight, given=shared(4))
    (refusal,) = check_rows(build.graph(result), "batch", build.names()).refusals
    assert reason in refusal.reason


def test_operators_without_a_rule_on_what_all_microbatches_share() -> None:
    build = Builder()
    direction, length = build.input(shared(4, 3)), build.input(shared(4, 1))
    weight = build.call("aten._weight_norm.default", direction, length, 0)
    result = build.call("aten.mm.default", build.input(rows(4)), weight)
    check = check_rows(build.graph(result), "batch", build.names())
    assert check.refusals == ()
    assert check.facts[weight.name] == Shared()


@pytest.mark.parametrize("case", ["rows", "size", "nothing", "random", "write"])
def test_operators_without_a_rule_otherwise(case: str) -> None:
    build = Builder()
    source = build.input(rows(4) if case == "rows" else shared(4))
    arguments = () if case == "nothing" else (source,)
    sizes = (BATCH,) if case == "size" else ()
    build.declare("aten.invented.default", *arguments, *sizes, given=shared(4))
    operation = build.operations[0]
    if case == "random":
        object.__setattr__(operation, "tags", ("random",))
    if case == "write":
        object.__setattr__(operation, "writes", (source.name,))
    graph = build.graph(Reference("op_0_0"))
    reasons = [item.reason for item in check_rows(graph, "batch", {"op_0"}).refusals]
    assert any("no row rule" in r or "random numbers" in r for r in reasons), reasons


def test_random_operators() -> None:
    build = Builder()
    source = build.input(rows(4))
    noise = build.call("aten.rand_like.default", source)
    dropped = build.call("aten.dropout.default", source, 0.5, True)
    kept = build.call("aten.dropout.default", source, 0.5, False)
    graph = build.graph(noise, dropped, kept)
    first, second = check_rows(graph, "batch", build.names()).refusals
    assert first.operation == "op_0"
    assert "random numbers" in first.reason
    assert "at random" in second.reason


def test_random_shared_tensor() -> None:
    build = Builder()
    weight = build.input(shared(4))
    noise = build.call(
        "aten.bernoulli.default", build.call("aten.sigmoid.default", weight)
    )
    dropped = build.call("aten.dropout.default", weight, 0.5, True)
    check = check_rows(build.graph(noise, dropped), "batch", build.names())
    assert [item.operation for item in check.refusals] == ["op_1", "op_2"]


def test_tagged_operator_that_changes_the_shape() -> None:
    build = Builder()
    source = build.input(rows(4))
    build.declare("aten.invented.default", source, given=shared(4))
    operation = build.operations[0]
    object.__setattr__(operation, "tags", ("pointwise",))
    result = Reference("op_0_0")
    (refusal,) = check_rows(build.graph(result), "batch", build.names()).refusals
    assert "does not keep the shape" in refusal.reason


def test_custom_operator_is_not_trusted_by_its_tag() -> None:
    build = Builder()
    source = build.input(rows(4))
    result = build.declare("custom.scale.default", source, given=rows(4))
    object.__setattr__(build.operations[0], "tags", ("pointwise",))
    (refusal,) = check_rows(build.graph(result), "batch", build.names()).refusals
    assert "no row rule" in refusal.reason


def test_index_by_a_mask_of_rows() -> None:
    build = Builder()
    source = build.input(rows(4))
    mask = build.call("aten.gt.Scalar", source, 0.0)
    picked = build.declare("aten.index.Tensor", source, (mask,), given=shared(3))
    (refusal,) = check_rows(build.graph(picked), "batch", build.names()).refusals
    assert "over all rows" in refusal.reason


def test_index_by_a_shared_mask() -> None:
    build = Builder()
    table, places = build.input(shared(6, 4)), build.input(whole_numbers(6, "batch"))
    mask = build.call("aten.gt.Scalar", table, 9.0)
    picked = build.declare("aten.index.Tensor", table, (mask,), given=shared(3))
    used = build.call("aten.index.Tensor", table, (places,))
    check = check_rows(build.graph(picked, used), "batch", build.names())
    assert check.refusals == ()
    assert check.facts[picked.name] == Shared()
    assert check.facts[used.name] == Rows(0)
