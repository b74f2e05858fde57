"""Layers that hold one rank's share, and talk to the other ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from dynaflow_dsl.models.collectives import TENSOR, all_gather_last, all_reduce


class ReducedLinear(torch.nn.Linear):
    """A linear layer whose input features are shared out: partial sums are added up.

    The bias is whole on every rank and added once, to the sum.
    """

    @classmethod
    def of(cls, layer: torch.nn.Linear, weight: torch.Tensor) -> ReducedLinear:
        """The layer with this rank's columns of its weight, [out, in / ranks]."""
        reduced = cls(weight.shape[1], weight.shape[0], layer.bias is not None, "meta")
        reduced.weight = torch.nn.Parameter(weight, requires_grad=False)
        reduced.bias = layer.bias
        return reduced.train(layer.training)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's
        """Features [..., in / ranks] to the whole output [..., out]."""
        summed = all_reduce(F.linear(input, self.weight), TENSOR)
        return summed if self.bias is None else summed + self.bias


class GatheredLinear(torch.nn.Linear):
    """A linear layer whose output features are shared out, and gathered again."""

    @classmethod
    def of(
        cls, layer: torch.nn.Linear, weight: torch.nn.Parameter, ranks: int
    ) -> GatheredLinear:
        """The layer with this rank's rows of its weight, padding included."""
        gathered = cls(weight.shape[1], weight.shape[0], False, "meta")
        gathered.weight = weight
        gathered.ranks, gathered.whole = ranks, layer.out_features
        return gathered.train(layer.training)

    ranks: int
    whole: int

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's
        """Features [..., in] to the whole output [..., out]."""
        shared = all_gather_last(F.linear(input, self.weight), self.ranks, TENSOR)
        if shared.shape[-1] == self.whole:
            return shared
        return shared[..., : self.whole]


class SharedEmbedding(torch.nn.Embedding):
    """An embedding whose rows are shared out: each rank looks up those it holds.

    `first` is the number of its first row, a buffer since it is no part of the graph,
    which all ranks share.
    """

    first: torch.Tensor

    @classmethod
    def of(
        cls, layer: torch.nn.Embedding, weight: torch.nn.Parameter, rank: int
    ) -> SharedEmbedding:
        """The layer with this rank's rows of its weight, padding included."""
        rows, width = weight.shape
        shared = cls(rows, width, device="meta")
        shared.weight = weight
        first = torch.tensor(rank * weight.shape[0], device=weight.device)
        shared.register_buffer("first", first, persistent=False)
        return shared.train(layer.training)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's
        """Numbers of rows, int64 [...], to rows [..., width]."""
        local = input - self.first
        foreign = (local < 0) | (local >= self.num_embeddings)
        rows = F.embedding(local.masked_fill(foreign, 0), self.weight)
        return all_reduce(rows.masked_fill(foreign[..., None], 0.0), TENSOR)


def reduce_output(_: torch.nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
    """Forward hook that adds up what each rank's share of a module makes."""
    return all_reduce(output, TENSOR)
