"""`DFSC_CHECK=1`: each rule is broken once, and the message names the step (DFS810)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime.errors import CheckError
from dynaflow_dsl.runtime.streams import CallingThread, CpuStreams
from tests.runtime.toy_model import Toy, make_arguments, make_toy
from tests.runtime.write_toy_maps import EXECUTORS, module_map
from tests.verification.mutations import write_module

TEXT = (EXECUTORS / "toy_halves.py").read_text(encoding="utf-8")

LAST = "            hidden_1 = self.mlp(2"


@pytest.fixture(autouse=True)
def checking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFSC_CHECK", "1")


def refusal(folder: Path, *changes: tuple[str, str], model: Toy | None = None) -> str:
    """What is said of a step of the toy whose module was changed."""
    text = TEXT
    for before, after in changes:
        assert text.count(before) >= 1, before
        text = text.replace(before, after)
    module = write_module(folder, "toy_halves", text, module_map("toy_halves", text))
    step = module.load(model or make_toy(), compile=False)
    with pytest.raises(CheckError) as caught:
        step(*make_arguments(4))
    assert caught.value.code == "DFS810"
    return caught.value.message


def test_a_sound_step_gives_what_it_gives_unchecked(
    halves: ModuleType, lanes: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (halves, lanes):
        checked = module.load(make_toy(), compile=False)
        monkeypatch.delenv("DFSC_CHECK")
        plain = module.load(make_toy(), compile=False)
        monkeypatch.setenv("DFSC_CHECK", "1")
        for rows in (4, 5, 1):
            arguments = make_arguments(rows)
            copies = [
                [one.clone() for one in each] if isinstance(each, list) else each
                for each in arguments
            ]
            torch.testing.assert_close(checked(*arguments), plain(*copies))


def test_without_the_variable_nothing_of_it_is_there(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFSC_CHECK", "0")
    step = halves.load(toy, compile=False)
    assert "step" not in vars(step)
    assert isinstance(step.streams, CpuStreams)


def test_a_read_that_its_stream_has_not_waited_for(tmp_path: Path) -> None:
    wait = "            main.wait(attn_0_done)  # mlp[0] reads attn_0\n"
    message = refusal(tmp_path, (wait, ""))
    assert "mlp[0], layer 1 (tests/toy_halves.dfs:" in message
    assert " reads memory at 0x" in message
    assert "on side, for which main has not waited" in message


def test_joined_pieces_that_main_has_not_waited_for(tmp_path: Path) -> None:
    message = refusal(
        tmp_path,
        (f"        with main:\n{LAST}", f"        with side:\n{LAST}"),
        ("main.wait(attn_1_done)  # mlp[1] reads", "side.wait(hidden_1_done)  #"),
    )
    assert "reads memory" in message
    assert "for which main has not waited" in message


def test_a_step_that_ends_without_its_join(tmp_path: Path) -> None:
    join = "        self.streams.join()  # main waits for side, then side for main\n"
    last = "        main.wait(attn_1_done)  # mlp[1] reads attn_1\n"
    more = "        with side:\n            extra = self.mlp(2, hidden_0, attn_0)\n"
    waits = "        side.wait(hidden_0_done)\n"
    message = refusal(tmp_path, (join, waits + more), (last, last))
    assert message == "the step ends and main has not waited for the stream side."


def test_a_value_that_is_no_number(tmp_path: Path) -> None:
    model = make_toy()
    with torch.no_grad():
        weight = model.get_parameter("layers.1.down.weight")
        weight[0, 0] = float("nan")
    message = refusal(tmp_path, model=model)
    assert "result 0 of mlp[0], layer 1 (tests/toy_halves.dfs:" in message
    assert message.endswith("has a value that is not a number.")


def test_an_edited_module_is_named_by_its_own_lines(tmp_path: Path) -> None:
    model = make_toy()
    with torch.no_grad():
        model.get_parameter("layers.1.down.weight")[0, 0] = float("nan")
    text = "# Edited.\n" + TEXT
    module = write_module(tmp_path, "toy_halves", text, module_map("toy_halves", TEXT))
    step = module.load(model, compile=False)
    with pytest.raises(CheckError) as caught:
        step(*make_arguments(4))
    lines = text.splitlines()
    (line,) = [k for k, one in enumerate(lines, 1) if "self.mlp(i, hidden_0" in one]
    place = f"result 0 of mlp, layer 1 (toy_halves.py:{line}) has a value"
    assert caught.value.message.startswith(place)


class Spoiled:
    """A part whose call does more than its text, as a wrong kernel would."""

    def __init__(self, spoil: Callable[..., Any]) -> None:
        self.spoil = spoil

    def __call__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        from dynaflow_dsl.runtime.checking import Checker

        before = Checker.call
        spoil = self.spoil

        def call(
            checker: Checker,
            name: str,
            layer: int,
            function: Callable[..., Any],
            text: Any,
        ) -> Any:
            if name != "mlp":
                return before(checker, name, layer, function, text)

            def spoiled(*given: Any) -> Any:
                return spoil(function, *given)

            return before(checker, name, layer, spoiled, text)

        monkeypatch.setattr(Checker, "call", call)
        return refusal(folder)


def test_a_result_of_another_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiled = Spoiled(lambda mlp, *given: mlp(*given)[:1])
    message = spoiled(tmp_path, monkeypatch)
    assert "mlp[0], layer 0 (tests/toy_halves.dfs:" in message
    assert "returns float32[1, 1, 16], and the part's own text float32[2, 1, 16]" in (
        message
    )


def test_a_result_in_the_memory_of_an_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = Spoiled(lambda mlp, hidden, attn: hidden)(tmp_path, monkeypatch)
    assert "returns float32[2, 1, 16] in the memory of its tensor 0" in message


def test_a_write_that_the_text_does_not_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writes(mlp: Callable[..., Any], hidden: Any, attn: Any) -> Any:
        made = mlp(hidden, attn)
        attn.zero_()
        return made

    message = Spoiled(writes)(tmp_path, monkeypatch)
    assert message.endswith("writes its tensor 1, and the part's own text does not.")


def test_a_stream_that_is_not_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dynaflow_dsl.runtime import checking

    found: list[checking.Checker] = []
    streams = checking.Checker.streams

    def kept(checker: checking.Checker, made: Any) -> Any:
        found.append(checker)
        return streams(checker, made)

    monkeypatch.setattr(checking.Checker, "streams", kept)

    def leaves(mlp: Callable[..., Any], *given: Any) -> Any:
        found[-1].current = "side"
        return mlp(*given)

    message = Spoiled(leaves)(tmp_path, monkeypatch)
    assert message.endswith("leaves the stream main for side.")


def test_checked_streams_take_their_turn_and_are_left_as_those_of_the_device(
    halves: ModuleType,
) -> None:
    asked: list[str] = []

    class Noting(CpuStreams):
        def take_turn(self) -> None:
            asked.append("take_turn")

        def abandon(self) -> None:
            asked.append("abandon")

    def streams(device: Any, names: Any, options: Any) -> CpuStreams:
        return Noting(*map(CallingThread, ("main", *names)))

    step = halves.load(make_toy(), compile=False, streams=streams)
    step.streams.take_turn()
    step.streams.abandon()
    assert asked == ["take_turn", "abandon"]
