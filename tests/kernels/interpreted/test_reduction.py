from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from dynaflow_dsl.kernels import copied
from dynaflow_dsl.kernels.reduction import all_reduce_add_norm
from tests.kernels.ranks import Rank, World


def norm(hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The norm of Hugging Face's Llama."""
    wide = hidden.to(torch.float32)
    unit = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * unit.to(hidden.dtype)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(
    ("rows", "width", "dtype"),
    [
        ((6, 1), 16, torch.float32),
        ((5, 3), 24, torch.float32),
        ((1,), 64, torch.bfloat16),
        ((7,), 40, torch.bfloat16),
    ],
)
def test_fused_norms(
    meeting: dict[str, Rank],
    ranks: int,
    rows: tuple[int, ...],
    width: int,
    dtype: torch.dtype,
) -> None:
    parts = [torch.randn(*rows, width).to(dtype) for _ in range(ranks)]
    residual = torch.randn(*rows, width).to(dtype)
    weight = torch.randn(width).to(dtype)

    def work(rank: Rank) -> list[torch.Tensor]:
        meeting[f"tp{rank.rank}"] = rank
        given = (residual, weight, 1e-5, f"tp{rank.rank}")
        made: list[torch.Tensor] = []
        for times in (1, 2):
            made += all_reduce_add_norm(times * parts[rank.rank], *given, programs=2)
        return made

    results = World(ranks).run(work)
    for made in results[1:]:
        # All ranks go on with the same bits.
        assert all(map(torch.equal, made, results[0]))
    for times, hidden, normed in zip((1, 2), *[iter(results[0])] * 2, strict=True):
        update = torch.stack([times * one.float() for one in parts]).sum(0).to(dtype)
        assert hidden.shape == residual.shape
        # The interpreter cuts what a GPU rounds to bfloat16.
        near = {"atol": 0.05, "rtol": 0.02} if dtype == torch.bfloat16 else {}
        assert_close(hidden, residual + update, **near)
        assert_close(normed, norm(hidden, weight, 1e-5), **near)


def test_tensors_of_several_dtypes_go_by_the_reference(
    meeting: dict[str, Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A buffer of one dtype would be read as one of another."""
    monkeypatch.setattr(copied, "reduced", lambda tensor, group: tensor * 2)
    update = torch.randn(3, 8).to(torch.bfloat16)
    residual, weight = torch.randn(3, 8), torch.randn(8)
    meeting["tp0"] = Rank(World(2), 0)
    hidden, normed = all_reduce_add_norm(update, residual, weight, 1e-5, "tp0")
    assert torch.equal(hidden, residual + update * 2)
    assert_close(normed, norm(hidden, weight, 1e-5))
