from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from dynaflow_dsl.kernels.exchange import push_combine, push_dispatch
from dynaflow_dsl.models import exchange
from tests.kernels.ranks import Rank, World

WIDTH, LOCAL, CHOICES = 12, 3, 2


def routed(ranks: int, tokens: int, how: str) -> list[torch.Tensor]:
    """The experts of each rank's tokens, distinct ones for each token."""
    count = ranks * LOCAL
    match how:
        case "random":
            scores = [torch.rand(tokens, count) for _ in range(ranks)]
        case "one rank has no tokens for it":
            scores = [torch.rand(tokens, count) for _ in range(ranks)]
            for one in scores:
                one[:, -LOCAL:] = -1
        case "all to the last two experts":
            scores = [torch.arange(count).expand(tokens, -1) for _ in range(ranks)]
    return [one.topk(CHOICES).indices for one in scores]


def collectives(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference's collectives over the same ranks: what is not under test."""

    def gathered(tensor: torch.Tensor, ranks: int, role: str) -> torch.Tensor:
        rank = Rank(world, int(role[2:]))
        table = rank.buffer("gathered", (ranks, *tensor.shape), tensor.dtype)
        rank.barrier("gathered")
        for one in table.of_rank:
            one[rank.rank] = tensor
        rank.barrier("gathered")
        return table.of_rank[rank.rank].flatten(0, 1).clone()

    waiting: dict[tuple[int, int], torch.Tensor] = {}

    def exchanged(
        tensor: torch.Tensor, arriving: list[int], leaving: list[int], role: str
    ) -> torch.Tensor:
        rank = Rank(world, int(role[2:]))
        rank.buffer("exchanged", (1,), torch.int64)
        rank.barrier("exchanged")
        for target, rows in enumerate(tensor.split(leaving)):
            waiting[rank.rank, target] = rows
        rank.barrier("exchanged")
        came = [waiting[source, rank.rank] for source in range(rank.size)]
        assert [one.shape[0] for one in came] == arriving
        return torch.cat(came)

    monkeypatch.setattr(exchange, "all_gather_first", gathered)
    monkeypatch.setattr(exchange, "all_to_all", exchanged)
    monkeypatch.setattr(exchange, "group_rank", lambda role: int(role[2:]))


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("tokens", [1, 9])
@pytest.mark.parametrize(
    "how",
    ["random", "one rank has no tokens for it", "all to the last two experts"],
)
@pytest.mark.parametrize(
    ("dtype", "weights_dtype"),
    [
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.bfloat16, torch.bfloat16),
    ],
)
def test_pushed_rows_are_those_of_the_collectives(
    meeting: dict[str, Rank],
    monkeypatch: pytest.MonkeyPatch,
    ranks: int,
    tokens: int,
    how: str,
    dtype: torch.dtype,
    weights_dtype: torch.dtype,
) -> None:
    experts = routed(ranks, tokens, how)
    rows = [torch.randn(tokens, WIDTH).to(dtype) for _ in range(ranks)]
    weights = [torch.rand(tokens, CHOICES).to(weights_dtype) for _ in range(ranks)]
    room = tokens * CHOICES * ranks
    residual = torch.randn(tokens, 1, WIDTH).to(dtype)
    world = World(ranks)
    collectives(world, monkeypatch)

    def both(rank: Rank, pushed: bool) -> list[torch.Tensor]:
        k, role = rank.rank, f"ep{rank.rank}"
        send = push_dispatch if pushed else exchange.dispatch._init_fn
        made: list[torch.Tensor] = []
        for times in (1, 2):
            sent = send(times * rows[k], experts[k], room, LOCAL, ranks, role)
            results = sent[0] * (1 + sent[1][:, None])
            given = (results.to(dtype), experts[k], weights[k], sent[2])
            if pushed:
                back = push_combine(*given, residual, LOCAL, ranks, role)
            else:
                summed = exchange.combine._init_fn(*given, LOCAL, ranks, role)
                back = residual + summed.view(residual.shape)
            made += [*sent, back]
        return made

    expected = world.run(lambda rank: both(rank, pushed=False))

    def work(rank: Rank) -> list[torch.Tensor]:
        meeting[f"ep{rank.rank}"] = rank
        return both(rank, pushed=True)

    for made, wanted in zip(world.run(work), expected, strict=True):
        for one, other in zip(made, wanted, strict=True):
            # Sums are added in another order than PyTorch's; all else is copied. The
            # interpreter cuts what a GPU rounds to bfloat16.
            near = {"atol": 0.05, "rtol": 0.02} if dtype == torch.bfloat16 else {}
            assert_close(one, other, **near)
        for one, other in zip(made[:3], wanted[:3], strict=True):
            assert torch.equal(one, other)


def test_too_many_tokens_stop_the_step(meeting: dict[str, Rank]) -> None:
    experts = routed(2, 4, "all to the last two experts")

    def work(rank: Rank) -> None:
        meeting[f"ep{rank.rank}"] = rank
        rows = torch.ones(4, WIDTH)
        push_dispatch(rows, experts[rank.rank], 8, LOCAL, 2, f"ep{rank.rank}")

    with pytest.raises(RuntimeError, match="no room for its experts' tokens"):
        World(2).run(work)
