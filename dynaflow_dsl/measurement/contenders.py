"""The ways to run one step that a schedule is measured beside."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_leaves, tree_map

from dynaflow_dsl.measurement import all_gather
from dynaflow_dsl.measurement.all_to_all import AllToAll, exchanged_by
from dynaflow_dsl.runtime.cuda_graphs import abandon
from dynaflow_dsl.runtime.executor import Executor

Call: TypeAlias = Callable[[], Any]
Load: TypeAlias = Callable[..., Executor]
Backend: TypeAlias = Callable[..., Callable[..., Any]]

# For every device, and for those that capture. The results of all are held against
# those of the first.
EVERYWHERE = ("eager", "torch.compile", "sequential", "scheduled")
ON_CUDA = (
    "eager",
    "torch.compile",
    "reduce-overhead",
    "torch.compile, captured",
    "max-autotune, captured",
    "torch.compile, captured, copying",
    "sequential",
    "scheduled",
    "scheduled, copying",
)
# For steps whose tokens travel between ranks, to their experts and back.
EXCHANGES = ("all-to-all, captured", "all-gather, captured")
# What the others are related to, where they ran.
REFERENCES = ("torch.compile", "torch.compile, captured", *EXCHANGES)
# These hold the whole model as it is.
_CAPTURING = frozenset(
    {
        "reduce-overhead",
        "torch.compile, captured",
        "max-autotune, captured",
        "torch.compile, captured, copying",
    }
)
_WARM_UPS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One step of a model, and how its module is loaded.

    `adapted` makes the module that `arguments` are for; `load` gives the executor.
    `in_place` are the positions of arguments that come again in every step, such as a
    cache. `phases` are the rows of each phase, where the entry has phases.
    """

    adapted: Callable[[], torch.nn.Module]
    load: Load
    arguments: Sequence[Any]
    in_place: Sequence[int]
    device: torch.device
    phases: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """What decides who can run a step.

    `waits` says that operations of the model wait for the device, so that no graph can
    hold it as it is; `exchanges` that ranks exchange tokens in it.
    """

    device: torch.device
    waits: bool = False
    exchanges: bool = False


def known_for(kind: Kind) -> tuple[str, ...]:
    """The contenders that may be asked for."""
    if kind.device.type != "cuda":
        return EVERYWHERE
    return (*ON_CUDA, *EXCHANGES) if kind.exchanges else ON_CUDA


def names_for(kind: Kind) -> tuple[str, ...]:
    """Those that are measured where nobody asks for some: all that can run."""
    known = known_for(kind)
    return tuple(n for n in known if not (kind.waits and n in _CAPTURING))


def make(case: Case, name: str) -> Call:
    """A call that runs one step; raises ValueError for an unknown name.

    Those that are captured, by hand or by an executor, read their inputs where they lie
    and lend the graph's own outputs. "Copying" ones copy both, as an executor does by
    default.
    """
    match name:
        case "eager":
            return _call(case.adapted(), case.arguments)
        case "torch.compile":
            return _call(_compiled(case, None), case.arguments)
        case "reduce-overhead":
            for position in case.in_place:
                for tensor in tree_leaves(case.arguments[position]):
                    torch._dynamo.mark_static_address(tensor)
            return _call(_compiled(case, name), case.arguments)
        case "torch.compile, captured":
            return _captured(_call(_compiled(case, None), case.arguments))
        case "max-autotune, captured":
            mode = "max-autotune-no-cudagraphs"
            return _captured(_call(_compiled(case, mode), case.arguments))
        case "torch.compile, captured, copying":
            return _copying(case, _compiled(case, None))
        case "all-to-all, captured":
            return _all_to_all(case)
        case "all-gather, captured":
            step = _compiled(case, None, all_gather.inductor)
            return _captured(_call(step, case.arguments))
        case "sequential":
            return _lent(_sequential(case.load), case)
        case "scheduled":
            return _lent(case.load(outputs="lent"), case)
        case "scheduled, copying":
            return _scheduled(case.load(), case, case.arguments)
    raise ValueError(f"no contender is named {name}")


def _compiled(
    case: Case, mode: str | None, backend: str | Backend = "inductor"
) -> Callable[..., Any]:
    """The whole model by `torch.compile`, for the sizes at hand."""
    step: Callable[..., Any] = torch.compile(
        case.adapted(), dynamic=False, mode=mode, backend=backend
    )
    return step


def _sequential(load: Load) -> Executor:
    # Read once, when a module is loaded.
    before = os.environ.get("DFSC_SEQUENTIAL")
    os.environ["DFSC_SEQUENTIAL"] = "1"
    try:
        return load(outputs="lent")
    finally:
        if before is None:
            del os.environ["DFSC_SEQUENTIAL"]
        else:
            os.environ["DFSC_SEQUENTIAL"] = before


def _told(executor: Executor, case: Case) -> Callable[..., Any]:
    """The executor with what it has to be told of a step beside its inputs."""
    if case.phases is None:
        return executor
    return partial(executor, phases=case.phases)


def _call(step: Callable[..., Any], arguments: Sequence[Any]) -> Call:
    def call() -> Any:
        with torch.no_grad():
            return step(*arguments)

    return call


def _all_to_all(case: Case) -> Call:
    """The whole model, with the counts that its own first step had."""
    exchange = AllToAll()
    call = _call(_compiled(case, None), case.arguments)
    with exchanged_by(exchange, case.device):
        call()
        exchange.repeat()
        return _captured(call, exchange)


@dataclass(frozen=True, slots=True)
class _Replay:
    """A step in one CUDA graph.

    `kept` is whatever owns memory that the graph reads and not the model.
    """

    graph: torch.cuda.CUDAGraph
    outputs: Any
    kept: tuple[object, ...]

    def __call__(self) -> Any:
        self.graph.replay()
        return self.outputs


def _captured(call: Call, *kept: object) -> Call:
    """A step in one CUDA graph; what cannot be captured raises RuntimeError.

    A step that waits for the device is found before anything is captured.
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UPS):
            call()
        with _waits_refused():
            call()
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        # Threads of NCCL, and our watch, ask for their events meanwhile.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        # Graphs that nobody holds any more must not be destroyed meanwhile.
        collecting = gc.isenabled()
        gc.disable()
        try:
            outputs = call()
            graph.capture_end()
        except BaseException:
            abandon(graph, torch.cuda.current_device(), pool)
            raise
        finally:
            if collecting:
                gc.enable()
    torch.cuda.current_stream().wait_stream(side)
    return _Replay(graph, outputs, (call, *kept))


@contextmanager
def _waits_refused() -> Iterator[None]:
    """Have what waits for the device raise RuntimeError."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _lent(step: Executor, case: Case) -> Call:
    """A step whose inputs lie in the memory that its graph reads."""
    given = step.arrange(tuple(case.arguments), {})
    sizes: dict[str, Any] = dict(step.sizes_of(given, case.phases))
    buffers = step.buffers(**sizes)
    arguments = []
    for name, one in zip(step.inputs, given, strict=True):
        own = buffers.get(name, one)
        for target, source in zip(tree_leaves(own), tree_leaves(one), strict=True):
            if target is not source:
                target.copy_(source)
        arguments.append(own)
    return _scheduled(step, case, arguments)


@dataclass(frozen=True, slots=True)
class ScheduledCall:
    """A step of an executor; `sizes` are those of its dimensions and phases."""

    step: Callable[..., Any]
    arguments: Sequence[Any]
    executor: Executor
    sizes: Mapping[str, int]

    def __call__(self) -> Any:
        """Run it."""
        with torch.no_grad():
            return self.step(*self.arguments)


def _scheduled(executor: Executor, case: Case, arguments: Sequence[Any]) -> Call:
    sizes = executor.sizes_of(tuple(arguments), case.phases)
    return ScheduledCall(_told(executor, case), arguments, executor, sizes)


class NotCaptured(Exception):
    """A step that should be captured runs as it is, which is another measurement."""


def why_uncaptured(call: Call, device: torch.device) -> str:
    """Why a contender that has run replays no graph, where others like it may.

    Empty where it does, and for those that nobody takes for captured. Raises
    NotCaptured where its schedule asks for a graph that could not be made.
    """
    if not isinstance(call, ScheduledCall):
        return ""
    found = call.executor.uncaptured(call.sizes)
    if found is None:
        captures = call.executor.replays is not None
        return "" if captures or device.type != "cuda" else "it captures no step"
    if found.asked:
        raise NotCaptured(str(found))
    return str(found)


def _copying(case: Case, step: Callable[..., Any]) -> Call:
    """A captured step whose inputs lie elsewhere each time, and whose outputs stay."""
    own = [
        given if position in case.in_place else tree_map(lambda one: one.clone(), given)
        for position, given in enumerate(case.arguments)
    ]
    replay = _captured(_call(step, own))
    pairs = [
        (target, source)
        for target, source in zip(
            tree_leaves(own), tree_leaves(case.arguments), strict=True
        )
        if target is not source
    ]

    def call() -> Any:
        for target, source in pairs:
            target.copy_(source)
        return tree_map(lambda one: one.clone(), replay())

    return call


def largest_difference(given: Any, expected: Any) -> float:
    """Largest difference of two results over the largest magnitude of the second.

    Of the numbers among them: infinite where one of them is none, or infinite, in a
    place and the other is something else.
    """
    worst = 0.0
    pairs = zip(tree_leaves(given), tree_leaves(expected), strict=True)
    for one, other in pairs:
        if isinstance(other, torch.Tensor) and other.is_floating_point():
            made, right = one.double(), other.double()
            numbers = right.isfinite()
            others = made[~numbers], right[~numbers]
            alike = torch.allclose(*others, equal_nan=True)
            if not (alike and made[numbers].isfinite().all()):
                return inf
            if numbers.any():
                apart = (made - right)[numbers].abs().max().item()
                worst = max(
                    worst, apart / max(right[numbers].abs().max().item(), 1e-30)
                )
    return worst
