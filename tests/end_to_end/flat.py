"""A small model over the tokens of several requests, which share a cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dynaflow_dsl.trace import Entry, Persistent, TraceSpec

WIDTH, PLACES, LAYERS = 6, 5, 3


class Page(nn.Module):
    """Each row writes its place in its request's page, and sums up what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, x: Tensor, request: Tensor, place: Tensor, pool: Tensor
    ) -> Tensor:
        pool.index_put_((request, place), self.key(x))
        seen = torch.arange(PLACES) <= place[:, None]
        return (pool[request] * seen[:, :, None]).sum(1)


class Layer(nn.Module):
    """What a page says, and a map of it."""

    def __init__(self) -> None:
        super().__init__()
        self.page, self.out = Page(), nn.Linear(WIDTH, WIDTH)

    def forward(
        self, x: Tensor, request: Tensor, place: Tensor, pool: Tensor
    ) -> Tensor:
        x = x + self.page(x, request, place, pool)
        return x + self.out(torch.tanh(x))


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(
        self, x: Tensor, request: Tensor, place: Tensor, pools: list[Tensor]
    ) -> Tensor:
        for layer, pool in zip(self.layers, pools, strict=True):
            x = layer(x, request, place, pool)
        return x


def arguments(sizes: Mapping[str, int]) -> tuple[Any, ...]:
    """Each row that decodes is a request of its own; one prompt has all the others."""
    decode, prefill = sizes["decode"], sizes["prefill"]
    requests = [*range(decode), *(decode + k // PLACES for k in range(prefill))]
    places = [k % PLACES for k in range(decode)] + [k % PLACES for k in range(prefill)]
    pools = [torch.randn(24, PLACES, WIDTH) for _ in range(LAYERS)]
    rows = torch.randn(decode + prefill, WIDTH)
    return rows, torch.tensor(requests), torch.tensor(places), pools


def flat_spec(**fields: Any) -> TraceSpec:
    """One entry, `step`, whose tokens decode or belong to prompts."""
    torch.manual_seed(0)
    given: dict[str, Any] = {
        "entries": {"step": Entry(arguments, phases={"tokens": ("decode", "prefill")})},
        "disjoint": ("pools",),
    }
    return TraceSpec(
        model=Flat().eval(),
        dims={"x": ("tokens", None), "request": ("tokens",), "place": ("tokens",)},
        dimensions={"tokens": (1, None)},
        persistent={"pools": Persistent()},
        **{**given, **fields},
    )


PHASES = """dfs 1

schedule phased:
    stream side

    split tokens into [decode, prefill] as phase
    {capture}

    each layer in .layers.*:
        part page on side = .page
        part out = rest

        order:
            page[decode]  | prev.out[prefill]
            page[prefill] | out[decode]
"""
