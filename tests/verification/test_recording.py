"""Recording finds what was broken on purpose, and nothing where nothing is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import Executor, Split, TensorSpec
from dynaflow_dsl.runtime.executor_setup import Setup
from dynaflow_dsl.runtime.module_map import read_map
from dynaflow_dsl.verification.recording import Recorder, Recording
from tests.runtime.toy_model import Toy, make_arguments
from tests.runtime.write_toy_maps import EXECUTORS
from tests.verification.mutations import (
    Mutation,
    with_early_frees,
    without_bases,
    without_joins,
    without_waits,
    write_module,
)

TEXTS = {
    name: (EXECUTORS / f"{name}.py").read_text(encoding="utf-8")
    for name in ("toy_halves", "toy_lanes")
}


def mutations(make: Callable[[str], list[Mutation]]) -> list[Any]:
    return [
        pytest.param(name, mutation, id=f"{name} {mutation.name}")
        for name, text in TEXTS.items()
        for mutation in make(text)
    ]


def recorded(module: ModuleType, model: Toy, arguments: tuple[Any, ...]) -> Recording:
    recorder = Recorder()
    executor = module.load(model, compile=False, streams=recorder.streams)
    weights = [*model.parameters(), *model.buffers()]
    return recorder.run(executor, arguments, weights)


def record_mutation(
    folder: Path, name: str, mutation: Mutation, model: Toy
) -> Recording:
    document = json.loads((EXECUTORS / f"{name}.map.json").read_text())
    module = write_module(folder, name, mutation.text, document)
    return recorded(module, model, make_arguments(5))


def kinds(recording: Recording) -> set[str]:
    return {fault.kind for fault in recording.faults}


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_nothing_is_found_in_the_toys(
    halves: ModuleType, lanes: ModuleType, toy: Toy, batch: int
) -> None:
    for module in (halves, lanes):
        recording = recorded(module, toy, make_arguments(batch))
        assert recording.faults == ()
        assert recording.operations > 30


@pytest.mark.parametrize(("name", "mutation"), mutations(without_waits))
def test_each_wait_is_needed(
    tmp_path: Path, toy: Toy, name: str, mutation: Mutation
) -> None:
    found = kinds(record_mutation(tmp_path, name, mutation, toy))
    assert "read before write" in found


@pytest.mark.parametrize(("name", "mutation"), mutations(without_joins))
def test_the_join_is_needed(
    tmp_path: Path, toy: Toy, name: str, mutation: Mutation
) -> None:
    found = kinds(record_mutation(tmp_path, name, mutation, toy))
    assert found == {"early free", "not joined"}


@pytest.mark.parametrize(("name", "mutation"), mutations(with_early_frees))
def test_early_frees_are_found(
    tmp_path: Path, toy: Toy, name: str, mutation: Mutation
) -> None:
    assert kinds(record_mutation(tmp_path, name, mutation, toy)) == {"early free"}


def test_rebinding_the_pieces_of_a_dropped_base(tmp_path: Path, toy: Toy) -> None:
    (dropped,) = (
        mutation
        for mutation in without_bases(TEXTS["toy_lanes"])
        if mutation.name.startswith("hidden")
    )
    recording = record_mutation(tmp_path, "toy_lanes", dropped, toy)
    assert kinds(recording) == {"early free"}
    place, other = recording.faults[0].place, recording.faults[0].other
    assert place.stream == "main"
    assert other is not None
    assert other.stream == "side"


def test_faults_name_lines_of_the_module(tmp_path: Path, toy: Toy) -> None:
    mutation = without_waits(TEXTS["toy_halves"])[1]
    recording = record_mutation(tmp_path, "toy_halves", mutation, toy)
    (fault,) = recording.faults
    assert fault.other is not None
    lines = mutation.text.splitlines()
    assert "self.mlp(0, hidden_0, attn_0)" in lines[fault.place.line - 1]
    assert "self.attn(0, hidden_0, bias_0" in lines[fault.other.line - 1]
    assert str(fault).startswith("read before write: aten.add.Tensor on main (")
    assert f"toy_halves.py:{fault.other.line})" in str(fault)
    module_map = read_map(tmp_path / "toy_halves.py")
    labels = [module_map.plan_lines(one.line) for one in (fault.place, fault.other)]
    assert [label and label.label for label in labels] == ["mlp[0]", "attn[0]"]


def test_blocks_that_were_unordered(halves: ModuleType, toy: Toy) -> None:
    recording = recorded(halves, toy, make_arguments(4))
    lines = Path(str(halves.__file__)).read_text().splitlines()

    def calls(pair: tuple[int, int]) -> set[str]:
        return {lines[number - 1].strip().split(", slot")[0] for number in pair}

    assert [calls(pair) for pair in sorted(recording.concurrent_lines())] == [
        {
            "hidden_0 = self.mlp(0, hidden_0, attn_0)",
            "attn_1 = self.attn(0, hidden_1, bias_1",
        },
        {
            "attn_0 = self.attn(i, hidden_0, bias_0",
            "hidden_1 = self.mlp(i - 1, hidden_1, attn_1)",
        },
        {
            "hidden_0 = self.mlp(i, hidden_0, attn_0)",
            "attn_1 = self.attn(i, hidden_1, bias_1",
        },
    ]


class Hand(Executor):
    """Steps written out in the tests below."""

    entry = "hand"
    inputs = {"x": TensorSpec("float32", "batch", 4)}  # noqa: RUF012
    split = Split("batch", weights=(1, 1))
    stream_names = ("side",)


def record_hand(step: Callable[[Any, torch.Tensor], Any]) -> Recording:
    recorder = Recorder()
    executor = type("Written", (Hand,), {"step": step})(
        Setup(
            calls={},
            streams=recorder.streams(torch.device("cpu"), ("side",), {}),
            device=torch.device("cpu"),
            explain=lambda error: None,
        )
    )
    return recorder.run(executor, [torch.zeros(4, 4)])


def test_inputs_belong_to_main() -> None:
    def step(self: Any, x: torch.Tensor) -> torch.Tensor:
        _, side = self.streams
        with side:
            y = x + 1
        self.streams.join()
        return y

    # The addition itself reads before main has made the input.
    assert kinds(record_hand(step)) == {"read before write"}


def test_results_must_be_waited_for_by_main() -> None:
    def step(self: Any, x: torch.Tensor) -> torch.Tensor:
        main, side = self.streams
        side.wait(main.record())
        with side:
            return x + 1

    assert kinds(record_hand(step)) == {"output not on main", "not joined"}


def test_a_join_in_one_direction_is_not_enough() -> None:
    def step(self: Any, x: torch.Tensor) -> torch.Tensor:
        main, side = self.streams
        side.wait(main.record())
        with side:
            y = x + 1
        main.wait(side.record())
        return y * 2

    faults = record_hand(step).faults
    assert "at the end of the step, side has not waited for main" in str(faults[-1])
    assert faults[-1].kind == "not joined"


def test_writes_after_reads_and_writes() -> None:
    def write_after_read(self: Any, x: torch.Tensor) -> torch.Tensor:
        main, side = self.streams
        side.wait(main.record())
        with side:
            y = x + 1
        x.add_(1)
        self.streams.join()
        return y

    def write_after_write(self: Any, x: torch.Tensor) -> torch.Tensor:
        main, side = self.streams
        side.wait(main.record())
        with side:
            x.fill_(1)
        x.fill_(2)
        self.streams.join()
        return x

    assert kinds(record_hand(write_after_read)) == {"write before read"}
    assert kinds(record_hand(write_after_write)) == {"write before write"}


@pytest.mark.parametrize("axis", [0, 1])
def test_pieces_of_one_storage_are_different_memory(axis: int) -> None:
    def step(self: Any, x: torch.Tensor) -> torch.Tensor:
        main, side = self.streams
        one, other = torch.chunk(x, 2, axis)
        side.wait(main.record())
        with side:
            one.add_(1)
        other.add_(2)
        self.streams.join()
        return x

    assert record_hand(step).faults == ()


def test_views_are_no_work_and_share_their_base() -> None:
    def step(self: Any, x: torch.Tensor) -> torch.Tensor:
        main, side = self.streams
        side.wait(main.record())
        with side:
            y = x + 1
        flat = y.view(16)[2:]  # on main, but it reads nothing
        with side:
            z = flat * 2
        self.streams.join()
        return z

    assert record_hand(step).faults == ()


def test_order_through_a_third_stream_counts() -> None:
    def step(self: Any, x: torch.Tensor) -> torch.Tensor:
        main, side = self.streams
        side.wait(main.record())
        with side:
            y = x + 1
        event = side.record()
        with side:
            z = y + 1
        main.wait(event)
        y.add_(1)
        self.streams.join()
        return z

    # The event was recorded before the read.
    assert kinds(record_hand(step)) == {"write before read"}


def test_an_operation_may_give_a_tensor_other_memory() -> None:
    def step(self: Any, x: torch.Tensor) -> torch.Tensor:
        # As `torch.distributed` does with what it sends of Python objects.
        other = torch.empty(0).set_(x.untyped_storage(), 0, (4, 4))
        return other + 1

    recording = record_hand(step)
    assert recording.faults == ()
    assert torch.equal(recording.outputs, torch.ones(4, 4))
