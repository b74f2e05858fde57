"""Streams of the CPU on which collectives are under way while the host goes on.

Work on a CPU runs where it is called, but for collectives. A part that has some and
runs on a stream beside main is handed to a thread of this stream, and what it returns
is filled there; whoever waits for an event of the stream waits for the thread. These
are the waits that the plan has put before the first reader, and the join. So a
collective starts at its place in the schedule and is awaited at another, as on a CUDA
device, and what the part does before and after it is under way as well.

Parts of one stream run in order. Two streams have no order but that of their waits,
which is why no two of them use one communicator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from dynaflow_dsl.runtime.stream_names import name_thread
from dynaflow_dsl.runtime.streams import Call, CallingThread, Failed, Streams


class UnderWay:
    """A call of a part that a thread runs, and that nobody has waited for yet."""

    __slots__ = ("_done", "_error", "_failed", "_work")

    def __init__(self, work: Callable[[], None], failed: Failed) -> None:
        self._work: Callable[[], None] | None = work
        self._failed = failed
        self._error: Exception | None = None
        self._done = threading.Event()

    @property
    def settled(self) -> bool:
        """Whether nobody needs to wait for it: it has ended, and well."""
        return self._done.is_set() and self._error is None

    def run(self) -> None:
        """Do the work, in the stream's thread."""
        assert self._work is not None
        try:
            self._work()
        except Exception as error:  # raised where it is awaited
            self._error = error
        finally:
            # The tensors that it read are the plan's to free.
            self._work = None
            self._done.set()

    def finish(self) -> None:
        """Let the host wait for it. Raises what the part has raised."""
        self._done.wait()
        if self._error is not None:
            raise self._failed(self._error) from self._error


@dataclass(slots=True)
class _Worker:
    """The thread of all streams of one name in this process."""

    name: str
    waiting: SimpleQueue[UnderWay] = field(default_factory=SimpleQueue)
    thread: threading.Thread | None = None

    def give(self, one: UnderWay) -> None:
        """Run it after all that was given before."""
        self.waiting.put(one)
        if self.thread is None:
            # One that hangs in a collective must not keep the process alive.
            self.thread = threading.Thread(
                target=self._run, name=f"stream {self.name}", daemon=True
            )
            self.thread.start()

    def _run(self) -> None:
        name_thread(self.name)
        while True:
            self.waiting.get().run()


_WORKERS: dict[str, _Worker] = {}


class Queue:
    """A stream beside main, whose collectives are under way until they are awaited."""

    def __init__(self, name: str, streams: CpuQueues) -> None:
        self.name = name
        self._streams = streams
        self._worker = _WORKERS.setdefault(name, _Worker(name))
        self._under_way: list[UnderWay] = []
        self._in_order: _InOrder | None = None
        self._broken = threading.Event()
        self._name_before = ""

    def __enter__(self) -> None:
        self._streams.current = self
        self._name_before = name_thread(self.name)
        # What is no call of a part, as joining pieces is, may read what is under way.
        if self._under_way:
            self._in_order = _InOrder(self)
            self._in_order.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._streams.current = None
        name_thread(self._name_before)
        self.leave_order()

    def record(self) -> Sequence[UnderWay]:
        """What has to end for all work so far on this stream to be done."""
        self._under_way = [one for one in self._under_way if not one.settled]
        return tuple(self._under_way)

    def wait(self, event: Sequence[UnderWay] | None) -> None:
        """Wait for what `event` stands for: work of the host may come next."""
        finish(event)

    def finish(self) -> None:
        """Wait for all that is under way."""
        found, self._under_way = self._under_way, []
        finish(found)

    def abandon(self) -> None:
        """Leave alone what is under way: its step has failed."""
        self._broken.set()
        self._broken = threading.Event()
        self._under_way = []
        self.leave_order()

    def run(self, call: Call, arguments: tuple[Any, ...]) -> Any:
        """Call a part on the host: it follows all that is under way here."""
        self.leave_order()
        self.finish()
        return call(*arguments)

    def start(
        self, call: Call, arguments: tuple[Any, ...], made: Made, failed: Failed
    ) -> Any:
        """Hand a part to the stream's thread; what it returns is filled there."""
        self.leave_order()
        inference = torch.is_inference_mode_enabled()
        promised = [one.empty() for one in made.tensors]
        broken = self._broken

        def work() -> None:
            if broken.is_set():
                return
            with torch.inference_mode(inference), torch.no_grad():
                try:
                    given = _listed(call(*arguments))
                    for target, source in zip(promised, given, strict=True):
                        target.copy_(source)
                except Exception:
                    # What follows on this stream reads what is not there.
                    broken.set()
                    raise

        one = UnderWay(work, failed)
        self._under_way.append(one)
        self._worker.give(one)
        return promised[0] if made.alone else tuple(promised)

    def leave_order(self) -> None:
        """A part is called: from here on the stream itself keeps the order."""
        mode, self._in_order = self._in_order, None
        if mode is not None:
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]


class Host(CallingThread):
    """`main` on the CPU: the calling thread, which waits for threads of streams."""

    __slots__ = ()

    def wait(self, event: Sequence[UnderWay] | None) -> None:
        """Wait for what `event` stands for; other work is done when it is called."""
        finish(event)


class CpuQueues(Streams):
    """Streams of the CPU; `current` is the one beside main that is being called on."""

    def __init__(self, names: Sequence[str]) -> None:
        self.current: Queue | None = None
        self._queues = [Queue(name, self) for name in names]
        super().__init__(Host("main"), *self._queues)

    def join(self) -> None:
        """Wait for what is under way; all other work is done already."""
        for queue in self._queues:
            queue.finish()

    def abandon(self) -> None:
        """Leave alone what is under way: the step has failed."""
        self.current = None
        for queue in self._queues:
            queue.abandon()

    def led(self, call: Call, text: Call, started: Callable[[], Failed] | None) -> Call:
        """`call` in the order of its stream; `started` where it has collectives.

        `text` is the part's own function with its weights, and takes what `call` does.
        """
        known: dict[tuple[object, ...], Made | None] = {}

        def part(*arguments: Any) -> Any:
            if (queue := self.current) is None:
                return call(*arguments)
            if started is None:
                return queue.run(call, arguments)
            queue.leave_order()
            key = tuple(map(_described, arguments))
            if key not in known:
                known[key] = what_is_made(text, arguments)
            if (made := known[key]) is None:
                return queue.run(call, arguments)
            return queue.start(call, arguments, made, started())

        return part


def finish(event: Sequence[UnderWay] | None) -> None:
    """Wait for what an event stands for; None is one of the host, which is done."""
    for one in event or ():
        one.finish()


@dataclass(frozen=True, slots=True)
class _Layout:
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def empty(self) -> torch.Tensor:
        return torch.empty_strided(
            self.shape, self.strides, dtype=self.dtype, device=self.device
        )


@dataclass(frozen=True, slots=True)
class Made:
    """What a part returns: the layouts of its tensors, and whether one stands alone."""

    tensors: tuple[_Layout, ...]
    alone: bool


def what_is_made(text: Call, arguments: tuple[Any, ...]) -> Made | None:
    """What a part returns for such arguments, found without computing anything.

    None where fake tensors cannot tell, and where a result is memory of an argument or
    of another result: a tensor that is filled later would not be.
    """
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        given = tuple(map(_faked, arguments))
        try:
            returned = text(*given)
        except Exception:  # it runs, and says so, when it is called
            return None
    results = _listed(returned)
    memory = [one.untyped_storage()._cdata for one in _tensors((*given, *results))]
    if len(set(memory[-len(results) :])) < len(results):
        return None
    if results and set(memory[-len(results) :]) & set(memory[: -len(results)]):
        return None
    return Made(
        tuple(
            _Layout(
                tuple(map(int, one.shape)),
                tuple(map(int, one.stride())),
                one.dtype,
                one.device,
            )
            for one in results
        ),
        isinstance(returned, torch.Tensor),
    )


# What the text of a step calls and reads no element with: pieces, and memory for them.
_READS_NOTHING = (torch.Tensor.__getitem__, torch.empty, torch.permute)


class _InOrder(TorchFunctionMode):
    """Waits for what is under way on a queue before anything reads on it."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func not in _READS_NOTHING:
            self._queue.finish()
        return func(*args, **(kwargs or {}))


def _listed(returned: Any) -> list[torch.Tensor]:
    if isinstance(returned, torch.Tensor):
        return [returned]
    return list(returned or ())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)


def _faked(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )
    if isinstance(value, tuple | list):
        return type(value)(map(_faked, value))
    return value


def _described(value: Any) -> object:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype
    if isinstance(value, tuple | list):
        return tuple(map(_described, value))
    return value
