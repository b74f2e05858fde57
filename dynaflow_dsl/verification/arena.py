"""Memory that is given out and taken back as by the allocator of a device with streams.

A block that nothing holds any more goes back to the stream that took it, at once and
whatever still runs elsewhere; the next tensor of that stream may get it. That is what
makes an early free wrong on a device, so it is what a simulation must do too.
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass, field

import torch

# Blocks are multiples of this many bytes.
UNIT = 512


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes, strides and dtype of a tensor that an operation makes."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(tensor: torch.Tensor) -> Layout:
        """The layout of a tensor."""
        return Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)

    @property
    def bytes(self) -> int:
        """What the tensor takes from its first to its last element."""
        if 0 in self.sizes:
            return 0
        reach = zip(self.sizes, self.strides, strict=True)
        last = sum((size - 1) * stride for size, stride in reach)
        return int((last + 1) * self.dtype.itemsize)


@dataclass(slots=True)
class Arena:
    """Blocks by the stream that they belong to; `blocks` are all, by address."""

    blocks: dict[int, torch.Tensor] = field(default_factory=dict)
    _free: dict[str, list[int]] = field(default_factory=dict)

    def take(self, stream: str, layout: Layout) -> torch.Tensor:
        """A tensor in a block of the stream, which goes back when its storage ends.

        New memory holds NaNs, memory that was used before what lay there.
        """
        wanted = -(-max(layout.bytes, 1) // UNIT) * UNIT
        address = self._find(stream, wanted)
        # Torch keeps the object whose memory a storage shows as long as the storage.
        lease = (ctypes.c_ubyte * wanted).from_address(address)
        weakref.finalize(lease, self._free[stream].append, address)
        shown = torch.frombuffer(lease, dtype=torch.uint8)
        return _placed(shown.untyped_storage(), 0, layout)

    def unowned(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same memory without a claim on it; other tensors as they are."""
        block = self.blocks.get(tensor.untyped_storage().data_ptr())
        if block is None:
            return tensor
        offset = int(tensor.storage_offset())
        return _placed(block.untyped_storage(), offset, Layout.of(tensor))

    def _find(self, stream: str, wanted: int) -> int:
        free = self._free.setdefault(stream, [])
        fitting = [one for one in free if self.blocks[one].numel() == wanted]
        if fitting:
            # The one that was given back last, as allocators do.
            address = fitting[-1]
            free.remove(address)
            return address
        block = torch.full((wanted,), 0xFF, dtype=torch.uint8)
        address = block.data_ptr()
        self.blocks[address] = block
        return address


def _placed(storage: torch.UntypedStorage, offset: int, layout: Layout) -> torch.Tensor:
    empty = torch.empty(0, dtype=layout.dtype)
    return empty.set_(storage, offset, layout.sizes, layout.strides)
