"""Models of a user's own, and schedules for them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from dynaflow_dsl import mark

HALVES = """dfs 1

schedule halves:
    stream side

    split batch into 2 as half

    each layer in .layers.*:
        part expand on side = .norm + .up
        part reduce = rest

        stagger half by 1:
            expand
            reduce
"""

DECODER = """dfs 1

schedule decoder:
    stream side

    split batch into 2 as half

    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest

        order:
            attn[0]
            attn[1] | mlp[0]
            mlp[1]
"""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Stack(nn.Module):
    """Blocks one after another; Dynamo cannot trace what is before one of them."""

    def __init__(self, layers: int = 4, breaks_at: int | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.breaks_at = breaks_at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[: self.breaks_at]:
            x = layer(x)
        if self.breaks_at is not None:
            torch._dynamo.graph_break()
            for layer in self.layers[self.breaks_at :]:
                x = layer(x)
        return x


class CachingBlock(Block):
    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        y = self.up(self.norm(x))
        cache.add_(y)
        return x + self.down(torch.relu(cache))


class Caching(nn.Module):
    """Writes into tensors of its caller, reads one of its own, and returns a size."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(CachingBlock() for _ in range(2))
        self.scale = torch.full((8,), 2.0)

    def forward(
        self, x: torch.Tensor, caches: list[torch.Tensor]
    ) -> tuple[torch.Tensor, int, torch.Tensor]:
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache)
        return x * self.scale, 2 * x.shape[0], caches[1] * 2


@mark("activation")
def activation(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


def widened(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A function that only its name tells from the rest of a layer."""
    return layer.up(layer.norm(x))


class Marked(nn.Module):
    """A layer in three regions, of which a path, a function and marks name one each."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = activation(widened(self, x))
        with mark("close"):
            y = y * 2
            with mark("inner"):
                y = y + 1
        return x + self.down(y)


class MarkedStack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Marked() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def evaluated(model: nn.Module) -> nn.Module:
    """With weights that are the same in every run."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def without_numbers() -> nn.Module:
    """A stack whose layers have no number that Dynamo could open."""
    model = Stack()
    for layer in model.layers:
        layer.norm = nn.Linear(8, 8)
    return evaluated(model)


def write(folder: Path, text: str = HALVES, name: str = "halves.dfs") -> str:
    """A schedule file; its path."""
    path = folder / name
    path.write_text(text)
    return str(path)
