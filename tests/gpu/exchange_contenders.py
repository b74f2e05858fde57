"""Contenders that exchange tokens over NCCL, captured: started by torchrun.

With one rank for each device; one alone exchanges with itself. Prints "all ok".
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from dynaflow_dsl.measurement import contenders
from dynaflow_dsl.measurement.contenders import Case, largest_difference, make
from dynaflow_dsl.models.exchange import combine, dispatch
from dynaflow_dsl.runtime import bind_group

LOCAL, CHOICES, LAYERS, TOKENS, WIDTH = 8, 4, 3, 300, 512
NEAR = 0.02


class Layers(torch.nn.Module):
    """Layers of experts, each of which multiplies by a number of its own."""

    def __init__(self, rank: int, ranks: int) -> None:
        super().__init__()
        self.ranks, self.room = ranks, ranks * TOKENS * CHOICES
        numbers = torch.arange(LOCAL, device="cuda") + 1.0 + rank * LOCAL
        self.factors = torch.nn.Buffer(numbers.bfloat16() / (ranks * LOCAL))
        self.places = torch.nn.Buffer(torch.arange(self.room, device="cuda"))

    def forward(
        self, tokens: torch.Tensor, choices: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        for experts in choices.unbind():
            given = (experts, self.room, LOCAL, self.ranks, "ep")
            rows, ends, arrived = dispatch(tokens, *given)
            number = torch.searchsorted(ends, self.places, right=True)
            made = rows * self.factors[number.clamp(max=LOCAL - 1)][:, None]
            back = (arrived, LOCAL, self.ranks, "ep")
            tokens = torch.tanh(combine(made, experts, weights, *back)) + tokens
        return tokens


def draw(choices: torch.Tensor, ranks: int, skew: float) -> None:
    """Other experts in the same memory; the more skew, the less even."""
    scores = torch.rand(LAYERS, TOKENS, ranks * LOCAL, device="cuda")
    scores += skew * torch.linspace(0, 1, ranks * LOCAL, device="cuda")
    choices.copy_(scores.topk(CHOICES).indices)


def refused(make_it: Callable[[], Any], reason: str) -> None:
    """Refused with this reason; what comes after finds a device in order."""
    before = torch.cuda.current_stream()
    with pytest.raises(RuntimeError, match=reason):
        make_it()
    assert torch.cuda.current_stream() == before
    torch.cuda.empty_cache()


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    compare()
    # NCCL waits for graphs that hold its collectives.
    gc.collect()
    if dist.get_rank() == 0:
        print("all ok", flush=True)
    dist.destroy_process_group()


def compare() -> None:
    assert dist.group.WORLD is not None
    bind_group("ep", dist.group.WORLD)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    tokens = torch.randn(TOKENS, WIDTH, device="cuda").bfloat16()
    weights = torch.rand(TOKENS, CHOICES, device="cuda")
    choices = torch.empty(LAYERS, TOKENS, CHOICES, dtype=torch.int64, device="cuda")
    case = Case(
        adapted=lambda: Layers(rank, ranks),
        load=lambda: pytest.fail("nothing is loaded"),
        arguments=(tokens, choices, weights),
        in_place=(),
        device=torch.device("cuda"),
    )
    draw(choices, ranks, 1.0)
    eager = make(case, "eager")
    first = eager().clone()
    refused(lambda: make(case, "torch.compile, captured"), "synchronizing")

    def waits() -> None:
        tokens.add(1)
        torch.cuda.current_stream().synchronize()

    refused(lambda: contenders._captured(waits), "synchroniz")
    calls = {name: make(case, name) for name in contenders.EXCHANGES}
    for call in calls.values():
        for _ in range(3):
            assert largest_difference(call(), first) < NEAR
    known, gathered = (calls[name] for name in contenders.EXCHANGES)
    for skew in (0.0, 3.0):
        draw(choices, ranks, skew)
        assert largest_difference(gathered(), eager()) < NEAR
    if ranks > 1:
        # Its counts are those of another routing, as the printed difference shows.
        assert largest_difference(known(), eager()) > NEAR
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
