"""Loading with `check="full"` traces the model again and compares its operations."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from dynaflow_dsl.cli.main import run
from dynaflow_dsl.runtime import Executor, LoadError
from tests.verification.mutations import import_module

MODEL = """
import torch
from torch import nn


class Block(nn.Module):
    scale = 2.0

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x))) * type(self).scale


class Stack(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""
TARGET = """
import torch

from dynaflow_dsl.trace import Entry, TraceSpec
from stack_of_a_test import Stack


def stack(layers=3, room=8, entry="run"):
    return TraceSpec(
        model=Stack(layers).eval(),
        entries={entry: Entry(lambda sizes: (torch.randn(sizes["batch"], 4),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, None)},
        facts={"layers": layers, "room": room},
    )
"""
SCHEDULE = """dfs 1

model "{target}:stack" (layers = 2)

schedule halves:
    require room >= 4
    stream side
    split batch into 2 as half
    each layer in .layers.*:
        part a on side = .a
        part b = rest
        stagger half by 1:
            a
            b
"""


@pytest.fixture
def made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[ModuleType, ModuleType]:
    """A module in `executors`, with its target beside that folder, and the model's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "stack_of_a_test", raising=False)
    (tmp_path / "stack_of_a_test.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "target.py").write_text(TARGET, encoding="utf-8")
    schedule = tmp_path / "halves.dfs"
    schedule.write_text(SCHEDULE.format(target="target.py"), encoding="utf-8")
    assert run(["compile", str(schedule)]) == 0
    module = import_module(tmp_path / "executors" / "halves.py")
    return module, importlib.import_module("stack_of_a_test")


def model_of(target: ModuleType) -> nn.Module:
    stack: Callable[..., nn.Module] = target.Stack
    return stack(2).eval()


def test_the_model_of_the_module_passes(
    made: tuple[ModuleType, ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, target = made
    model = model_of(target)
    # The target is found from the module's folder, wherever the process runs.
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    step = module.load(model, compile=False, check="full")
    assert isinstance(step, Executor)
    x = torch.randn(4, 4)
    with torch.no_grad():
        torch.testing.assert_close(step(x), model(x))


def refusal(module: ModuleType, model: nn.Module) -> LoadError:
    with pytest.raises(LoadError) as caught:
        module.load(model, compile=False, check="full")
    return caught.value


def test_other_operations_are_found(
    made: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no source text shows, nor anything that the model holds."""
    module, target = made
    model = model_of(target)
    monkeypatch.setattr(torch, "tanh", torch.sigmoid)
    assert isinstance(module.load(model, compile=False), Executor)
    error = refusal(module, model)
    assert error.code == "DFS801"
    assert "the model runs other operations than halves.py was made of" in error.message
    assert "`dfsc compile --check halves.dfs`" in error.message


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("def stack(", "def stacks(", "DFS801", "has no function 'stack'"),
        (
            'entry="run"',
            'entry="go"',
            "DFS801",
            "the entry `run`, which target.py:stack",
        ),
        ("room=8", "room=9", "DFS809", "made for room = 8, as target.py:stack said"),
    ],
)
def test_a_target_that_changed(
    old: str, new: str, code: str, said: str, made: tuple[ModuleType, ModuleType]
) -> None:
    module, target = made
    model = model_of(target)
    Path("target.py").write_text(TARGET.replace(old, new), encoding="utf-8")
    error = refusal(module, model)
    assert error.code == code
    assert said in error.message


def test_a_model_that_cannot_be_traced(
    made: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, target = made
    model = model_of(target)

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x

    monkeypatch.setattr(target.Block, "forward", forward)
    with pytest.raises(LoadError, match="DFS801"):
        module.load(model, compile=False, check="full")


def test_there_is_no_other_check(made: tuple[ModuleType, ModuleType]) -> None:
    module, target = made
    with pytest.raises(ValueError, match='"quick", "full" or "none", not \'fast\''):
        module.load(model_of(target), check="fast")
