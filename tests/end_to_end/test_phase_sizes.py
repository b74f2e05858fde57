"""Sizes of steps that are cut by phase, as `buffers` and `choice` take them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynaflow_dsl.runtime import InputError, Selected
from tests.end_to_end.building import build
from tests.end_to_end.flat import PHASES, flat_spec
from tests.end_to_end.test_phases import SELECT, loaded


def check_sizes_refused(name: Callable[..., Any]) -> None:
    """Of a method that takes sizes, with phases as the step has them."""
    phases = {"decode": 3, "prefill": 2}
    name(tokens=5, phases=phases)
    name(phases=phases)
    for match, given in (
        ("call it with `phases={", {}),
        ("call it with `phases={", {"tokens": 5}),
        ("does not say how many rows `prefill` has", {"decode": 3}),
        ("5 rows in all, and tokens = 9", {"tokens": 9, "phases": phases}),
        ("5 rows in all, and tokens = '5'", {"tokens": "5", "phases": phases}),
        ("`decode` are given twice", {"decode": 3, "phases": phases}),
        ("'3' rows of `decode`", {"phases": {"decode": "3", "prefill": 2}}),
        ("`phases` is a int", {"phases": 3}),
        ("a size for each of tokens; given x", {"x": 3}),
        ("from 1 ?.*, and tokens = 0", {"phases": {"decode": 0, "prefill": 0}}),
    ):
        with pytest.raises(InputError, match=match) as refused:
            name(**given)
        assert refused.value.code == "DFS802"


def test_sizes_are_named_as_in_a_call(tmp_path: Path) -> None:
    built = build(flat_spec(), PHASES.format(capture=""), tmp_path)
    step = loaded(built)
    assert len(step.buffers(phases={"decode": 3, "prefill": 2})["x"]) == 5
    check_sizes_refused(step.buffers)


def test_a_select_takes_sizes_as_in_a_call(tmp_path: Path) -> None:
    built = build(flat_spec(), SELECT, tmp_path)
    step = loaded(built)
    assert isinstance(step, Selected)
    assert len(step.buffers(phases={"decode": 3, "prefill": 2})["x"]) == 5
    check_sizes_refused(step.buffers)
    check_sizes_refused(step.choice)
