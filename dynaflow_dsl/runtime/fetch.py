"""Weights in host memory: one block for each layer, copied in one go to a buffer.

On a CUDA device blocks are pinned, so that a copy engine reads them while the device
computes and the host goes on. On the CPU the same copies are made within one memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import torch

from dynaflow_dsl.runtime.model import Fetch

# Where weights may begin, in bytes: what the widest loads and the matrix units ask for.
ALIGNMENT = 256

# Brings the weights of one layer.
Bring: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a weight lies in a block, in bytes, and what it looks like."""

    offset: int
    size: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    def view(self, block: torch.Tensor) -> torch.Tensor:
        """The weight in a block or a buffer of bytes."""
        own = block.narrow(0, self.offset, self.size).view(self.dtype)
        return own.as_strided(self.shape, self.strides)


@dataclass(frozen=True, slots=True)
class Layout:
    """The weights of one layer in a block of `size` bytes, by their paths."""

    places: Mapping[str, Place]
    size: int


def lay_out(tensors: Mapping[str, torch.Tensor]) -> Layout:
    """Weights one after the other, each where an aligned one may begin.

    A dense weight keeps the order of its axes in memory, which its readers are compiled
    for; any other becomes contiguous.
    """
    places: dict[str, Place] = {}
    end = 0
    for path, tensor in tensors.items():
        like = torch.empty_like(tensor, device="meta")
        size = like.numel() * like.element_size()
        shape, strides = tuple(like.shape), tuple(like.stride())
        places[path] = Place(end, size, shape, strides, like.dtype)
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return Layout(places, end)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a part that brings weights is made of.

    `calls` bring the weights of each layer; `views` are the weights where they are
    brought to, by path. `host` and `buffers` are bytes.
    """

    calls: tuple[Bring, ...]
    views: Mapping[str, torch.Tensor]
    host: int
    buffers: int
    count: int


@dataclass(slots=True)
class HostWeights:
    """The blocks and buffers of a module, shared by all of its executors.

    Executors may share buffers since their steps run one after the other: see
    `Streams.take_turn`. Blocks hold copies of the weights as they are when they are
    asked for first.
    """

    device: torch.device
    blocks: dict[tuple[str, ...], torch.Tensor] = field(default_factory=dict)
    # By their size, their count, and which part of an executor with such ones has them.
    buffers: dict[tuple[int, int, int], list[torch.Tensor]] = field(
        default_factory=dict
    )

    def block(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The block of a layer with these weights in it, filled once."""
        key = tuple(tensors)
        if key not in self.blocks:
            layout = lay_out(tensors)
            block = _placed(tensors, layout, self.device)
            if block is None:
                block = self._host_bytes(layout.size)
                for path, place in layout.places.items():
                    place.view(block).copy_(tensors[path])
            self.blocks[key] = block
        return self.blocks[key]

    def _host_bytes(self, size: int) -> torch.Tensor:
        pinned = self.device.type == "cuda"
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=pinned)

    def _buffers(self, size: int, count: int, number: int) -> list[torch.Tensor]:
        """As many buffers of so many bytes on the device."""
        key = size, count, number
        if key not in self.buffers:
            self.buffers[key] = [
                torch.empty(size, dtype=torch.uint8, device=self.device)
                for _ in range(count)
            ]
        return self.buffers[key]

    def fetched(
        self, fetches: Mapping[str, Fetch], tensors: Mapping[str, torch.Tensor]
    ) -> dict[str, Fetched]:
        """What the parts of one executor are made of, by their names.

        Their weights may be there at the same time, so that none shares buffers with
        another part of the executor.
        """
        taken: Counter[tuple[int, int]] = Counter()
        return {
            name: self._fetched(fetch, tensors, taken)
            for name, fetch in fetches.items()
        }

    def _fetched(
        self,
        fetch: Fetch,
        tensors: Mapping[str, torch.Tensor],
        taken: Counter[tuple[int, int]],
    ) -> Fetched:
        """Blocks for all layers of a part, and buffers for the largest of them.

        `taken` counts the parts before it that have buffers of some size and number.
        """
        layers = [
            {path: tensors[path] for path in fetch.paths(position).values()}
            for position in range(len(fetch.layers))
        ]
        layouts = [lay_out(layer) for layer in layers]
        blocks = [self.block(layer) for layer in layers]
        size = max(layout.size for layout in layouts)
        buffers = self._buffers(size, fetch.buffers, taken[size, fetch.buffers])
        taken[size, fetch.buffers] += 1
        views: dict[str, torch.Tensor] = {}
        calls: list[Bring] = []
        for position, (layout, block) in enumerate(zip(layouts, blocks, strict=True)):
            buffer = buffers[position % fetch.buffers]
            for path, place in layout.places.items():
                views[path] = place.view(buffer)
            calls.append(partial(bring, buffer.narrow(0, 0, layout.size), block))
        host = sum(block.nbytes for block in blocks)
        return Fetched(tuple(calls), views, host, size * fetch.buffers, fetch.buffers)


def bring(buffer: torch.Tensor, block: torch.Tensor) -> None:
    """Copy a block to a buffer, in the order of the current stream."""
    buffer.copy_(block, non_blocking=True)


def _placed(
    tensors: Mapping[str, torch.Tensor], layout: Layout, device: torch.device
) -> torch.Tensor | None:
    """The block in which the weights lie already, as `place` leaves them."""
    found: torch.Tensor | None = None
    for path, place in layout.places.items():
        tensor = tensors[path]
        storage = tensor.untyped_storage()
        if (
            tensor.device.type != "cpu"
            or storage.nbytes() != layout.size
            or tensor.storage_offset() * tensor.element_size() != place.offset
            or tensor.stride() != place.strides
            or (device.type == "cuda" and not tensor.is_pinned())
        ):
            return None
        if found is None:
            found = torch.empty(0, dtype=torch.uint8).set_(storage)
        elif found.untyped_storage().data_ptr() != storage.data_ptr():
            return None
    return found


def fetched_paths(fetches: Sequence[Fetch]) -> frozenset[str]:
    """Paths of all weights that are brought."""
    return frozenset(
        path
        for fetch in fetches
        for position in range(len(fetch.layers))
        for path in fetch.paths(position).values()
    )


def place(
    model: torch.nn.Module,
    used: Sequence[str],
    fetches: Sequence[Fetch],
    host: HostWeights,
) -> None:
    """Move the tensors of a model to where a module wants them.

    Those that are fetched go to the blocks of `host`, layer by layer, so that no more
    than one layer lies twice in memory; the others in `used` go to the device. What the
    model holds stays the same numbers under the same names.
    """
    held: dict[str, torch.Tensor] = {
        **dict(model.named_buffers(remove_duplicate=False)),
        **dict(model.named_parameters(remove_duplicate=False)),
    }
    with torch.no_grad():
        for fetch in fetches:
            for position in range(len(fetch.layers)):
                paths = list(fetch.paths(position).values())
                layer = {path: held[path].detach() for path in paths}
                block = host.block(layer)
                for path, one in lay_out(layer).places.items():
                    held[path].data = one.view(block)
        for path in set(used) - fetched_paths(fetches):
            held[path].data = held[path].data.to(host.device)
