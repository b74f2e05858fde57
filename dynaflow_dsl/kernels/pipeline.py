"""Collectives through memory that ranks share on the host, cut into chunks.

While one chunk is copied out of the device, the one before is copied in, and the one
before that is added: three lanes, of which two are the copy engines'.

Messages are numbered, alike on all ranks. A rank waits for others only at a message,
and only for what they do for it and the ones before. It reads a message behind writing
its own of that number, which is ordered by marks too: a device that runs lanes one
after the other still comes to an end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.kernels.host_memory import Slots, padded
from dynaflow_dsl.kernels.lanes import Lane
from dynaflow_dsl.kernels.peers import others
from dynaflow_dsl.runtime.driver import awaited, written

# Numbers at which chunks are cut, so that copies and additions are of whole lines.
_CUT = 64

# With some more for what cuts are rounded to, a slot has 4 MiB.
WHOLE = 4 << 20
_CHUNK = WHOLE - (1 << 16)

# Less is not cut into chunks that overlap: between two copies a lane has a pause.
_SMALL = 2 << 20
_FEW = 4


def chunks_of(nbytes: int, chunks: int) -> int:
    """Into how many chunks so much is cut: `chunks`, or where that is 0 by its size."""
    if chunks > 0:
        return chunks
    return max(-(-nbytes // _CHUNK), min(_FEW, nbytes // _SMALL), 1)


def cut(length: int, parts: int) -> list[slice]:
    """At most so many parts of a length, all of one size but the last; none of 0."""
    step = max(padded(-(-length // parts), _CUT), 1)
    return [slice(at, min(at + step, length)) for at in range(0, length, step)]


def shares(chunk: slice, ranks: int) -> list[slice]:
    """One part of a chunk for each rank; the last ones may be empty."""
    length = chunk.stop - chunk.start
    found = [
        slice(chunk.start + each.start, chunk.start + each.stop)
        for each in cut(length, ranks)
    ]
    return found + [slice(chunk.stop, chunk.stop)] * (ranks - len(found))


@dataclass(slots=True)
class Pipeline:
    """What one call sends and receives, as rank `rank` of the layout's ranks.

    `main` is the lane of the call, on which it adds. The other two have work of this
    call only between its beginning and `join`.
    """

    rank: int
    slots: Slots
    main: Lane
    sending: Lane
    receiving: Lane
    _taken: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        start = self.main.mark()
        self.sending.follow(start)
        self.receiving.follow(start)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.slots.layout.ranks

    def scatter(
        self,
        pieces: Sequence[torch.Tensor],
        incoming: Sequence[torch.Tensor],
        after: Any = None,
    ) -> Any:
        """Send `pieces[r]` to rank r, and take what each sends here to `incoming`.

        This rank's own of both are left alone. Returns the mark of what was taken.
        """
        stride = self.slots.layout.stride
        letters = [(pieces[r], r * stride, (r,)) for r in self._others()]
        return self._message(letters, self.rank * stride, incoming, after)

    def gather(
        self, piece: torch.Tensor, incoming: Sequence[torch.Tensor], after: Any = None
    ) -> Any:
        """Send one piece to all; else as `scatter`."""
        letters = [(piece, 0, tuple(self._others()))]
        return self._message(letters, 0, incoming, after)

    def join(self) -> None:
        """Let the lane of the call go on behind all of it."""
        self.main.follow(self.sending.mark())
        self.main.follow(self.receiving.mark())

    def _message(
        self,
        letters: Sequence[tuple[torch.Tensor, int, tuple[int, ...]]],
        offset: int,
        incoming: Sequence[torch.Tensor],
        after: Any,
    ) -> Any:
        number, count = len(self._taken), self.slots.layout.slots
        slot = number % count
        if number >= count:
            self.sending.follow(self._taken[number - count])
        if after is not None:
            self.sending.follow(after)
        # All readers: the message before may have been one to all, which lies in the
        # place of every letter. And at first all slots: a wait between two copies is
        # a pause of the copy engine.
        if number == 0 or number >= count:
            asked = range(count) if number == 0 else (slot,)
            flags = (
                self.slots.flag(self.rank, one, reader)
                for one in asked
                for reader in self._others()
            )
            self.sending.do(*awaited(0, *flags))
        for piece, start, readers in letters:
            self.sending.copy(self.slots.part(self.rank, slot, start, piece), piece)
            flags = (self.slots.flag(self.rank, slot, reader) for reader in readers)
            self.sending.do(*written(1, *flags))
        self.receiving.follow(self.sending.mark())
        for sender in reversed(self._others()):
            flag, into = self.slots.flag(sender, slot, self.rank), incoming[sender]
            self.receiving.do(*awaited(1, flag))
            self.receiving.copy(into, self.slots.part(sender, slot, offset, into))
            self.receiving.do(*written(0, flag))
        self._taken.append(self.receiving.mark())
        return self._taken[-1]

    def _others(self) -> list[int]:
        return others(self.rank, self.size)


# The pipeline of a call whose messages have so many bytes for a reader, and for all.
Begin: TypeAlias = Callable[[int], Pipeline]


@dataclass(frozen=True, slots=True)
class HostCollectives:
    """The collectives of `size` ranks; this one is `rank`.

    `begin` gives the pipeline of a call, whose slots hold so many bytes. Whatever the
    call allocates it has allocated before: what waits for the beginning of the pipeline
    may use it.
    """

    rank: int
    size: int
    begin: Begin

    def addends(self, flat: torch.Tensor, chunks: int) -> list[torch.Tensor]:
        """Tensors whose sum, in this order, is that over the ranks, [numbers].

        Two ranks give each other all of it: as many bytes move as for sums of shares,
        in half the messages. With more there is one, the sum.
        """
        summed = torch.empty_like(flat)
        parts = cut(flat.numel(), chunks_of(flat.nbytes, chunks))
        if self.size != 2:
            if parts:
                self._reduce_and_gather(flat, summed, parts)
            return [summed]
        if parts:
            pipeline = self.begin(_largest(flat, parts))
            for part in parts:
                pipeline.gather(flat[part], [summed[part], summed[part]])
            pipeline.join()
        return [flat, summed] if self.rank == 0 else [summed, flat]

    def _reduce_and_gather(
        self, flat: torch.Tensor, summed: torch.Tensor, parts: Sequence[slice]
    ) -> None:
        """Each rank adds a share of each chunk; its sum goes out behind the next."""
        divided = [shares(part, self.size) for part in parts]
        share = divided[0][0]
        arrived = flat.new_empty(len(parts), self.size, share.stop - share.start)
        pipeline = self.begin(self.size * padded(arrived[0, 0].nbytes))
        before: tuple[list[slice], Any] | None = None
        for number, places in enumerate(divided):
            own = summed[places[self.rank]]
            rows = list(arrived[number, :, : own.numel()])
            added = _scatter_and_add(
                pipeline, [flat[place] for place in places], rows, own
            )
            self._give(pipeline, summed, before)
            before = places, added
        self._give(pipeline, summed, before)
        pipeline.join()

    def _give(
        self,
        pipeline: Pipeline,
        summed: torch.Tensor,
        done: tuple[list[slice], Any] | None,
    ) -> None:
        """Send the sum of this rank's share of a chunk to all, and take theirs."""
        if done is not None:
            places, added = done
            sums = [summed[place] for place in places]
            pipeline.gather(sums[self.rank], sums, after=added)

    def reduce_scatter(self, tensor: torch.Tensor, chunks: int) -> torch.Tensor:
        """Of the sum over ranks, [ranks * n, ...], the rows [n, ...] of this one."""
        given = self._by_rank(tensor.contiguous())
        rows = tensor.shape[0] // self.size
        summed = tensor.new_empty(rows, *tensor.shape[1:])
        flat = summed.view(-1)
        parts = cut(flat.numel(), chunks_of(given.nbytes, chunks))
        if parts:
            arrived = torch.empty_like(given)
            pipeline = self.begin(self.size * _largest(flat, parts))
            for part in parts:
                _scatter_and_add(
                    pipeline, list(given[:, part]), list(arrived[:, part]), flat[part]
                )
            pipeline.join()
        return summed

    def all_gather(self, tensor: torch.Tensor, chunks: int) -> torch.Tensor:
        """The ranks' tensors [n, ...] one after the other, [ranks * n, ...]."""
        flat = tensor.contiguous().view(-1)
        gathered = tensor.new_empty(self.size * tensor.shape[0], *tensor.shape[1:])
        rows = self._by_rank(gathered)
        parts = cut(flat.numel(), chunks_of(flat.nbytes, chunks))
        if parts:
            pipeline = self.begin(_largest(flat, parts))
            pipeline.main.copy(rows[self.rank], flat)
            for part in parts:
                pipeline.gather(flat[part], list(rows[:, part]))
            pipeline.join()
        return gathered

    def all_to_all(self, tensor: torch.Tensor, chunks: int) -> torch.Tensor:
        """Rows [ranks * n, ...], n for each rank; returns those that came, in order."""
        given = self._by_rank(tensor.contiguous())
        received = tensor.new_empty(tensor.shape)
        rows = self._by_rank(received)
        parts = cut(given.shape[1], chunks_of(given.nbytes, chunks))
        if parts:
            pipeline = self.begin(self.size * _largest(given[0], parts))
            pipeline.main.copy(rows[self.rank], given[self.rank])
            for part in parts:
                pipeline.scatter(list(given[:, part]), list(rows[:, part]))
            pipeline.join()
        return received

    def _by_rank(self, tensor: torch.Tensor) -> torch.Tensor:
        """A view with a row for each rank."""
        return tensor.view(self.size, tensor.numel() // self.size)


def _scatter_and_add(
    pipeline: Pipeline,
    pieces: Sequence[torch.Tensor],
    rows: list[torch.Tensor],
    into: torch.Tensor,
) -> Any:
    """Add what all ranks have of this one's piece; returns the mark of the sum."""
    main = pipeline.main
    main.follow(pipeline.scatter(pieces, rows))
    rows[pipeline.rank] = pieces[pipeline.rank]
    main.add(rows, into)
    return main.mark()


def _largest(flat: torch.Tensor, parts: Sequence[slice]) -> int:
    """Bytes that a slot needs for the largest part."""
    return padded(flat[parts[0]].nbytes)
