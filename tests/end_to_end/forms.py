"""Small models with what one `each` over all layers does not have."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from dynaflow_dsl.trace import Entry, TraceSpec

WIDTH = 6


class Block(nn.Module):
    """Two linear maps around what is carried."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(torch.tanh(self.a(x)))


class Cross(nn.Module):
    """Reads what another stack made, beside what is carried."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.cross, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        x = x + torch.tanh(self.own(x))
        return x + self.out(torch.relu(self.cross(memory)) * x)


class Translator(nn.Module):
    """An encoder, a norm, and a decoder whose layers all read the encoder's result."""

    def __init__(self, encoders: int = 3, decoders: int = 4) -> None:
        super().__init__()
        self.encoder = nn.ModuleList([Block() for _ in range(encoders)])
        self.norm = nn.LayerNorm(WIDTH)
        self.decoder = nn.ModuleList([Cross() for _ in range(decoders)])
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for block in self.encoder:
            x = block(x)
        memory = self.norm(x)
        for layer in self.decoder:
            y = layer(y, memory)
        return self.head(y)


class Chain(nn.Module):
    """Two stacks, the second going on with what the first made; both are returned."""

    def __init__(self, *, again: bool) -> None:
        super().__init__()
        self.first = nn.ModuleList([Block() for _ in range(3)])
        self.second = nn.ModuleList([Cross() for _ in range(3)])
        self.again = again

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        given = x
        for block in self.first:
            x = block(x)
        made = x
        for n, layer in enumerate(self.second):
            x = layer(x, made if self.again and n > 0 else given)
        return (x, made) if self.again else x


class Towers(nn.Module):
    """Two stacks that know nothing of each other, and what is made of both."""

    def __init__(self) -> None:
        super().__init__()
        self.text = nn.Sequential(Block(), Block())
        self.vision = nn.Sequential(Block(), nn.Linear(WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.text(x) * 2 - self.vision(y)))


class Stem(nn.Module):
    """A part of the model itself before its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.gate = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sigmoid(self.gate(x)) * self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return x


class Skipping(nn.Module):
    """Layers with other modules after some of them."""

    def __init__(self, after: tuple[int, ...], count: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(count)])
        self.bridges = nn.ModuleDict({f"b{n}": Block() for n in after})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for n, layer in enumerate(self.layers):
            x = layer(x)
            if f"b{n}" in self.bridges:
                x = self.bridges[f"b{n}"](x)
        return x


class Reminded(nn.Module):
    """Between layers something is computed that the next one reads beside the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Cross() for _ in range(4)])
        self.memory = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, torch.tanh(self.memory(x)))
        return x


class Centred(nn.Module):
    """A layer that takes the mean over the batch away, which mixes rows."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.mix, self.b = (
            nn.Linear(WIDTH, WIDTH),
            Mean(),
            nn.Linear(WIDTH, WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, mean = self.mix(torch.tanh(self.a(x)))
        return x + self.b(y) * mean


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = x.mean(0)
        return x - mean, mean


class CentredStack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Centred() for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def target(model: nn.Module, *names: str) -> TraceSpec:
    """All inputs are rows of a batch."""
    make: Callable[[dict[str, int]], tuple[torch.Tensor, ...]] = lambda sizes: tuple(  # noqa: E731
        torch.randn(sizes["batch"], WIDTH) for _ in names
    )
    return TraceSpec(
        model=model.eval(),
        entries={"forward": Entry(make)},
        dims=dict.fromkeys(names, ("batch", None)),
        dimensions={"batch": (1, None)},
    )


class Shared(nn.Module):
    """Layers with two branches, one of which reads nothing of the layer before."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Cross() for _ in range(4)])

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, y)
        return x
