"""Steps that come again, as their caller says the rows of their phases."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime.input_memory import InputMemory
from dynaflow_dsl.runtime.known_steps import KnownSteps
from dynaflow_dsl.runtime.model import Capture, TensorSpec
from dynaflow_dsl.runtime.replayed import Replay


@pytest.fixture
def known() -> KnownSteps:
    capture = Capture(
        sizes={"new": (1,), "old": (2,)}, phases={"batch": ("new", "old")}
    )
    inputs = {"x": TensorSpec("float32", "batch")}
    memory = InputMemory(capture, inputs, torch.device("cpu"))
    replay = Replay(
        sizes={"new": 1, "old": 2, "batch": 3},
        unsplit=False,
        items=(),
        fills=((memory.view(0, {"batch": 3}), (0, None)),),
        addresses=[],
        outputs=(),
        one=False,
        result=(),
    )
    steps = KnownSteps(memory, ("new", "old"))
    steps.learn(replay, (torch.ones(3),))
    return steps


def test_rows_that_are_whole_numbers_are_known_again(known: KnownSteps) -> None:
    assert known.find((torch.ones(3),), {"new": 1, "old": 2}) is not None
    assert known.find((torch.ones(3),), {"new": 2, "old": 1}) is None


@pytest.mark.parametrize("rows", [True, 1.0, [1], None, {}])
def test_rows_that_are_none_are_left_to_who_says_so(
    known: KnownSteps, rows: Any
) -> None:
    assert known.find((torch.ones(3),), {"new": rows, "old": 2}) is None
