"""Models whose code is made for several ranks, on one of them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from dynaflow_dsl.integrations import report
from tests.integrations.dynamo.compiling import compiled
from tests.integrations.dynamo.models import HALVES, Block, Stack, write


def runs_scheduled(model: nn.Module, folder: Path, *rows: int) -> None:
    """One module for all numbers of rows, with the model's results."""
    step = compiled(model.eval(), write(folder, HALVES, "halves.dfs"))
    for count in rows:
        x = torch.randn(count, 8)
        torch.testing.assert_close(step(x), model(x))
    (graph,) = report().graphs
    assert graph.module == "executors/halves.py"


class PaddedStack(Stack):
    """Decides by sizes before its first operation."""

    ranks = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = x.shape[1]
        missing = (self.ranks - width % self.ranks) % self.ranks
        if missing > 0:
            x = nn.functional.pad(x, (0, missing))
        assert x.shape[0] % 1 == 0
        return super().forward(x)


def test_sizes_are_read_before_the_first_operation(tmp_path: Path) -> None:
    runs_scheduled(PaddedStack(), tmp_path, 6)


class SharingStack(Stack):
    """Takes its rank's share of the rows; there is one rank."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (x,) = torch.chunk(x, 1, dim=0)
        (x,) = x.chunk(1)
        return super().forward(x)


def test_a_chunk_of_everything_is_the_tensor(tmp_path: Path) -> None:
    runs_scheduled(SharingStack(), tmp_path, 6, 9)


class StackingBlock(Block):
    """Puts two tensors below each other to exchange them at once, as attention does
    with queries, keys and values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = torch.cat([self.norm(x), x], dim=0)
        first, second = torch.chunk(both * 2, 2)
        return second + self.down(torch.relu(self.up(first)))


def test_chunks_of_a_multiple_of_the_rows(tmp_path: Path) -> None:
    model = Stack()
    model.layers = nn.ModuleList(StackingBlock() for _ in range(3))
    runs_scheduled(model, tmp_path, 4, 7)


class UnevenStack(Stack):
    """Chunks of which nobody can say how many there are, on an axis with one size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.cat(x.chunk(3, dim=1)[::-1], dim=1))


def test_chunks_of_an_axis_of_one_size_are_torchs(tmp_path: Path) -> None:
    """What is not rows is left as it is."""
    runs_scheduled(UnevenStack(), tmp_path, 6)
