"""A module is loaded with a model whose source file was edited since."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dynaflow_dsl.cli.main import run
from dynaflow_dsl.runtime import Executor, LoadError
from tests.verification.mutations import import_module

MODEL = '''
import torch
from torch import nn

from dynaflow_dsl.trace import Entry, TraceSpec
from helpers_of_a_test import squashed


class Block(nn.Module):
    """One of the layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.act = nn.Tanh()

    def forward(self, x):
        return self.b(squashed(self.act(self.a(x))))


class Elsewhere(nn.Module):
    def forward(self, x):
        return x


class Adapter(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input):
        return self.model(input)


def model():
    return nn.Sequential(Block(), Block()).eval()


def stack():
    return TraceSpec(
        model=model(),
        entries={"run": Entry(lambda sizes: (torch.randn(sizes["batch"], 4),))},
        dims={"input": ("batch", None)},
        dimensions={"batch": (1, None)},
        adapter=Adapter,
        root="model",
    )
'''
HELPERS = "import torch\n\n\ndef squashed(x):\n    return torch.sigmoid(x)\n"
SCHEDULE = """dfs 1

model "net_of_a_test:stack"

schedule halves:
    stream side
    split batch into 2 as half
    each layer in .*:
        part a on side = .a
        part b = rest
        stagger half by 1:
            a
            b
"""
NAMES = ("net_of_a_test", "helpers_of_a_test")


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, text in zip(NAMES, (MODEL, HELPERS), strict=True):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "halves.dfs").write_text(SCHEDULE, encoding="utf-8")
    assert run(["compile", "halves.dfs"]) == 0
    return import_module(tmp_path / "executors" / "halves.py")


def load(module: ModuleType, name: str, old: str, new: str) -> object:
    """What loading gives in a process that starts after the edit."""
    edit(name, old, new)
    model = importlib.import_module(NAMES[0]).model()
    return module.load(model, compile=False)


def edit(name: str, old: str, new: str) -> None:
    """Edit a file before a process starts."""
    path = Path(f"{name}.py")
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    for each in NAMES:
        sys.modules.pop(each, None)
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("net_of_a_test", "class Block", "# A comment.\n\n\nclass Block"),
        ("net_of_a_test", '"""One of the layers."""', '"""A layer."""'),
        ("net_of_a_test", "(self, x):\n", "(\n        self,\n        x,\n    ):\n"),
        ("net_of_a_test", "def model", "def helper():\n    pass\n\n\ndef model"),
        ("net_of_a_test", "return x\n", "return -x\n"),
        ("helpers_of_a_test", "def", "# A comment.\ndef"),
    ],
)
def test_what_changes_nothing_keeps_the_module(
    compiled: ModuleType, name: str, old: str, new: str
) -> None:
    assert isinstance(load(compiled, name, old, new), Executor)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "net_of_a_test",
            "self.act(self.a(x))",
            "self.a(self.act(x))",
            "code of its classes has changed: the class `Block` in net_of_a_test.py.",
        ),
        (
            "helpers_of_a_test",
            "sigmoid",
            "relu",
            "the function `squashed` in helpers_of_a_test.py",
        ),
        (
            "net_of_a_test",
            "from helpers_of_a_test import",
            "from torch import sigmoid as",
            "the class `Block` in net_of_a_test.py",
        ),
        (
            "net_of_a_test",
            "nn.Sequential(Block(), Block())",
            "nn.Sequential(Block(), nn.Linear(4, 4))",
            "it has no tensor `1.a.",
        ),
        ("net_of_a_test", "nn.Tanh()", "nn.ReLU()", "the class `Block`"),
        (
            "net_of_a_test",
            "return nn.Sequential(Block(), Block()).eval()",
            "made = nn.Sequential(Block(), Block()).eval()\n"
            "    made[1].act = nn.Sigmoid()\n    return made.eval()",
            "its modules are of other classes",
        ),
    ],
)
def test_changed_code_is_refused_with_its_name_and_file(
    compiled: ModuleType, name: str, old: str, new: str, said: str
) -> None:
    with pytest.raises(LoadError) as caught:
        load(compiled, name, old, new)
    assert caught.value.code == "DFS801"
    assert said in caught.value.message


def test_an_adapter_that_changed_is_seen_by_whoever_traces(
    compiled: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """`load` is given the model, and knows nothing of what is around it."""
    given = ("net_of_a_test", "self.model(input)", "self.model(input) * 2")
    assert isinstance(load(compiled, *given), Executor)
    model = importlib.import_module(NAMES[0]).model()
    with pytest.raises(LoadError, match="DFS801"):
        compiled.load(model, compile=False, check="full")
    capsys.readouterr()
    assert run(["compile", "--check", "halves.dfs"]) == 1
    assert "error[DFS502]" in capsys.readouterr().err
    assert run(["compile", "halves.dfs"]) == 0
    assert run(["compile", "--check", "halves.dfs"]) == 0
