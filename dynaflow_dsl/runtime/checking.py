"""`DFSC_CHECK=1`: every step is checked while it runs.

The proof speaks of the plan. This net catches what lies below it: a kernel that returns
another shape or writes what it should not, a module that was edited, a stream that
somebody changed, numbers that are none. Executors that were loaded without it run other
code, so that it costs them nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from dynaflow_dsl.runtime.errors import CheckError
from dynaflow_dsl.runtime.module_map import ModuleMap
from dynaflow_dsl.runtime.notes import step_now
from dynaflow_dsl.runtime.streams import Event, Stream, Streams

MAIN = "main"

Clock: TypeAlias = dict[str, int]


@dataclass(frozen=True, slots=True)
class _Access:
    """Bytes `start` to `stop` of a storage, touched by a step on a stream."""

    start: int
    stop: int
    stream: str
    time: int
    step: str
    writes: bool


@dataclass(frozen=True, slots=True)
class _Written:
    """Where a step has changed a tensor."""

    place: str
    where: torch.Tensor


@dataclass(slots=True)
class Checker:
    """What one executor's steps have done so far.

    `module_map` and `file` lead from a line of the module to one of the schedule. All
    memory that a step touches is kept until it ends, so that an address is one tensor.
    """

    file: str
    module_map: ModuleMap
    clocks: dict[str, Clock] = field(default_factory=dict)
    current: str = MAIN
    inside: bool = False
    _accesses: dict[int, list[_Access]] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)
    # Memory that the step has made for parts to write their results.
    _made: set[int] = field(default_factory=set)
    # What pieces of one part wrote in one iteration, by the tensor they were given.
    _writes: dict[tuple[object, ...], list[_Written]] = field(default_factory=dict)

    # ---- a step ----------------------------------------------------------------------

    def wrap(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """A step, or the unsplit one, with what holds for all of it checked."""

        def checked(*arguments: Any, **named: Any) -> Any:
            names = tuple(self.clocks)
            self.clocks = {name: dict.fromkeys(names, 0) for name in names}
            self.current = MAIN
            try:
                with _Joins(self):
                    result = run(*arguments, **named)
                self._end(result)
            finally:
                self._accesses.clear()
                self._kept.clear()
                self._made.clear()
                self._writes.clear()
            return result

        return checked

    def _end(self, result: Any) -> None:
        main = self.clocks[MAIN]
        for name, clock in self.clocks.items():
            if main[name] < clock[name]:
                self._refuse(
                    f"the step ends and main has not waited for the stream {name}"
                )
        for tensor in _tensors(result):
            self._touch(tensor, MAIN, "the caller", writes=False)

    # ---- streams ---------------------------------------------------------------------

    def streams(self, made: Streams) -> Streams:
        """The same streams, which note what they wait for."""
        self.clocks = {stream.name: {} for stream in made}
        main, *others = (_CheckedStream(stream, self) for stream in made)
        return _CheckedStreams(made, self, main, *others)

    def learn(self, stream: str, known: Mapping[str, int]) -> None:
        """A stream waited for an event that knew this."""
        clock = self.clocks[stream]
        for name, time in known.items():
            clock[name] = max(clock[name], time)

    # ---- parts -----------------------------------------------------------------------

    def call(
        self,
        name: str,
        layer: int,
        function: Callable[..., Any],
        text: Callable[..., Any],
    ) -> Callable[..., Any]:
        """A part's callable for one iteration, checked each time.

        `layer` is the number of its layer. `text` is the module's own function with its
        weights: what a kernel, or what was compiled, stands for.
        """
        known: dict[tuple[object, ...], _Form | None] = {}

        def checked(*arguments: Any, **named: Any) -> Any:
            place, stream = self.place(name, layer), self.current
            given = list(_tensors(arguments))
            key = tuple(map(_described, given))
            if key not in known:
                known[key] = _form(text, arguments)
            form = known[key]
            self.clocks[stream][stream] += 1
            written = form.written if form is not None else ()
            for number, tensor in enumerate(given):
                self._touch(tensor, stream, place, writes=number in written)
            before = list(map(_version, given))
            old = {number: given[number].clone() for number in written}
            self.inside = True
            try:
                result = function(*arguments)
            finally:
                self.inside = False
            if self.current != stream:
                self._refuse(f"{place} leaves the stream {stream} for {self.current}")
            after = list(map(_version, given))
            changed = {n for n, now in enumerate(after) if now != before[n]}
            if form is not None:
                self._same(place, form, given, list(_tensors(result)), changed)
            for number, values in old.items():
                self._apart((name, id(checked)), place, given[number], values)
            own = list(_tensors(result))
            for tensor in own:
                self._touch(tensor, stream, place, writes=True, fresh=True)
            own += [given[n] for n in sorted(written) if self._is_made(given[n])]
            for number, tensor in enumerate(own):
                self._finite(place, number, tensor)
            return result

        return checked

    def joined(self, pieces: Sequence[torch.Tensor], result: torch.Tensor) -> None:
        """Pieces were put together by the step itself."""
        place, stream = self.place("joining pieces"), self.current
        self.clocks[stream][stream] += 1
        for piece in pieces:
            self._touch(piece, stream, place, writes=False)
        self._touch(result, stream, place, writes=True, fresh=True)

    def empty(self, made: torch.Tensor) -> None:
        """The step itself made a tensor for parts to write."""
        place, stream = self.place("making room"), self.current
        self.clocks[stream][stream] += 1
        self._made.add(made.untyped_storage().data_ptr())
        self._touch(made, stream, place, writes=True, fresh=True)

    def _is_made(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._made

    def _touch(
        self,
        tensor: torch.Tensor,
        stream: str,
        step: str,
        *,
        writes: bool,
        fresh: bool = False,
    ) -> None:
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if key == 0 or tensor.numel() == 0:
            return
        start, stop = _extent(tensor)
        clock = self.clocks[stream]
        found = self._accesses.setdefault(key, [])
        for other in found:
            conflict = other.writes or writes
            apart = other.stop <= start or stop <= other.start
            if not conflict or apart:
                continue
            if clock.get(other.stream, 0) < other.time:
                word = "writes" if writes else "reads"
                did = "writes" if other.writes else "reads"
                self._refuse(
                    f"{step} {word} memory at {key:#x} on {stream}, and {other.step} "
                    f"{did} it on {other.stream}, for which {stream} has not waited"
                )
        time = clock.get(stream, 0)
        found.append(_Access(start, stop, stream, time, step, writes))
        if fresh or len(found) == 1:
            self._kept.append(storage)

    def _same(
        self,
        place: str,
        form: _Form,
        given: Sequence[torch.Tensor],
        made: Sequence[torch.Tensor],
        changed: set[int],
    ) -> None:
        """Whether a part did to its tensors what its own text does."""
        results = _results(made, given)
        if results != form.results:
            self._refuse(
                f"{place} returns {_listed(results)}, and the part's own text "
                f"{_listed(form.results)}"
            )
        # What was compiled may write without counting it.
        allowed = {given[k].untyped_storage()._cdata for k in form.written}
        for number in sorted(changed - form.written):
            # Views of one tensor count together.
            if given[number].untyped_storage()._cdata not in allowed:
                self._refuse(
                    f"{place} writes its tensor {number}, and the part's own text "
                    "does not"
                )

    def _apart(
        self, owner: tuple[str, int], place: str, tensor: torch.Tensor, old: Any
    ) -> None:
        """Whether no other piece of the part wrote what this one has written.

        Pieces that share a tensor keep apart in it: the target says so (`disjoint`).
        """
        same = (tensor == old) | ((tensor != tensor) & (old != old))
        # All of what was made for it is written, whatever happened to lie there.
        where = torch.ones_like(same) if self._is_made(tensor) else ~same
        written = _Written(place, where)
        view = tensor.data_ptr(), tensor.shape, tensor.stride()
        others = self._writes.setdefault((*owner, *view), [])
        for other in others:
            if other.place != place and bool((other.where & written.where).any()):
                self._refuse(
                    f"{place} writes places that {other.place} has written in a tensor "
                    "that pieces share: its rows do not keep apart, as 'disjoint' of "
                    "the target says"
                )
        others.append(written)

    def _finite(self, place: str, number: int, tensor: torch.Tensor) -> None:
        if not tensor.is_floating_point() or tensor.numel() == 0:
            return
        # Masks hold minus infinity; nothing else does.
        if bool(torch.isnan(tensor).any()) or bool((tensor == float("inf")).any()):
            what = "not a number" if bool(torch.isnan(tensor).any()) else "infinite"
            self._refuse(f"result {number} of {place} has a value that is {what}")

    # ---- words -----------------------------------------------------------------------

    def place(self, name: str, layer: int | None = None) -> str:
        """The step that the module is in: `attn[0], layer 2 (halves.dfs:16:13)`."""
        return step_now(self.file, self.module_map, name, layer)

    def _refuse(self, message: str) -> None:
        raise CheckError("DFS810", f"{message}.")


class _CheckedStream:
    """A stream that tells the checker what it waits for."""

    def __init__(self, stream: Stream, checker: Checker) -> None:
        self.stream = stream
        self.name = stream.name
        self._checker = checker
        self._outer: list[str] = []

    def __enter__(self) -> object:
        self._outer.append(self._checker.current)
        self._checker.current = self.name
        return self.stream.__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._checker.current = self._outer.pop()
        self.stream.__exit__(kind, error, traceback)

    def record(self) -> Event:
        return self.stream.record(), dict(self._checker.clocks[self.name])

    def wait(self, event: Event) -> None:
        real, known = event
        self.stream.wait(real)
        self._checker.learn(self.name, known)


class _CheckedStreams(Streams):
    """Streams of a checked executor; what they do all together is the device's."""

    def __init__(self, made: Streams, checker: Checker, *streams: Stream) -> None:
        super().__init__(*streams)
        self._made = made
        self._checker = checker

    def join(self) -> None:
        self._made.join()
        names = [stream.name for stream in self._made]
        for name in names[1:]:
            self._checker.learn(MAIN, self._checker.clocks[name])
        for name in names[1:]:
            self._checker.learn(name, self._checker.clocks[MAIN])

    def take_turn(self) -> None:
        """That of the device: steps of others use the same buffers."""
        self._made.take_turn()

    def abandon(self) -> None:
        """That of the device."""
        self._made.abandon()


class _Joins(TorchFunctionMode):
    """Sees the tensors that the module's own text makes, of pieces or for them."""

    def __init__(self, checker: Checker) -> None:
        super().__init__()
        self._checker = checker

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.cat and not self._checker.inside:
            self._checker.joined(list(_tensors(args[0])), result)
        if func is torch.empty and not self._checker.inside:
            self._checker.empty(result)
        return result


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte of a tensor in its storage, and the one behind its last."""
    size = tensor.element_size()
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((int(length) - 1) * int(stride) for length, stride in pairs)
    start = int(tensor.storage_offset()) * size
    return start, start + (last + 1) * size


@dataclass(frozen=True, slots=True)
class _Form:
    """What a part's text makes of its tensors: for each result its shape, dtype and the
    tensor whose memory it shares, and the tensors that it writes."""

    results: tuple[_Result, ...]
    written: frozenset[int]


_Result: TypeAlias = tuple[tuple[int, ...], torch.dtype, int | None]


def _form(text: Callable[..., Any], arguments: tuple[Any, ...]) -> _Form | None:
    """Found without computing anything; None where fake tensors are not enough."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        given = tuple(_faked(value, mode) for value in arguments)
        tensors = list(_tensors(given))
        before = list(map(_version, tensors))
        try:
            made = list(_tensors(text(*given)))
        except (RuntimeError, NotImplementedError):
            return None
        after = list(map(_version, tensors))
        written = frozenset(n for n, now in enumerate(after) if now != before[n])
        return _Form(_results(made, tensors), written)


def _faked(value: Any, mode: FakeTensorMode) -> Any:
    if isinstance(value, torch.Tensor):
        # By its size alone: the memory that views share is no matter of the part.
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )
    if isinstance(value, tuple | list):
        return type(value)(_faked(one, mode) for one in value)
    return value


def _results(
    made: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
) -> tuple[_Result, ...]:
    owners: dict[int, int] = {}
    for number, tensor in enumerate(given):
        owners.setdefault(tensor.untyped_storage()._cdata, number)
    return tuple(
        (tuple(one.shape), one.dtype, owners.get(one.untyped_storage()._cdata))
        for one in made
    )


def _version(tensor: torch.Tensor) -> int:
    """How often a tensor was written; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


def _described(tensor: torch.Tensor) -> object:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def _listed(results: Sequence[_Result]) -> str:
    shown = []
    for shape, dtype, owner in results:
        sizes = ", ".join(map(str, shape))
        memory = f" in the memory of its tensor {owner}" if owner is not None else ""
        shown.append(f"{str(dtype).removeprefix('torch.')}[{sizes}]{memory}")
    return ", ".join(shown) or "nothing"
