"""What a watched step tells, beside what recording it finds."""

from __future__ import annotations

from types import ModuleType

import torch

from dynaflow_dsl.runtime.streams import CallingThread, make_streams
from dynaflow_dsl.runtime.watch import StepWatch
from dynaflow_dsl.verification.clocks import Clocks, recording_streams
from tests.runtime.toy_model import Toy, make_arguments


def watched(module: ModuleType, model: Toy, batch: int = 4) -> StepWatch:
    watch = StepWatch()
    step = module.load(
        model,
        compile=False,
        streams=watch.over(
            lambda device, names, options: recording_streams(Clocks(), tuple(names))
        ),
    )
    watch.run(step, make_arguments(batch))
    return watch


def test_steps_have_labels_layers_and_streams(halves: ModuleType, toy: Toy) -> None:
    steps = watched(halves, toy).steps
    assert [str(one) for one in steps[:4]] == [
        "before",
        "attn[0] layer 0",
        "mlp[0] layer 0",
        "attn[1] layer 0",
    ]
    assert {one.stream for one in steps if one.part == "attn"} == {"side"}
    assert [one.piece for one in steps[:4]] == [None, 0, 0, 1]
    assert [one.layer for one in steps if one.label == "mlp[1]"] == [0, 1, 2]
    assert all(one.line > 0 for one in steps)


def test_unordered_pairs_are_those_of_the_windows(halves: ModuleType, toy: Toy) -> None:
    watch = watched(halves, toy)
    steps = watch.steps
    pairs = {frozenset((str(steps[a]), str(steps[b]))) for a, b in watch.unordered()}
    assert frozenset(("mlp[0] layer 0", "attn[1] layer 0")) in pairs
    assert frozenset(("attn[0] layer 1", "mlp[1] layer 0")) in pairs
    assert frozenset(("attn[0] layer 0", "mlp[0] layer 0")) not in pairs
    assert all(steps[a].stream != steps[b].stream for a, b in watch.unordered())


def test_awaited_steps_are_the_last_ones_of_other_streams(
    halves: ModuleType, toy: Toy
) -> None:
    watch = watched(halves, toy)
    steps = watch.steps
    awaited = {
        str(one): [str(steps[k]) for k in numbers]
        for one, numbers in zip(steps, watch.awaited, strict=True)
        if one.part
    }
    assert awaited["before"] == []
    assert awaited["attn[0] layer 0"] == ["before"]
    assert awaited["mlp[0] layer 0"] == ["attn[0] layer 0"]
    assert awaited["attn[0] layer 1"] == ["mlp[0] layer 0"]
    # Both halves of a layer lie on one stream, where waiting for the first is enough.
    assert awaited["attn[1] layer 0"] == []
    assert awaited["mlp[1] layer 2"] == ["attn[1] layer 2"]


def test_begin_and_end_are_told_in_order(halves: ModuleType, toy: Toy) -> None:
    told: list[tuple[str, int]] = []
    watch = StepWatch(
        lambda step: told.append(("begin", step)),
        lambda step: told.append(("end", step)),
    )
    step = halves.load(toy, compile=False, streams=watch.over())
    watch.run(step, make_arguments(4))
    numbers = range(len(watch.steps))
    assert told == [(what, k) for k in numbers for what in ("begin", "end")]


def test_a_step_without_pieces_is_watched_too(halves: ModuleType, toy: Toy) -> None:
    watch = watched(halves, toy, batch=1)
    assert [one.label for one in watch.steps][:3] == ["before", "attn", "mlp"]
    assert {one.stream for one in watch.steps} == {"main"}
    assert watch.unordered() == []


def test_a_watched_step_gives_the_same(halves: ModuleType, toy: Toy) -> None:
    watch = StepWatch()
    step = halves.load(toy, compile=False, streams=watch.over())
    plain = halves.load(toy, compile=False)
    torch.manual_seed(0)
    first = make_arguments(4)
    torch.manual_seed(0)
    second = make_arguments(4)
    assert torch.equal(watch.run(step, first), plain(*second))


def test_other_executors_are_not_watched(halves: ModuleType, toy: Toy) -> None:
    step = halves.load(toy, compile=False, streams=make_streams)
    assert all(type(stream) is CallingThread for stream in step.streams)
