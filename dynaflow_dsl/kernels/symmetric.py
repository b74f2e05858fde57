"""Ranks whose GPUs reach each other's memory: symmetric memory of PyTorch.

Every rank makes a buffer of the same size, and all map all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from dynaflow_dsl.kernels.peers import Buffers, SharedBuffer, Usage, setting_up
from dynaflow_dsl.runtime.groups import players


@dataclass(slots=True)
class SymmetricPeers:
    """See `Peers`; `role` is that of the group."""

    role: str
    device: torch.device
    usage: Usage = field(init=False)
    _buffers: Buffers = field(init=False)
    _handles: dict[str, Any] = field(default_factory=dict)
    _kept: list[tuple[torch.Tensor, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.usage = Usage(self.device)
        self._buffers = Buffers(self._make)

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
        """See `Peers`; a call that makes one is a collective of the group."""
        self.usage.note()
        return self._buffers.of(name, shape, dtype)

    def _make(self, name: str, count: int, dtype: torch.dtype) -> SharedBuffer:
        # Imported here: a build of PyTorch without CUDA lacks what it imports.
        import torch.distributed._symmetric_memory as symmetric_memory

        with setting_up(self.role, self.device):
            mine = symmetric_memory.empty(count, dtype=dtype, device=self.device)
            group = players()[self.role].group_name
            # PyTorch zeroes the memory, and fills tables of where the others' lies, on
            # a stream that those of a step do not wait for; and the tables may be
            # where kernels that are still under way have their temporaries.
            torch.cuda.synchronize(self.device)
            handle = symmetric_memory.rendezvous(mine, group)
            torch.cuda.synchronize(self.device)
            # Each name has a signal pad of its own, that of its first buffer.
            self._handles.setdefault(name, handle)
            # The mapped buffers own nothing: these two keep their memory.
            self._kept.append((mine, handle))
            return SharedBuffer.of(
                tuple(
                    handle.get_buffer(rank, (count,), dtype)
                    for rank in range(self.size)
                )
            )

    def barrier(self, name: str) -> None:
        """See `Peers`: a small kernel that signals and waits, also when replayed."""
        self._handles[name].barrier(channel=0)

    def close(self) -> None:
        """Nothing to do: PyTorch frees what nobody keeps."""
