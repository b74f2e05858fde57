from __future__ import annotations

from dataclasses import replace

import pytest

from dynaflow_dsl.bind.capture import by_address, inactive, output_rows
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.graph.rowwise import check_rows
from tests.bind.graphs import bound, fault, graph, schedule
from tests.graph.rowwise.test_disjoint import Cache, marked

PARTS = "all = ."
TWO_LAYERS = """
    input x keys.0 keys.1
    a = relu(x) @ layers.0
    copy_(keys.0, a) @ layers.0
    b = add.Tensor(a, keys.0) @ layers.1
    copy_(keys.1, b) @ layers.1
    {after}
    return out
"""


def decoder(after: str = "out = relu(b)", scratch: bool = True) -> Graph:
    """A cache of two tensors, as a trace target with padding allowed makes it."""
    made = graph(TWO_LAYERS.format(after=after))
    inputs = tuple(
        replace(item, kind="persistent", scratch=scratch)
        if item.name.startswith("keys")
        else item
        for item in made.inputs
    )
    return replace(made, inputs=inputs)


def padded(made: Graph) -> object:
    return dict(output_rows(schedule(PARTS, split="capture batch at [4]"), made))


def test_a_dimension_that_the_model_has_not() -> None:
    found = fault(PARTS, decoder(), split="capture batsh at [4]")
    assert found.code == "DFS102"
    assert found.helps == ("did you mean batch?",)
    assert found.primary is not None
    assert found.primary.span.text == "batsh"


def test_every_dynamic_dimension_needs_sizes() -> None:
    made = replace(decoder(), dimensions=(("batch", 1, None), ("seq", 1, 64)))
    found = fault(PARTS, made, split="capture batch at [4]")
    assert found.code == "DFS314"
    assert found.message == "nothing says for which sizes of seq a step is captured"
    both = "capture batch at [4]\n    capture seq at [64]"
    assert len(bound(PARTS, made, split=both).schedule.captures) == 2
    assert bound(PARTS, made).schedule.captures == ()


@pytest.mark.parametrize(("size", "bounds"), [(1, (2, None)), (65, (1, 64))])
def test_sizes_lie_within_bounds(size: int, bounds: tuple[int, int | None]) -> None:
    made = replace(decoder(), dimensions=(("batch", *bounds),))
    found = fault(PARTS, made, split=f"capture batch at [{size}]")
    assert found.message == f"the model has no step with batch = {size}"
    bound(PARTS, made, split="capture batch at [2, 64]")


def test_a_cache_has_room_for_the_largest_size() -> None:
    made = decoder()
    inputs = tuple(
        replace(item, capacity=8) if item.kind == "persistent" else item
        for item in made.inputs
    )
    made = replace(made, inputs=inputs)
    found = fault(PARTS, made, split="capture batch at [4, 16]")
    assert found.message == "'keys' has room for 8 rows, and 16 are captured"
    bound(PARTS, made, split="capture batch at [4, 8]")


def test_what_is_written_or_persistent_is_used_in_place() -> None:
    assert by_address(decoder()) == ("keys.0", "keys.1")
    written = graph("input x y\ncopy_(x, y) @ layers.0\nreturn x")
    assert by_address(written) == ("x",)


def test_padding_is_allowed_where_all_rows_are_apart() -> None:
    assert padded(decoder()) == {"batch": (0,)}


def test_an_output_without_rows_is_not_cut() -> None:
    after = "input w:fixed\nout = relu(w)"
    assert padded(decoder(after)) == {"batch": (None,)}


@pytest.mark.parametrize(
    "made",
    [
        decoder(scratch=False),
        # After the parts, where a split would still be legal.
        decoder("out = sum(b)"),
        graph(TWO_LAYERS.format(after="out = relu(b)")),
    ],
    ids=["not declared", "rows are mixed", "a step input is written"],
)
def test_padding_is_refused(made: Graph) -> None:
    assert padded(made) == {}


def test_rows_that_padding_adds_would_write_where_an_earlier_step_wrote() -> None:
    build = Cache()
    build.store()
    made = marked(build.graph(build.load()))
    names = [operation.name for operation in made.operations]
    assert check_rows(made, "batch", names).refusals == ()
    assert padded(made) == {}
    pool = replace(made.inputs[0], kind="persistent", scratch=True)
    assert padded(replace(made, inputs=(pool, *made.inputs[1:]))) == {}


def test_memory_that_no_argument_shows_is_not_padded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for writes in (False, True):
        monkeypatch.setattr(
            "dynaflow_dsl.bind.capture.hidden_memory",
            lambda _, writes=writes: {"memory 'kv_cache'": writes},
        )
        assert padded(decoder()) == ({} if writes else {"batch": (0,)})


def test_a_device_without_streams_is_told_of() -> None:
    text = (
        "stream side (priority = high, sms = 4, gemm_sms = 8)\n    capture batch at [4]"
    )
    made = schedule("all on side = .", split=text)
    found = list(inactive(made, "cpu"))
    assert [(item.code, item.severity) for item in found] == [("DFS704", "info")] * 2
    assert "'priority' and 'sms' and 'gemm_sms'" in found[1].message
    assert list(inactive(made, "cuda:0")) == []
    assert list(inactive(schedule(PARTS), "cpu")) == []
