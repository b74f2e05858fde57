from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import Executor, InputError
from tests.runtime.toy_model import Toy, make_arguments


@pytest.fixture
def executor(halves: ModuleType, toy: Toy) -> Executor:
    loaded = halves.load(toy, compile=False)
    assert isinstance(loaded, Executor)
    return loaded


def calls_of(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log: list[str] = []
    for name in ("step", "sequential"):
        real = getattr(type(executor), name)

        def noting(
            self: Executor, *given: Any, name: str = name, real: Any = real
        ) -> Any:
            log.append(name)
            return real(self, *given)

        monkeypatch.setattr(type(executor), name, noting)
    return log


def test_step_runs_when_every_piece_has_rows(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = calls_of(executor, monkeypatch)
    executor(*make_arguments(2))
    executor(*make_arguments(1))
    assert log == ["step", "sequential"]


def test_results_are_those_of_the_model(executor: Executor, toy: Toy) -> None:
    for batch in (1, 2, 5):
        arguments = make_arguments(batch)
        with torch.no_grad():
            expected = toy(*arguments)
        torch.testing.assert_close(executor(*arguments), expected)
        torch.testing.assert_close(executor.sequential(*arguments), expected)
        torch.testing.assert_close(executor.step(*arguments), expected)


def test_arguments_by_name(executor: Executor) -> None:
    ids, mask, slot, keys, values = make_arguments(2)
    named = executor(ids, mask, values=values, keys=keys, slot=slot)
    assert torch.equal(named, executor(ids, mask, slot, keys, values))


def test_wrong_inputs_are_refused_before_anything_runs(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = calls_of(executor, monkeypatch)
    arguments = list(make_arguments(2))
    arguments[2] = torch.tensor([3, 4])
    with pytest.raises(InputError, match=r"input `slot`: expected int64\[1\]"):
        executor(*arguments)
    assert log == []


def test_no_gradients_are_kept(executor: Executor) -> None:
    assert torch.is_grad_enabled()
    assert not executor(*make_arguments(2)).requires_grad
    assert torch.is_grad_enabled()


def test_inference_mode(executor: Executor) -> None:
    with torch.inference_mode():
        assert executor(*make_arguments(2)).is_inference()


def failing_at(layer: int, piece_rows: int, executor: Executor) -> None:
    """Let `attn` of one layer fail when it gets so many rows."""
    real: Any = executor.attn  # type: ignore[attr-defined]

    def attn(position: int, hidden: torch.Tensor, *given: Any) -> Any:
        if position == layer and hidden.shape[0] == piece_rows:
            raise RuntimeError("as wanted")
        return real(position, hidden, *given)

    executor.attn = attn  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("layer", "rows", "note"),
    [
        (0, 2, "in attn[0], layer 0 · tests/toy_halves.dfs:11:5"),
        (0, 1, "in attn[1], layer 0 · tests/toy_halves.dfs:13:5"),
        (2, 2, "in attn[0], layer 2 · tests/toy_halves.dfs:14:5"),
        (1, 1, "in attn[1], layer 1 · tests/toy_halves.dfs:17:5"),
    ],
)
def test_errors_name_the_line_of_the_schedule(
    executor: Executor, layer: int, rows: int, note: str
) -> None:
    failing_at(layer, rows, executor)
    with pytest.raises(RuntimeError, match="as wanted") as caught:
        executor(*make_arguments(3))
    assert caught.value.__notes__ == [note]


@pytest.mark.parametrize("part", ["before", "after"])
def test_errors_outside_of_the_layers_name_none(executor: Executor, part: str) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("as wanted")

    setattr(executor, part, fail)
    with pytest.raises(RuntimeError, match="as wanted") as caught:
        executor(*make_arguments(3))
    (note,) = caught.value.__notes__
    assert note.startswith(f"in {part} · tests/toy_halves.dfs:")


def test_errors_in_a_step_of_the_previous_layer(executor: Executor) -> None:
    real: Any = executor.mlp  # type: ignore[attr-defined]

    def mlp(position: int, hidden: torch.Tensor, attn: torch.Tensor) -> Any:
        if position == 0 and hidden.shape[0] == 1:
            raise RuntimeError("as wanted")
        return real(position, hidden, attn)

    executor.mlp = mlp  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="as wanted") as caught:
        executor(*make_arguments(3))
    assert caught.value.__notes__ == ["in mlp[1], layer 0 · tests/toy_halves.dfs:15:5"]


def test_errors_of_an_operation_name_the_line_of_the_model(executor: Executor) -> None:
    arguments = make_arguments(2)
    arguments[2].fill_(99)  # type: ignore[attr-defined]
    with pytest.raises((RuntimeError, IndexError)) as caught:
        executor(*arguments)
    assert caught.value.__notes__ == [
        "in attn[0], layer 0 · tests/toy_halves.dfs:11:5",
        "at operation index_copy_ · tests/runtime/toy_model.py:37: "
        "keys.index_copy_(2, slot, k)",
    ]


def test_a_breakpoint_in_a_part_is_hit(executor: Executor, halves: ModuleType) -> None:
    lines: list[int] = []
    code = halves.mlp.__code__

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is code and event == "line":
            lines.append(frame.f_lineno)
        return trace if frame.f_code is code else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        executor(*make_arguments(2))
    finally:
        sys.settrace(before)
    text = Path(str(halves.__file__)).read_text().splitlines()
    hit = [text[line - 1].strip() for line in lines]
    assert hit.count("relu = aten.relu.default(up)") == 6
