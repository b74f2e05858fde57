"""Any name that a schedule or a model may give, in text that has to run."""

from __future__ import annotations

import keyword

import pytest
import torch

from dynaflow_dsl.emit.executors import EXECUTOR_NAMES, attribute_names
from dynaflow_dsl.plan.names import BUILTINS
from dynaflow_dsl.runtime import Executor, make_streams
from dynaflow_dsl.runtime.executor_setup import Setup
from tests.emit.formatting import formatted
from tests.plan.layered import Layered, Read, Shape
from tests.prove.schedules import order, scheduled, stagger
from tests.simulator.text import judge

PARTS = [
    *("step", "class", "load", "torch", "aten", "device", "entry", "inputs"),
    *("streams", "stream_names", "range", "float", "held", "i", "self"),
    *("start", "before_done", "hidden", "hidden_0", "x", "x_0", "x_done", "a_done"),
    *("Part", "Executor", "TensorSpec", "loader", "lambda", "_check", "__init__"),
    *("part_step", "print", "w", "mb_0", "SRun", "None", "_", "main_0"),
]
STREAMS = [
    *("torch", "self", "class", "i", "range", "x", "held", "mb_0", "hidden_0"),
    *("first_done", "first_0_done", "before_done", "start", "w", "x_0", "_"),
]
ARGUMENTS = [
    *("main", "side", "torch", "i", "held", "start", "before_done", "mb_0", "range"),
    *("hidden", "hidden_0", "first", "first_0", "first_done", "first_0_done", "w"),
    *("self", "input", "aten", "mb", "keys_0"),
]


def two_parts(first: str, argument: str = "x") -> Layered:
    carried = Read("second", carried=True)
    return Layered(
        (
            Shape(first, (carried, Read(None)), cache="w"),
            Shape("second", (carried, Read(first))),
        ),
        layers=3,
        results=(),
        head=(("second", 0),),
        argument=argument,
    )


def check(model: Layered, first: str, stream: str) -> None:
    for pieces, timeline in (
        (1, order(first, "second")),
        (2, stagger(first, "second")),
    ):
        text = scheduled(model, {first: stream}, pieces, timeline, stream).text()
        assert judge(text, persistent=("keys",)) == []
        assert formatted(text) == text


@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str) -> None:
    check(two_parts(name), name, "side")


@pytest.mark.parametrize("name", STREAMS)
def test_streams(name: str) -> None:
    check(two_parts("first"), "first", name)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str) -> None:
    check(two_parts("first", name), "first", "side")


def test_parts_that_look_like_events_of_others() -> None:
    shapes = (
        Shape("a", (Read("b", carried=True),)),
        Shape("a_done", (Read("a"),)),
        Shape("a_0", (Read("a_done"), Read("a"))),
        Shape("a_0_done", (Read("a_0"), Read("a"))),
        Shape("b", (Read("a_0_done"), Read("b", carried=True))),
    )
    model = Layered(shapes, 3, (), (("b", 0),))
    names = [shape.name for shape in shapes]
    on: dict[str, str | list[str]] = {"a_done": "side", "a_0_done": "side"}
    for pieces, timeline in ((1, order(*names)), (2, stagger(*names))):
        text = scheduled(model, on, pieces, timeline, "side").text()
        assert judge(text) == []


def test_every_attribute_of_executors_is_kept_from_parts() -> None:
    class Empty(Executor):
        entry = "run"
        inputs = {}  # noqa: RUF012

    device = torch.device("cpu")
    setup = Setup({}, make_streams(device, ()), device, lambda error: None)
    executor = Empty(setup)
    own = {*dir(executor), *vars(executor), *Executor.__annotations__}
    assert {"step", "sequential", "device", "streams", "_check"} <= own
    assert {name for name in own if not name.startswith("_")} == EXECUTOR_NAMES
    names = attribute_names(sorted(own))
    assert not own & set(names.values())
    assert len(set(names.values())) == len(own)


def test_words_of_python_are_no_attributes() -> None:
    names = attribute_names([*keyword.kwlist, "attn", "part_attn"])
    assert names["attn"] == "attn"
    assert names["part_attn"] == "part_attn"
    assert not any(keyword.iskeyword(name) for name in names.values())


def test_an_attribute_that_another_part_has_already() -> None:
    assert attribute_names(["step", "part_step"]) == {
        "part_step": "part_step",
        "step": "part_part_step",
    }


def test_reserved_builtins_are_those_that_generated_text_uses() -> None:
    assert {"range", "float", "staticmethod", "slice"} <= BUILTINS
    assert not {"exit", "copyright", "_"} & BUILTINS
