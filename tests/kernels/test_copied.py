"""Copies straight into each other's memory, and what stands in where there is none."""

from __future__ import annotations

import pytest
import torch

from dynaflow_dsl.kernels import (
    copied_all_gather,
    copied_all_reduce,
    copied_all_reduce_add,
    copied_all_to_all,
    copied_reduce_scatter,
)
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

    def work(rank: Rank) -> list[torch.Tensor]:
        meeting[f"tp{rank.rank}"] = rank
        own, group = parts[rank.rank], f"tp{rank.rank}"
        first = copied_all_reduce(own, group)
        # A second call may not disturb what the first one returned.
        second = copied_all_reduce_add(own * 2, residual, group)
        return [first, second]

    total = torch.stack(parts).sum(0)
    for first, second in World(ranks).run(work):
        assert torch.equal(first, total)
        assert torch.equal(second, residual + 2 * total)


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


def test_buffers_are_few_and_kept(meeting: dict[str, Rank]) -> None:
    """Sizes that come and go make none but for a larger one than ever before."""
    world = World(2)

    def work(rank: Rank) -> None:
        group = f"tp{rank.rank}"
        meeting[group] = rank
        for size in (1, 100, 7, 20_000, 3, 16_000, 19_999, 70_000):
            own = torch.full((size,), float(rank.rank + 1))
            assert torch.equal(copied_all_reduce(own, group), torch.full((size,), 3.0))

    world.run(work)
    assert sorted(world.names) == ["shares"] * 3 + ["sums"] * 3


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
