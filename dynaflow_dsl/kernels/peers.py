"""Memory that the ranks of one machine read and write in each other.

Symmetric memory of PyTorch: every rank makes a buffer of the same shape, and all map
all of them. Nobody on the other side takes part in a copy, so what orders one rank's
writes before another's reads is a barrier on the streams of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from dynaflow_dsl.runtime.groups import is_stand_in, players


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


class Peers(Protocol):
    """The ranks of a group, seen from one of them."""

    @property
    def rank(self) -> int:
        """Which of them is looking, counted from 0."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    def buffer(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype
    ) -> SharedBuffer:
        """The buffer of this name and kind, made when first asked for.

        It is kept, so a captured graph may use it. All ranks ask for the same ones in
        the same order.
        """

    def barrier(self, name: str) -> None:
        """Let the current stream wait until those of all ranks are here.

        `name` is that of a buffer asked for before. Barriers of two streams that run at
        once have two names.
        """


@dataclass(slots=True)
class SymmetricPeers:
    """Ranks whose GPUs reach each other's memory."""

    role: str
    device: torch.device
    _made: dict[Any, SharedBuffer] = field(default_factory=dict)
    _handles: dict[str, Any] = field(default_factory=dict)
    _kept: list[tuple[torch.Tensor, Any]] = field(default_factory=list)

    @property
    def rank(self) -> int:
        """See `Peers`: the place in the group that plays the role."""
        return players()[self.role].rank()

    @property
    def size(self) -> int:
        """How many ranks play the role."""
        return players()[self.role].size()

    def buffer(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype
    ) -> SharedBuffer:
        """See `Peers`; the first call for a shape is a collective of the group."""
        key = (name, shape, dtype)
        if key not in self._made:
            # Imported here: a build of PyTorch without CUDA lacks what it imports.
            import torch.distributed._symmetric_memory as symmetric_memory

            mine = symmetric_memory.empty(*shape, dtype=dtype, device=self.device)
            group = players()[self.role].group_name
            handle = symmetric_memory.rendezvous(mine, group)
            self._handles.setdefault(name, handle)
            # The mapped buffers of all ranks own nothing: these two keep their memory.
            self._kept.append((mine, handle))
            ranks = range(self.size)
            self._made[key] = SharedBuffer.of(
                tuple(handle.get_buffer(rank, shape, dtype) for rank in ranks)
            )
        return self._made[key]

    def barrier(self, name: str) -> None:
        """See `Peers`: a small kernel that signals and waits, also when replayed."""
        # Each name has a signal pad of its own, that of its first buffer.
        self._handles[name].barrier(channel=0)


_PEERS: dict[tuple[str, torch.distributed.ProcessGroup, torch.device], Peers] = {}


def peers_of(role: str, tensor: torch.Tensor) -> Peers | None:
    """The ranks that play `role`, or None where they cannot reach each other's memory.

    That is so on CPU, and for a stand-in group, in which nobody else is there.
    """
    group = players().get(role)
    if group is None or is_stand_in(role) or tensor.device.type != "cuda":
        return None
    key = (role, group, tensor.device)
    if key not in _PEERS:
        _PEERS[key] = SymmetricPeers(role, tensor.device)
    return _PEERS[key]
