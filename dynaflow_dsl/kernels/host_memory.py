"""Memory of the host that the ranks of one machine share, and how it is divided.

Each rank has a few slots in it for what it sends, one after the other. A slot has one
flag for each reader: 0 says that it may be written, 1 that it may be read. So a flag
returns to where it was, and a graph that replays constants finds it as it left it.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch

from dynaflow_dsl.runtime.errors import RankError

# What each rank is told by every other: a collective of the group.
Tell: TypeAlias = Callable[[Any], list[Any]]


class Pinning(Protocol):
    """What lets devices reach memory of the host."""

    def register(self, address: int, size: int) -> int:
        """Pin memory; returns where devices see it. Raises RuntimeError."""

    def unregister(self, address: int) -> None:
        """Take that back."""


FOLDER = Path("/dev/shm")

# Messages of a rank under way at once: two chunks, each on its way there and back.
SLOTS = 4

_LINE = 64  # bytes of a line of the cache: each flag has one for itself
_ALIGNMENT = 256  # bytes, where copies go fastest


def padded(count: int, alignment: int = _ALIGNMENT) -> int:
    """The next multiple of the alignment."""
    return -(-count // alignment) * alignment


@dataclass(frozen=True, slots=True)
class Layout:
    """Where flags and slots lie in the memory of `ranks` ranks.

    A slot has `capacity` bytes. A message to all lies at its beginning; where each rank
    is sent something else, what is for rank r lies at `r * stride`.
    """

    ranks: int
    capacity: int
    slots: int = SLOTS

    @property
    def stride(self) -> int:
        """Bytes that a slot has for each reader."""
        return self.capacity // self.ranks // _ALIGNMENT * _ALIGNMENT

    @property
    def head(self) -> int:
        """Bytes of all flags, in whole pages."""
        count = self.ranks * self.slots * self.ranks
        return padded(count * _LINE, mmap.PAGESIZE)

    @property
    def section(self) -> int:
        """Bytes of one rank's slots, in whole pages."""
        return padded(self.slots * padded(self.capacity), mmap.PAGESIZE)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.head + self.ranks * self.section

    def flag(self, sender: int, slot: int, reader: int) -> int:
        """Where the flag lies that a sender and a reader have for a slot."""
        return ((sender * self.slots + slot) * self.ranks + reader) * _LINE

    def place(self, sender: int, slot: int) -> int:
        """Where a slot begins."""
        return self.head + sender * self.section + slot * padded(self.capacity)


@dataclass(frozen=True, slots=True)
class Slots:
    """The shared memory, uint8 [layout.size], which devices see at `address`."""

    layout: Layout
    memory: torch.Tensor
    address: int

    def flag(self, sender: int, slot: int, reader: int) -> int:
        """The address of a flag, for devices."""
        return self.address + self.layout.flag(sender, slot, reader)

    def part(
        self, sender: int, slot: int, offset: int, like: torch.Tensor
    ) -> torch.Tensor:
        """What has the size of a tensor, [numbers], at an offset in a slot."""
        assert offset + like.nbytes <= self.layout.capacity
        start = self.layout.place(sender, slot) + offset
        return self.memory[start : start + like.nbytes].view(like.dtype)


def share_slots(
    role: str,
    rank: int,
    layout: Layout,
    tell: Tell,
    pinning: Pinning,
    folder: Path = FOLDER,
) -> Slots:
    """Make the memory, once all ranks ask for it.

    It is a file that has no name any more when this returns. Raises RankError (DFS818)
    on every rank where one cannot map it.
    """
    path = folder / f"dynaflow-{os.getpid()}-{secrets.token_hex(8)}"
    made = _create(path, layout.size) if rank == 0 else None
    mapped: Slots | None = None
    try:
        found, failed = tell((str(path), made))[0]
        if failed is None:
            mapped, failed = _map(Path(found), rank, layout, pinning)
        failures = tell(failed)
    finally:
        if rank == 0:
            path.unlink(missing_ok=True)
    refusing = [k for k, one in enumerate(failures) if one is not None]
    if mapped is None or refusing:
        if mapped is not None:
            pinning.unregister(mapped.memory.data_ptr())
        first = refusing[0]
        raise RankError(
            "DFS818",
            f"the ranks of the group '{role}' cannot share memory of the host: they "
            f"need {padded(layout.size, 1 << 20) >> 20} MiB in {folder}, and rank "
            f"{first} says: {failures[first]}. Give a container more of it "
            "(`--shm-size`), or leave kernels that copy through it out of the "
            "schedule.",
        )
    return mapped


def _create(path: Path, size: int) -> str | None:
    """Make a file of zeros; returns what went wrong."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            os.ftruncate(handle, size)
        finally:
            os.close(handle)
    except OSError as error:
        return str(error)
    return None


def _map(
    path: Path, rank: int, layout: Layout, pinning: Pinning
) -> tuple[Slots | None, str | None]:
    """The memory as this rank has it, or what went wrong."""
    try:
        handle = os.open(path, os.O_RDWR)
        try:
            # Without pages of its own, a full file system would end the process at the
            # first write. Each rank takes its own ones, which then lie near to it.
            start = layout.head + rank * layout.section
            os.posix_fallocate(handle, start, layout.section)
            if rank == 0:
                os.posix_fallocate(handle, 0, layout.head)
            mapping = mmap.mmap(handle, layout.size)
        finally:
            os.close(handle)
        # The tensor keeps the mapping.
        memory = torch.frombuffer(mapping, dtype=torch.uint8)
        address = pinning.register(memory.data_ptr(), layout.size)
        return Slots(layout, memory, address), None
    except (OSError, RuntimeError) as error:
        return None, str(error)
