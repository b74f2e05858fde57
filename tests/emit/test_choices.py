"""Layers that read one of several values from outside, as those with two masks do."""

from __future__ import annotations

import pytest

from tests.emit.formatting import formatted
from tests.plan.layered import Layered, Read, Shape
from tests.prove.schedules import Scheduled, order, scheduled, stagger
from tests.simulator.text import judge

CARRIED = Read("mlp", carried=True)
PATTERNS = {
    (0, 1, 0, 1, 0): "[i % 2]",
    (0, 1, 2, 0, 1, 2, 0): "[i % 3]",
    (0, 0, 1, 0, 0, 1, 0, 0): "[(0, 0, 1)[i % 3]]",
    (0, 1, 1, 1, 0): "[(0, 1, 1, 1)[i % 4]]",
    (0, 0, 0, 1): "[(0, 0, 0, 1)[i]]",
}


def reading(cache_of: tuple[int, ...], pieces: int, cache: str = "r") -> Scheduled:
    model = Layered(
        (Shape("attn", (CARRIED,), cache=cache), Shape("mlp", (CARRIED, Read("attn")))),
        layers=len(cache_of),
        results=(),
        head=(("mlp", 0),),
        cache_of=cache_of,
    )
    timeline = order("attn", "mlp") if pieces == 1 else stagger("attn", "mlp")
    return scheduled(model, {"attn": "side"}, pieces, timeline, "side")


@pytest.mark.parametrize("cache_of", PATTERNS)
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_pattern_of_layers(cache_of: tuple[int, ...], pieces: int) -> None:
    text = reading(cache_of, pieces).text()
    assert f"keys{PATTERNS[cache_of]}" in text
    assert formatted(text) == text
    assert judge(text, persistent=("keys",)) == []


def test_outside_the_loop_the_choice_is_made() -> None:
    text = reading((0, 1, 0, 1), 2).text()
    first = text[text.index("# layer 0 · attn[0]") : text.index("for i in")]
    assert "keys[0][mb_0]" in first
    assert "keys[1]" not in first


@pytest.mark.parametrize("pieces", [1, 2])
def test_values_that_are_in_no_list(pieces: int) -> None:
    model = Layered(
        (Shape("attn", (CARRIED, Read(None))), Shape("mlp", (CARRIED, Read("attn")))),
        layers=5,
        results=(),
        head=(("mlp", 0),),
        outer_of=(0, 1, 0, 1, 0),
    )
    timeline = order("attn", "mlp") if pieces == 1 else stagger("attn", "mlp")
    text = scheduled(model, {"attn": "side"}, pieces, timeline, "side").text()
    assert ")[i % 2]" in text
    assert formatted(text) == text
    assert judge(text) == []


def test_a_step_of_the_layer_before_chooses_for_its_layer() -> None:
    model = Layered(
        (Shape("attn", (CARRIED,)), Shape("mlp", (CARRIED, Read("attn")), cache="r")),
        layers=5,
        results=(),
        head=(("mlp", 0),),
        cache_of=(0, 1, 0, 1, 0),
    )
    halves = stagger("attn", "mlp")
    text = scheduled(model, {"attn": "side"}, 2, halves, "side").text()
    assert "[(i - 1) % 2]" in text
    assert judge(text, persistent=("keys",)) == []


def test_layers_that_write_one_of_two_caches() -> None:
    for pieces in (1, 2):
        text = reading((0, 1, 0, 1, 0, 1, 1, 0, 1, 1), pieces, "w").text()
        assert judge(text, persistent=("keys",)) == []
