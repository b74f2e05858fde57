"""Which bytes of each storage were read and written, by what, and its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from dynaflow_dsl.verification.clocks import MAIN


@dataclass(frozen=True, slots=True)
class Place:
    """Where work came from: an operator, the module's line, and its stream.

    `line` is the line of the plan that called it, 0 for work outside the module.
    """

    operator: str
    stream: str
    line: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The elements of a tensor within its storage."""

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    width: int

    @property
    def empty(self) -> bool:
        """Whether there are no elements at all."""
        return 0 in self.sizes

    def interval(self) -> tuple[int, int]:
        """First byte and the byte after the last."""
        reach = zip(self.sizes, self.strides, strict=True)
        last = self.offset + sum((size - 1) * stride for size, stride in reach)
        return self.offset * self.width, (last + 1) * self.width

    def overlaps(self, other: Extent) -> bool:
        """Whether the two have a byte in common."""
        if self.empty or other.empty:
            return False
        start, stop = self.interval()
        other_start, other_stop = other.interval()
        if stop <= other_start or other_stop <= start:
            return False
        length = max(stop, other_stop)
        return bool((self._bytes(length) & other._bytes(length)).any())

    def _bytes(self, length: int) -> torch.Tensor:
        mask = torch.zeros(-(-length // self.width), dtype=torch.bool)
        mask.as_strided(self.sizes, self.strides, self.offset).fill_(True)
        return mask.repeat_interleave(self.width)[:length]


def extent_of(tensor: torch.Tensor) -> Extent:
    """The extent of a tensor."""
    return Extent(
        int(tensor.storage_offset()),
        tuple(map(int, tensor.shape)),
        tuple(map(int, tensor.stride())),
        tensor.element_size(),
    )


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write: work `number` of its stream."""

    place: Place
    number: int
    write: bool
    extent: Extent


@dataclass(slots=True)
class Record:
    """What is known of one storage. `made_on` is the stream that allocated it."""

    reference: StorageWeakRef
    made_on: str
    made_by: Place
    accesses: list[Access] = field(default_factory=list)
    external: bool = False

    def conflicts(
        self, write: bool, extent: Extent, clock: Mapping[str, int]
    ) -> list[Access]:
        """Earlier accesses to the same bytes that `clock` has not waited for."""
        return [
            access
            for access in self.accesses
            if (write or access.write)
            and clock.get(access.place.stream, 0) < access.number
            and access.extent.overlaps(extent)
        ]

    def pending(self, clock: Mapping[str, int]) -> list[Access]:
        """Accesses that `clock` has not waited for."""
        return [
            access
            for access in self.accesses
            if clock.get(access.place.stream, 0) < access.number
        ]


@dataclass(slots=True)
class Memory:
    """All storages that are alive, by identity.

    A weak reference keeps a storage's identity from being used again before its record
    is dropped.
    """

    records: dict[int, Record] = field(default_factory=dict)

    def find(self, tensor: torch.Tensor) -> Record | None:
        """The record of a tensor's storage."""
        return self.records.get(tensor.untyped_storage()._cdata)

    def add(
        self, tensor: torch.Tensor, made_by: Place, *, external: bool = False
    ) -> Record:
        """A record for a storage that is new to us."""
        reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        made_on = MAIN if external else made_by.stream
        record = Record(reference, made_on, made_by, external=external)
        self.records[tensor.untyped_storage()._cdata] = record
        return record

    def expired(self) -> list[Record]:
        """Storages that were freed since the last call; their records are dropped."""
        gone = [
            identity
            for identity, record in self.records.items()
            if record.reference.expired()  # type: ignore[no-untyped-call]
        ]
        return [self.records.pop(identity) for identity in gone]
