"""Copies straight into each other's memory, and what stands in where there is none."""

from __future__ import annotations

import pytest
import torch

from dynaflow_dsl.kernels import (
    copied_all_gather,
    copied_all_reduce,
    copied_all_reduce_add,
    copied_all_reduce_add_norm,
    copied_all_to_all,
    copied_reduce_scatter,
)
from dynaflow_dsl.kernels.sums import norm
from dynaflow_dsl.runtime import bind_group
from dynaflow_dsl.runtime.groups import release_group, stand_in_group
from tests.kernels.ranks import Rank, World

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 8), (3, 1, 7), (1,), (5, 3)])
def test_copied_sums_are_sums(
    meeting: dict[str, Rank], ranks: int, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    parts = [torch.randn(shape).to(dtype) for _ in range(ranks)]
    residual = torch.randn(shape).to(dtype)

    weight = torch.randn(shape[-1]).to(dtype)

    def work(rank: Rank) -> list[torch.Tensor]:
        meeting[f"tp{rank.rank}"] = rank
        own, group = parts[rank.rank], f"tp{rank.rank}"
        first = copied_all_reduce(own, group)
        # A second call may not disturb what the first one returned.
        second = copied_all_reduce_add(own * 2, residual, group)
        third = copied_all_reduce_add_norm(own * 3, residual, weight, 1e-5, group)
        return [first, second, *third]

    total = torch.stack(parts).sum(0)
    tripled = torch.stack([one * 3 for one in parts]).sum(0)
    hidden, unit = norm(residual + tripled, weight, 1e-5)
    for first, second, third, fourth in World(ranks).run(work):
        assert torch.equal(first, total)
        assert torch.equal(second, residual + 2 * total)
        assert torch.equal(third, hidden)
        assert torch.equal(fourth, unit)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 5])
def test_copied_rows_arrive(
    meeting: dict[str, Rank], ranks: int, dtype: torch.dtype, rows: int
) -> None:
    wide = [torch.randn(ranks * rows, 6).to(dtype) for _ in range(ranks)]
    own = [torch.randn(rows, 6).to(dtype) for _ in range(ranks)]

    def work(rank: Rank) -> list[torch.Tensor]:
        k, group = rank.rank, f"tp{rank.rank}"
        meeting[group] = rank
        made: list[torch.Tensor] = []
        for times in (1, 2):
            made += [
                copied_reduce_scatter(times * wide[k], ranks, group),
                copied_all_gather(times * own[k], ranks, group),
                copied_all_to_all(times * wide[k], ranks, group),
            ]
        return made

    for k, made in enumerate(World(ranks).run(work)):
        mine = slice(k * rows, (k + 1) * rows)
        for times, found in ((1, made[:3]), (2, made[3:])):
            assert torch.equal(found[0], times * torch.stack(wide).sum(0)[mine])
            assert torch.equal(found[1], times * torch.cat(own))
            assert torch.equal(found[2], times * torch.cat([one[mine] for one in wide]))


@pytest.mark.parametrize("ranks", [2, 3])
def test_what_was_gathered_is_read_before_more_comes(
    meeting: dict[str, Rank], ranks: int
) -> None:
    """No other call is between the two, whose barriers would order them."""

    def work(rank: Rank) -> list[torch.Tensor]:
        k, group = rank.rank, f"tp{rank.rank}"
        meeting[group] = rank
        return [
            copied_all_gather(torch.full((1, 4), 10.0 * times + k), ranks, group)
            for times in range(3)
        ]

    for made in World(ranks).run(work):
        for times, found in enumerate(made):
            assert found[:, 0].tolist() == [10.0 * times + k for k in range(ranks)]


@pytest.mark.parametrize(
    ("ranks", "names"), [(2, ["swapped"]), (3, ["shares", "sums"])]
)
def test_buffers_are_few_and_kept(
    meeting: dict[str, Rank], ranks: int, names: list[str]
) -> None:
    """Sizes that come and go make none but for a larger one than ever before."""
    world = World(ranks)

    def work(rank: Rank) -> None:
        group = f"tp{rank.rank}"
        meeting[group] = rank
        for size in (1, 100, 7, 20_000, 3, 16_000, 19_999, 100_000):
            own = torch.full((size,), float(rank.rank + 1))
            total = torch.full((size,), ranks * (ranks + 1) / 2)
            assert torch.equal(copied_all_reduce(own, group), total)

    world.run(work)
    assert sorted(set(world.names)) == names
    assert len(world.names) == 3 * len(names)


def test_rows_that_ranks_cannot_share_evenly() -> None:
    with pytest.raises(ValueError, match="5 rows are not divisible among 2 ranks"):
        copied_all_to_all(torch.ones(5, 2), 2, "tp")


def test_a_stand_in_group_goes_by_the_reference() -> None:
    """Nobody else is there, so an all-reduce returns what this rank gives."""
    bind_group("alone", stand_in_group(2, 0))
    try:
        given = torch.arange(4.0)
        assert torch.equal(copied_all_reduce(given, "alone"), given)
        assert copied_all_gather(given, 2, "alone").shape == (8,)
    finally:
        release_group("alone")
