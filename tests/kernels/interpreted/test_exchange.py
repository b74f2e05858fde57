from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from dynaflow_dsl.kernels import combining, routing
from dynaflow_dsl.models import exchange
from tests.kernels.exchanges import (
    CHOICES,
    LOCAL,
    WAYS,
    collectives,
    exact_room,
    exchanged,
    routed,
)
from tests.kernels.ranks import HostRank, Rank, World

WIDTH = 12

FLOAT, BRAIN = torch.float32, torch.bfloat16


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seat", [lambda rank: rank, HostRank], ids=["devices", "host"])
@pytest.mark.parametrize(
    ("ranks", "tokens", "how", "dtype", "weights_dtype", "full", "width"),
    [
        (2, 9, "random", FLOAT, FLOAT, False, 12),
        (4, 9, "random", BRAIN, FLOAT, True, 12),
        (3, 9, "random", BRAIN, BRAIN, False, 12),
        (2, 1, "random", BRAIN, FLOAT, False, 12),
        (4, 1, "random", FLOAT, FLOAT, True, 12),
        (2, 9, "one rank has no tokens for it", FLOAT, BRAIN, False, 12),
        (4, 9, "no tokens for the last rank", FLOAT, FLOAT, False, 12),
        (3, 9, "all to the last two experts", FLOAT, FLOAT, True, 12),
        (2, 9, "an expert chosen twice", FLOAT, FLOAT, False, 12),
        # Rows of which few are moved at once; neither width is a power of two.
        (2, 9, "random", FLOAT, FLOAT, False, 3000),
        # More tokens than are counted at once.
        (2, 70, "random", BRAIN, FLOAT, True, 12),
    ],
)
def test_exchanged_rows_are_those_of_the_collectives(
    meeting: dict[str, Rank],
    monkeypatch: pytest.MonkeyPatch,
    seat: Callable[[Rank], Any],
    way: str,
    ranks: int,
    tokens: int,
    how: str,
    dtype: torch.dtype,
    weights_dtype: torch.dtype,
    full: bool,
    width: int,
) -> None:
    experts = routed(ranks, tokens, how)
    rows = torch.randn(ranks, tokens, width).to(dtype)
    weights = torch.rand(ranks, tokens, CHOICES).to(weights_dtype)
    residual = torch.randn(ranks, tokens, 1, width).to(dtype)
    room = exact_room(experts) if full else tokens * CHOICES * ranks
    world = World(ranks)
    collectives(world, monkeypatch)
    given = (experts, weights, residual, room)

    def reference(rank: Rank) -> list[torch.Tensor]:
        send, k = exchange.dispatch._init_fn, rank.rank
        first = exchanged(send, None, k, rows, *given)
        return first + exchanged(send, None, k, -rows, *given)

    def work(rank: Rank) -> list[torch.Tensor]:
        meeting[f"ep{rank.rank}"] = seat(rank)
        first = exchanged(*WAYS[way], rank.rank, rows, *given)
        # A second call may not disturb what the first one returned.
        return first + exchanged(*WAYS[way], rank.rank, -rows, *given, programs=2)

    expected = world.run(reference)
    for made, wanted in zip(world.run(work), expected, strict=True):
        for one, other in zip(made, wanted, strict=True):
            # Sums are added in another order than PyTorch's, and rounded once for each
            # rank; all else is copied. The interpreter cuts what a GPU rounds.
            near = {"atol": 0.1, "rtol": 0.04} if dtype == BRAIN else {}
            assert_close(one, other, **near)
        for k in (0, 1, 2, 4, 5, 6):
            assert torch.equal(made[k], wanted[k])


@pytest.mark.parametrize("way", WAYS)
def test_too_many_tokens_stop_the_step(meeting: dict[str, Rank], way: str) -> None:
    """On all ranks, also on those that have room themselves."""
    experts = routed(2, 4, "all to the last two experts")
    stopped: list[int] = []

    def work(rank: Rank) -> None:
        meeting[f"ep{rank.rank}"] = rank
        rows = torch.ones(4, WIDTH)
        given = (rows, experts[rank.rank], exact_room(experts) - 1, LOCAL, 2)
        with pytest.raises(RuntimeError, match="no room for its experts' tokens"):
            WAYS[way][0](*given, f"ep{rank.rank}")
        stopped.append(rank.rank)

    World(2).run(work)
    assert sorted(stopped) == [0, 1]


def test_only_what_is_wanted_is_pushed(meeting: dict[str, Rank]) -> None:
    """A token goes to the ranks of its experts, and sums come from those alone."""
    experts = torch.tensor([[[0, 1], [0, 3], [4, 5]], [[3, 4], [1, 3], [0, 2]]])
    rows = torch.randn(2, 3, WIDTH)
    world = World(2)
    given = (rows, experts, torch.ones(2, 3, 2), torch.zeros_like(rows), 12)

    def work(rank: Rank) -> None:
        meeting[f"ep{rank.rank}"] = rank
        exchanged(*WAYS["push"], rank.rank, *given)

    world.run(work)
    for name in ("dispatched", "combined"):
        buffer = world.buffers.of(name, rows.shape, rows.dtype)
        # Between ranks 0 and 1 go tokens 1 and 2 of rank 0, and 1 and 2 of rank 1.
        for k, mine in enumerate(buffer.of_rank):
            assert torch.all(mine[k] == 77)
            assert torch.all(mine[1 - k, 0] == 77)
            assert not torch.any(mine[1 - k, 1:] == 77)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_sent_to_oneself(meeting: dict[str, Rank], way: str) -> None:
    """A copy from a rank to itself is a kernel, which has to wait for an SM."""
    experts = routed(3, 5, "random")
    rows, weights = torch.randn(3, 5, WIDTH), torch.rand(3, 5, CHOICES)
    given = (rows, experts, weights, torch.zeros_like(rows), 30)
    world = World(3)

    def work(rank: Rank) -> None:
        meeting[f"ep{rank.rank}"] = rank
        exchanged(*WAYS[way], rank.rank, *given)

    world.run(work)
    for name, sent in (
        ("dispatched_choices", experts),
        ("combined_choices", experts),
        ("combined_weights", weights),
    ):
        buffer = world.buffers.of(name, sent.shape, sent.dtype)
        for k, mine in enumerate(buffer.of_rank):
            assert torch.all(mine[k] == 77)
            for other in {0, 1, 2} - {k}:
                assert torch.equal(mine[other], sent[other])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seat", [lambda rank: rank, HostRank], ids=["devices", "host"])
def test_choices_and_weights_of_any_strides(
    meeting: dict[str, Rank], seat: Callable[[Rank], Any], way: str
) -> None:
    experts = routed(2, 5, "random")
    rows, weights = torch.randn(2, 5, WIDTH), torch.rand(2, 5, CHOICES)

    def turned(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)

    def work(rank: Rank) -> None:
        meeting[f"ep{rank.rank}"] = seat(rank)
        rest = torch.zeros_like(rows), 20
        made = exchanged(*WAYS[way], rank.rank, rows, experts, weights, *rest)
        strided = rows, turned(experts), turned(weights)
        for one, other in zip(
            exchanged(*WAYS[way], rank.rank, *strided, *rest), made, strict=True
        ):
            assert torch.equal(one, other)

    World(2).run(work)


@pytest.mark.parametrize(("ranks", "tokens"), [(1, 5), (3, 130), (5, 64), (2, 0)])
@pytest.mark.parametrize("local", [1, 3, 200])
@pytest.mark.parametrize("programs", [6, 256])
def test_places(
    monkeypatch: pytest.MonkeyPatch, ranks: int, tokens: int, local: int, programs: int
) -> None:
    """They are those of a stable sort, by experts and then by senders."""
    monkeypatch.setattr(routing, "_PROGRAMS", programs)
    experts = torch.randint(ranks * local, (ranks, tokens, 3))
    by_expert = [
        torch.bincount(one.flatten(), minlength=ranks * local) for one in experts
    ]
    counts = torch.stack(by_expert).view(ranks, ranks, local)
    for rank in range(ranks):
        sent = experts.clone()
        # The share of this rank itself is not sent, so nobody may read it.
        sent[rank] = rank * local
        found = routing.find_places(experts[rank], sent, local, rank)
        assert torch.equal(found.arrived, counts[:, rank])
        assert found.ends.tolist() == counts[:, rank].sum(0).cumsum(0).tolist()
        assert found.needed.tolist() == counts.sum((0, 2)).tolist()
        mine = experts // local == rank
        sender = torch.arange(ranks)[:, None, None].expand_as(experts)
        order = (experts * ranks + sender)[mine].argsort(stable=True)
        wanted = torch.full_like(found.of_choice, -1)
        places = torch.empty_like(order)
        places[order] = torch.arange(order.numel())
        wanted[mine] = places.to(wanted.dtype)
        assert torch.equal(found.of_choice, wanted)


@pytest.mark.parametrize("way", [way for way in WAYS if "add" in way])
def test_a_residual_of_another_dtype_goes_by_the_reference(
    meeting: dict[str, Rank], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The kernels write what they add in the dtype of the rows."""
    monkeypatch.setattr(combining, "combined_and_added", lambda *given: "reference")
    meeting["ep0"] = Rank(World(2), 0)
    rows, experts = torch.ones(4, WIDTH, dtype=BRAIN), torch.zeros(2, 2).long()
    arrived, residual = torch.zeros(2, LOCAL).long(), torch.ones(2, WIDTH)
    _, bring = WAYS[way]
    made = bring(rows, experts, torch.ones(2, 2), arrived, residual, LOCAL, 2, "ep0")
    assert made == "reference"
