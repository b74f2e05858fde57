"""Commands on a file that chooses by size, and on one with a kernel."""

from __future__ import annotations

import json

import pytest

from dynaflow_dsl.cli.main import run
from tests.cli.conftest import Workspace

SELECT = """
# By size.
select by_size(small = 3):
    when batch >= 2 * small: stack_halves(ways = 3)
    when batch >= small: stack_halves
    else: sequential
"""
KERNELS = """\
import torch

from dynaflow_dsl.runtime import kernel


def norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, (8,), weight, bias, eps)


@kernel(reference=norm, mutates=())
def fast(x, weight, bias, eps):
    # Here would be the launch.
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps) * weight + bias
"""


@pytest.fixture
def selecting(workspace: Workspace) -> Workspace:
    workspace.change(workspace.schedule, "stack_halves:", "stack_halves(ways = 2):")
    workspace.change(workspace.schedule, "into 2 as", "into ways as")
    text = workspace.schedule.read_text()
    workspace.schedule.write_text(text + SELECT)
    return workspace


def test_compile_check_and_verify(
    selecting: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert selecting.compile() == 0
    module = selecting.folder / "executors" / "by_size.py"
    assert "def choose_forward(batch):" in module.read_text()
    assert selecting.compile("--check") == 0
    capsys.readouterr()
    assert run(["verify", "stack.dfs", "--text-only"]) == 0
    output = capsys.readouterr().out
    assert "by_size.py, entry forward, chosen by size: ok" in output
    chosen = [line.split(",")[0].strip() for line in output.splitlines()]
    for line in (
        "batch = 2: sequential",
        "batch = 3: stack_halves",
        "batch = 5: stack_halves",
        "batch = 6: stack_halves_ways_3",
    ):
        assert line in chosen


def test_verify_finds_a_wrong_choice(
    selecting: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert selecting.compile() == 0
    module = selecting.folder / "executors" / "by_size.py"
    selecting.change(module, "if batch >= 3:", "if batch >= 4:")
    assert run(["verify", "stack.dfs", "--text-only"]) == 1
    said = "batch = 3: sequential, and NOT stack_halves as in 'when batch >= small"
    assert said in capsys.readouterr().out


def test_parameters_are_those_of_the_select(
    selecting: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert selecting.compile("-P", "small=5") == 0
    map_ = json.loads((selecting.folder / "executors/by_size.map.json").read_text())
    assert map_["parameters"]["by_size"] == {"small": 5}
    # What the module was made with is said again, and a changed line is found.
    assert selecting.compile("--check") == 0
    selecting.change(selecting.schedule, "2 * small", "3 * small")
    assert selecting.compile("--check") == 1
    assert "is stale: the schedule in stack.dfs changed" in capsys.readouterr().err
    assert selecting.compile("-P", "ways=3") == 1
    assert "there is no parameter 'ways'" in capsys.readouterr().err


def test_show_says_what_is_chosen(
    selecting: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", "stack.dfs"]) == 0
    output = capsys.readouterr().out
    assert "select by_size(small = 3): the first line that holds" in output
    assert "entry" not in output
    assert run(["trace", "stack.dfs"]) == 0
    capsys.readouterr()
    assert run(["show", "stack.dfs"]) == 0
    output = capsys.readouterr().out
    assert "    when batch >= 2 * small  such as batch = 6" in output
    assert run(["show", "stack.dfs", "--output-format", "json"]) == 0
    assert run(["check", "stack.dfs"]) == 0


def test_a_line_that_nothing_reaches_is_found_with_a_model(
    selecting: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    selecting.change(selecting.schedule, "batch >= small:", "batch >= 7 * small:")
    assert run(["check", "stack.dfs"]) == 0
    assert selecting.compile() == 1
    assert "error[DFS120]: this line is never chosen" in capsys.readouterr().err


def test_a_changed_kernel_makes_the_module_stale(
    workspace: Workspace,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(workspace.folder)
    kernels = workspace.folder / "cli_kernels.py"
    kernels.write_text(KERNELS)
    for old, new in (
        ("# Two halves", 'kernel fast = "cli_kernels:fast"\n\n# Two halves'),
        (
            "part expand on side = .norm",
            "part first via fast = .norm\n        part expand on side = ",
        ),
        ("on side =  + .up", "on side = .up"),
        ("            expand\n", "            first\n            expand\n"),
    ):
        workspace.change(workspace.schedule, old, new)
    assert workspace.compile() == 0
    assert workspace.compile("--check") == 0
    capsys.readouterr()
    assert run(["verify", "stack.dfs", "--text-only"]) == 0
    assert "part first through kernel fast:" in capsys.readouterr().out
    # What a comment says is no part of what runs.
    workspace.change(kernels, "# Here", "# There")
    assert workspace.compile("--check") == 0
    capsys.readouterr()
    workspace.change(kernels, "* weight + bias", "* weight + bias + 0.0")
    assert workspace.compile("--check") == 1
    assert "its map has another `kernels.fast.digest`" in capsys.readouterr().err
