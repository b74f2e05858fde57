"""What commands and `load` say of a module that a program's torch.compile made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl.cli.foreign import import_module_file
from dynaflow_dsl.cli.main import run
from dynaflow_dsl.runtime import LoadError
from tests.integrations.dynamo.models import HALVES, Stack, evaluated, write


@pytest.fixture
def model() -> nn.Module:
    return evaluated(Stack())


@pytest.fixture(autouse=True)
def project(model: nn.Module, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    called = torch.compile(
        model,
        backend="dynaflow",
        options={
            "schedule": write(tmp_path),
            "compile": False,
            "dims": {"x": ("batch", None)},
            "facts": {"tp_size": 2},
        },
    )
    with torch.no_grad():
        called(torch.randn(4, 8))


def test_a_check_looks_at_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "--check", "halves.dfs"]) == 0
    assert capsys.readouterr().err == (
        "executors/halves.py: up to date by its text; the program that compiles its "
        "model compares the graph\n"
    )


def test_a_check_finds_another_schedule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, HALVES.replace("into 2", "into 3"))
    assert run(["compile", "--check", "halves.dfs"]) == 1
    assert capsys.readouterr().err.startswith(
        "error[DFS501]: executors/halves.py is stale: the schedule in halves.dfs "
        "changed\n  = help: run the program with the option"
    )


def test_a_check_finds_an_edit(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("executors/halves.py")
    path.write_text(path.read_text() + "# mine\n")
    assert run(["compile", "--check", "halves.dfs"]) == 1
    assert "error[DFS504]" in capsys.readouterr().err


def test_compiling_leaves_it_to_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("executors/halves.py").read_bytes()
    assert run(["compile", "halves.dfs"]) == 0
    assert "the program that compiles its model writes executors/halves.py" in (
        capsys.readouterr().err
    )
    assert Path("executors/halves.py").read_bytes() == before


TARGET = """
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.integrations.dynamo.models import Stack
import torch

def stack():
    return TraceSpec(
        model=Stack().eval(),
        entries={"forward": Entry(lambda sizes: (torch.ones(sizes["batch"], 8),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 64)},
    )
"""


@pytest.mark.parametrize("words", [(), ("--check",)])
def test_it_is_not_written_over_for_a_target(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("targets.py").write_text(TARGET)
    before = Path("executors/halves.py").read_bytes()
    line = ["compile", "halves.dfs", "--model", "targets.py:stack", *words]
    assert run(line) == 1
    assert capsys.readouterr().err.startswith(
        "error[DFS507]: executors/halves.py is the module of a program's "
        "torch.compile, and the trace target targets.py:stack makes another one of "
        "this name\n  = help: choose another folder with -o"
    )
    assert Path("executors/halves.py").read_bytes() == before


def test_modules_of_several_graphs_are_no_orphans(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for suffix in (".py", ".map.json"):
        made = Path("executors", f"halves{suffix}")
        Path("executors", f"halves_decode{suffix}").write_bytes(made.read_bytes())
    assert run(["compile", "--check", "halves.dfs"]) == 0
    Path("halves.dfs").rename("others.dfs")
    run(["compile", "--prune", "others.dfs"])
    assert "removed executors/halves_decode.py" in capsys.readouterr().out


def load(model: nn.Module, **options: Any) -> Any:
    module = import_module_file(Path("executors/halves.py"))
    return module.load(model, compile=False, **options)


def test_a_full_check_needs_a_target(model: nn.Module) -> None:
    with pytest.raises(LoadError, match="has no trace target to trace the model with"):
        load(model, check="full")


def test_a_model_of_another_class(model: nn.Module) -> None:
    class Other(Stack):
        pass

    with pytest.raises(LoadError, match="DFS801"):
        load(evaluated(Other()))


REQUIRES = HALVES.replace(
    "    stream side\n", "    require tp_size == 2\n    stream side\n"
)


def test_facts_are_those_of_the_program(model: nn.Module, tmp_path: Path) -> None:
    called = torch.compile(
        model,
        backend="dynaflow",
        options={
            "schedule": write(tmp_path, REQUIRES),
            "compile": False,
            "write": "always",
            "dims": {"x": ("batch", None)},
            "facts": {"tp_size": 2},
        },
    )
    with torch.no_grad():
        called(torch.randn(4, 8))
    load(model, facts={"tp_size": 2})
    with pytest.raises(LoadError, match="as the program that compiled it said"):
        load(model, facts={"tp_size": 4})
