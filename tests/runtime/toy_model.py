"""A model of three layers with a cache, small enough to read in one sitting."""

from __future__ import annotations

import torch
from torch import nn

LAYERS = 3
CAPACITY = 12


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(16, 16, bias=False)
        self.k = nn.Linear(16, 16, bias=False)
        self.v = nn.Linear(16, 16, bias=False)
        self.o = nn.Linear(16, 16, bias=False)

    def forward(
        self,
        hidden: torch.Tensor,
        bias: torch.Tensor,
        slot: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        batch = hidden.shape[0]
        q = self.q(hidden).view(batch, 1, 2, 8).transpose(1, 2)
        k = self.k(hidden).view(batch, 1, 2, 8).transpose(1, 2)
        v = self.v(hidden).view(batch, 1, 2, 8).transpose(1, 2)
        keys.index_copy_(2, slot, k)
        values.index_copy_(2, slot, v)
        attended = nn.functional.scaled_dot_product_attention(
            q, keys, values, attn_mask=bias
        )
        flat: torch.Tensor = attended.transpose(1, 2).reshape(batch, 1, 16)
        out: torch.Tensor = self.o(flat)
        return out


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(
        self,
        hidden: torch.Tensor,
        bias: torch.Tensor,
        slot: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        hidden = hidden + self.attention(hidden, bias, slot, keys, values)
        out: torch.Tensor = hidden + self.down(torch.relu(self.up(hidden)))
        return out


class Toy(nn.Module):
    """Decodes one token per row; keys and values are inputs that it writes into."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(16, 32, bias=False)

    def forward(
        self,
        input_ids: torch.Tensor,
        mask: torch.Tensor,
        slot: torch.Tensor,
        keys: list[torch.Tensor],
        values: list[torch.Tensor],
    ) -> torch.Tensor:
        hidden = self.embed(input_ids)
        bias = torch.where(mask, 0.0, -1000.0)[:, None, None, :].expand(-1, 2, -1, -1)
        for layer, key, value in zip(self.layers, keys, values, strict=True):
            hidden = layer(hidden, bias, slot, key, value)
        out: torch.Tensor = self.head(hidden)
        return out


def make_toy(seed: int = 0) -> Toy:
    torch.manual_seed(seed)
    return Toy().eval()


def make_arguments(batch: int) -> tuple[object, ...]:
    mask = torch.rand(batch, CAPACITY) < 0.7
    mask[:, 3] = True
    return (
        torch.randint(0, 32, (batch, 1)),
        mask,
        torch.tensor([3]),
        [torch.randn(batch, 2, CAPACITY, 8) for _ in range(LAYERS)],
        [torch.randn(batch, 2, CAPACITY, 8) for _ in range(LAYERS)],
    )


def export_toy(model: Toy) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1, max=4096)
    rows = {0: batch}
    shapes = (rows, rows, None, [rows] * LAYERS, [rows] * LAYERS)
    with torch.no_grad():
        return torch.export.export(
            model, make_arguments(4), dynamic_shapes=shapes, strict=False
        )
