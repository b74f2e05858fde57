"""A small model and its schedule in an empty folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import run

TARGETS = """\
# Model and trace target.
import torch
from torch import nn

from dynaflow_dsl.trace import Entry, TraceSpec


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def stack(layers: int = 3, width: int = 8) -> TraceSpec:
    torch.manual_seed(0)
    return TraceSpec(
        model=Stack(layers, width).eval(),
        entries={"forward": Entry(lambda sizes: (torch.randn(sizes["batch"], width),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 64)},
    )
"""

SCHEDULE = """\
dfs 1

model "targets.py:stack" (layers = 3)

# Two halves, one stage apart.
schedule stack_halves:
    stream side

    split batch into 2 as half

    each layer in .layers.*:
        part expand on side = .norm + .up
        part reduce = rest

        stagger half by 1:
            expand
            reduce
"""


@dataclass(frozen=True)
class Workspace:
    """The folder that commands run in."""

    folder: Path

    @property
    def schedule(self) -> Path:
        return self.folder / "stack.dfs"

    @property
    def targets(self) -> Path:
        return self.folder / "targets.py"

    @property
    def module(self) -> Path:
        return self.folder / "executors" / "stack_halves.py"

    @property
    def map(self) -> Path:
        return self.module.with_suffix(".map.json")

    def change(self, path: Path, old: str, new: str) -> None:
        """Replace a text that must be there."""
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def misspell(self) -> None:
        """Write `reducer` where the timeline has `reduce`."""
        self.change(self.schedule, 12 * " " + "reduce\n", 12 * " " + "reducer\n")

    def compile(self, *words: str) -> int:
        return run(["compile", "stack.dfs", *words])

    def files(self) -> dict[str, str]:
        """All files with their contents, to show that a command wrote nothing."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_text()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    (tmp_path / "targets.py").write_text(TARGETS)
    (tmp_path / "stack.dfs").write_text(SCHEDULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return Workspace(tmp_path)
