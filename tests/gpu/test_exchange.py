"""The exchange of experts, compiled for the device; run with `pytest -m gpu`.

Several ranks in one process whose buffers are those of one GPU: what orders them on
several is not tested here, but the code that runs on each is.
"""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from dynaflow_dsl.models import exchange
from tests.kernels.exchanges import (
    CHOICES,
    WAYS,
    collectives,
    exact_room,
    exchanged,
    routed,
)
from tests.kernels.ranks import Rank, World, meet

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
HOW = ["random", "no tokens for the last rank", "all to the last two experts"]


class Case:
    """Inputs of all ranks, which stay where they are when their values change."""

    def __init__(
        self,
        ranks: int,
        tokens: int,
        width: int,
        dtype: torch.dtype,
        weights_dtype: torch.dtype = torch.float32,
    ) -> None:
        self.rows = torch.empty(ranks, tokens, width, dtype=dtype, device=DEVICE)
        self.residual = torch.empty_like(self.rows)
        shape = (ranks, tokens, CHOICES)
        self.weights = torch.empty(shape, dtype=weights_dtype, device=DEVICE)
        self.experts = torch.empty(shape, dtype=torch.int64, device=DEVICE)
        self.room = tokens * CHOICES * ranks

    def draw(self, how: str) -> None:
        ranks, tokens, _ = self.experts.shape
        self.experts.copy_(routed(ranks, tokens, how, DEVICE))
        self.rows.normal_()
        self.residual.normal_()
        self.weights.uniform_()

    @property
    def given(self) -> tuple[object, ...]:
        return self.rows, self.experts, self.weights, self.residual, self.room

    def reference(self, world: World) -> list[list[torch.Tensor]]:
        send = exchange.dispatch._init_fn
        return world.run(lambda rank: exchanged(send, None, rank.rank, *self.given))


def compare(made: list[list[torch.Tensor]], wanted: list[list[torch.Tensor]]) -> None:
    for one, other in zip(made, wanted, strict=True):
        for k in range(3):
            assert torch.equal(one[k], other[k])
        near = {"atol": 0.1, "rtol": 0.02} if one[3].dtype == torch.bfloat16 else {}
        assert_close(one[3], other[3], **near)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("ranks", "tokens", "width", "dtype", "weights_dtype"),
    [
        (2, 1000, 2048, torch.bfloat16, torch.float32),
        (4, 333, 2048, torch.bfloat16, torch.bfloat16),
        (4, 100, 1000, torch.float32, torch.float32),
        # Rows that do not begin at multiples of 16 bytes.
        (3, 65, 77, torch.bfloat16, torch.float32),
        (2, 1, 7168, torch.bfloat16, torch.float32),
    ],
)
def test_compiled_exchanges(
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    ranks: int,
    tokens: int,
    width: int,
    dtype: torch.dtype,
    weights_dtype: torch.dtype,
) -> None:
    meeting, world = meet(monkeypatch), World(ranks, DEVICE)
    collectives(world, monkeypatch)
    case = Case(ranks, tokens, width, dtype, weights_dtype)

    def work(rank: Rank) -> list[torch.Tensor]:
        meeting[f"ep{rank.rank}"] = rank
        return exchanged(*WAYS[way], rank.rank, *case.given)

    for how in HOW:
        case.draw(how)
        if how == "random":
            case.room = exact_room(case.experts)
        compare(world.run(work), case.reference(world))
        case.room = tokens * CHOICES * ranks


@pytest.mark.parametrize("way", WAYS)
def test_captured_exchanges_take_other_routings(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    meeting, world = meet(monkeypatch), World(2, DEVICE)
    collectives(world, monkeypatch)
    case = Case(2, 200, 512, torch.bfloat16)
    case.draw("random")
    stream = torch.cuda.Stream()

    def work(rank: Rank) -> list[torch.Tensor]:
        meeting[f"ep{rank.rank}"] = rank
        with torch.cuda.stream(stream):
            return exchanged(*WAYS[way], rank.rank, *case.given)

    stream.wait_stream(torch.cuda.current_stream())
    world.run(work)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Ranks are threads, and all of them record.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
        made = world.run(work)
    for how in HOW * 7:
        case.draw(how)
        graph.replay()
        compare(made, case.reference(world))
