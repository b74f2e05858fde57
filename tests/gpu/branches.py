"""A model with two branches that leave room for each other on any device."""

from __future__ import annotations

import torch
from torch import nn

from dynaflow_dsl.trace import Entry, TraceSpec

WIDTH = 1 << 19

SCHEDULE = """dfs 1

schedule branches:
    stream side

    each layer in .layers.*:
        part left on side = .left
        part right = .right
        part join = .join

        order:
            left | right
            join
"""


class Branch(nn.Module):
    """A few scans of few rows: each takes long and few multiprocessors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.cumsum(x, -1) / WIDTH
        return x


class Join(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x + y)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = Branch()
        self.right = Branch()
        self.join = Join()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        joined: torch.Tensor = self.join(self.left(x), self.right(x))
        return joined


class Branches(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def branches(layers: int = 3, device: str = "cuda") -> TraceSpec:
    """Two scans beside each other in every layer."""
    return TraceSpec(
        model=Branches(layers).eval(),
        entries={
            "forward": Entry(
                lambda sizes: (torch.randn(sizes["batch"], WIDTH, device=device),)
            )
        },
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 8)},
        device=device,
    )
