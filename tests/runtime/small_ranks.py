"""A small model with an all-reduce in every layer, its schedule, and a held group."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import nn

from dynaflow_dsl.models.collectives import all_reduce
from dynaflow_dsl.trace import Entry, TraceSpec

ROLE, LAYERS, WIDTH = "small", 3, 8

# The sum of one half is under way while the other half is computed.
HALVES = """dfs 1

schedule halves:
    stream comm

    split batch into 2 as half

    each layer in .layers.*:
        part reduce on comm = all_reduce in .down
        part compute = rest

        stagger half by 1:
            compute
            reduce
"""


class Reduced(nn.Linear):
    """A linear layer whose input features are shared out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return all_reduce(F.linear(x, self.weight), ROLE)


class Block(nn.Module):
    def __init__(self, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, inner, bias=False)
        self.down = Reduced(inner, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Stack(nn.Module):
    """One rank's share of blocks whose inner features `ways` ranks share out."""

    def __init__(self, ways: int = 1, rank: int = 0, layers: int = LAYERS) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        blocks = [Block(WIDTH // ways) for _ in range(layers)]
        self.layers = nn.ModuleList(blocks)
        share = slice(rank * WIDTH // ways, (rank + 1) * WIDTH // ways)
        for block in blocks:
            up, down = (torch.randn(WIDTH, WIDTH, generator=generator) for _ in "ab")
            block.up.weight = nn.Parameter(up[share].clone())
            block.down.weight = nn.Parameter(down[:, share].clone())
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.layers:
            x = block(x)
        return x


def whole(x: torch.Tensor) -> torch.Tensor:
    """What all ranks together compute, in one process and without a group."""
    for block in Stack().layers:
        assert isinstance(block, Block)
        inner = torch.tanh(x @ block.up.weight.T)
        x = x + inner @ block.down.weight.T
    return x


def target(ways: int = 2, layers: int = LAYERS) -> TraceSpec:
    """The trace target of one rank; all ranks have the same graph."""
    return TraceSpec(
        model=Stack(ways, 0, layers),
        entries={"forward": Entry(lambda sizes: (torch.randn(sizes["batch"], WIDTH),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 1024)},
    )


class OwnNumber(Stack):
    """A stack that adds a number of its rank, as one does that holds some rows."""

    def __init__(self, ways: int, rank: int) -> None:
        super().__init__(ways, rank)
        self.number = float(rank)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.number


def own_number(ways: int, rank: int) -> TraceSpec:
    """The target of one rank, whose graph differs from the others' in one number."""
    return replace(target(ways), model=OwnNumber(ways, rank))


class _Held(dist.Work):
    """A collective that ends when it is let go."""

    def __init__(self, tensor: torch.Tensor, may_end: Callable[[], bool]) -> None:
        super().__init__()
        self._tensor = tensor
        self._may_end = may_end

    def wait(self, timeout: object = None) -> bool:
        with HeldGroup.changed:
            ended = HeldGroup.changed.wait_for(self._may_end, timeout=20)
        if not ended:
            raise RuntimeError("gloo: nobody let the collective end")
        self._tensor.mul_(2)
        return True


class HeldGroup(dist.ProcessGroup):
    """A group of two equal ranks in one process, whose sums end when they may.

    `may_end(n)` says whether the n-th collective may; `log` has what was started.
    """

    changed = threading.Condition()

    def __init__(self, may_end: Callable[[int], bool], log: list[str]) -> None:
        super().__init__(0, 2)
        self._may_end = may_end
        self._log = log
        self.started = 0

    def allreduce(self, tensors: Any, *_: Any, **__: Any) -> dist.Work:
        number, self.started = self.started, self.started + 1
        with self.changed:
            self._log.append(f"sum {number}")
            self.changed.notify_all()
        return _Held(tensors[0], lambda: self._may_end(number))

    def getBackendName(self) -> str:  # noqa: N802 - torch's
        return "held"
