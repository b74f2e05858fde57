"""Memory that the ranks of one machine share, as the kernels see it.

Nobody on the other side takes part in a copy, so what orders one rank's writes before
another's reads is on the streams of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from dynaflow_dsl.kernels.tiles import power_of_two
from dynaflow_dsl.runtime.errors import RankError


@dataclass(frozen=True, slots=True)
class SharedBuffer:
    """One buffer of every rank: of one shape, and mapped by all of them.

    `addresses` is int64 [ranks], on the device, for kernels that choose the rank.
    """

    of_rank: tuple[torch.Tensor, ...]
    addresses: torch.Tensor

    @classmethod
    def of(cls, buffers: tuple[torch.Tensor, ...]) -> SharedBuffer:
        """The buffers of all ranks, in their order."""
        places = [one.data_ptr() for one in buffers]
        device = buffers[0].device
        return cls(buffers, torch.tensor(places, dtype=torch.int64, device=device))

    def shaped(self, shape: tuple[int, ...]) -> SharedBuffer:
        """The beginning of flat buffers, in this shape."""
        count = math.prod(shape)
        views = tuple(one[:count].view(shape) for one in self.of_rank)
        return SharedBuffer(views, self.addresses)


class Peers(Protocol):
    """The ranks of a group whose memory all of them reach, seen from one of them."""

    @property
    def rank(self) -> int:
        """Which of them is looking, counted from 0."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    def buffer(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype
    ) -> SharedBuffer:
        """The buffer of this name and dtype, made when first asked for, or for more.

        It is kept, so a captured graph may use it. Other shapes of the name and dtype
        lie in the same memory. All ranks ask for the same ones in the same order.
        """

    def barrier(self, name: str) -> None:
        """Let the current stream wait until those of all ranks are here.

        `name` is that of a buffer asked for before. Barriers of two streams that run at
        once have two names.
        """

    def swapped(
        self, name: str, tensor: torch.Tensor
    ) -> AbstractContextManager[torch.Tensor]:
        """Of two ranks: what the other one gives, while this one gives it `tensor`.

        Both are flat and alike, and there is no barrier of this name. What was given
        may be read by what the current stream does inside.
        """


def others(rank: int, size: int) -> list[int]:
    """From the next one on, so that not all send to the same one at once."""
    return [(rank + k) % size for k in range(1, size)]


def copy_to_all(peers: Peers, buffer: SharedBuffer, tensor: torch.Tensor) -> None:
    """Copy a tensor into this rank's share of everybody's buffer."""
    copy_to_others(peers, buffer, tensor)
    buffer.of_rank[peers.rank][peers.rank].copy_(tensor, non_blocking=True)


def copy_to_others(peers: Peers, buffer: SharedBuffer, tensor: torch.Tensor) -> None:
    """The same without this rank's own buffer."""
    for rank in others(peers.rank, peers.size):
        buffer.of_rank[rank][peers.rank].copy_(tensor, non_blocking=True)


# Of 64 KiB at least: what is smaller is made once for all sizes.
_SMALLEST = 1 << 16


def rounded(count: int) -> int:
    """Bytes of a buffer in which `count` have a place: a power of two.

    Larger ones are made as sizes grow, and smaller ones kept. All together they take
    less than twice the largest, and there are few.
    """
    return max(_SMALLEST, power_of_two(count))


@dataclass(slots=True)
class Buffers:
    """Buffers by name and dtype, each as large as was ever asked for.

    `make` makes flat ones of a name, of so many elements of a dtype, and keeps their
    memory.
    """

    make: Callable[[str, int, torch.dtype], SharedBuffer]
    _largest: dict[tuple[str, torch.dtype], SharedBuffer] = field(default_factory=dict)

    def of(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> SharedBuffer:
        """See `Peers.buffer`."""
        count = math.prod(shape)
        made = self._largest.get((name, dtype))
        if made is None or made.of_rank[0].numel() < count:
            capacity = rounded(count * dtype.itemsize) // dtype.itemsize
            made = self._largest[name, dtype] = self.make(name, capacity, dtype)
        return made.shaped(shape)


@dataclass(slots=True)
class Usage:
    """Who may still be working in shared memory: streams, and captured graphs."""

    device: torch.device
    captured: bool = False
    _streams: dict[int, Any] = field(default_factory=dict)

    def note(self) -> None:
        """The current stream works in it from here on."""
        if torch.cuda.is_current_stream_capturing():
            self.captured = True
            return
        stream = torch.cuda.current_stream(self.device)
        self._streams[stream.cuda_stream] = stream

    def is_over(self) -> bool:
        """Whether nothing can come to the memory any more, without waiting for it."""
        return not self.captured and all(
            stream.query() for stream in self._streams.values()
        )


@contextmanager
def setting_up(role: str, device: torch.device) -> Iterator[None]:
    """Make what is kept: its tensors are of no inference, and the host may wait.

    A step whose first run waits for the device is not captured, and who looks at the
    operations of a step is shown none of these: this is no part of it. Raises RankError
    (DFS818) inside a capture, which can hold nothing of it.
    """
    if torch.cuda.is_current_stream_capturing():
        raise RankError(
            "DFS818",
            f"a CUDA graph is being captured, and the ranks of the group '{role}' have "
            "not made the memory yet that they share for it: run the step once with "
            "these sizes before it is captured.",
        )
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("default")
    try:
        with (
            torch.utils._python_dispatch._disable_current_modes(),
            torch.inference_mode(False),
            torch.cuda.device(device),
        ):
            yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
