"""What an executor holds: captured sizes, memory and graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dynaflow_dsl.runtime.graphs import Nodes


class Estimate(Protocol):
    """Bytes that a step of some sizes takes at most; None where nobody knows."""

    def __call__(self, sizes: Mapping[str, int], *, unsplit: bool) -> int | None:
        """Of the step as scheduled, or without its split."""


@dataclass(frozen=True, slots=True)
class SizeReport:
    """One captured size. Numbers of memory are bytes.

    `step` is the method that was captured. `estimated` is what its first run took at
    most at once, `taken` what the pool of all graphs grew by, `outputs` what a step
    copies for its caller. `between` are parts that run as they are, between `graphs`.
    """

    sizes: str
    step: str
    estimated: int
    taken: int
    outputs: int
    nodes: Nodes
    graphs: int
    between: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Uncaptured:
    """Steps of some sizes that run as they are, and the reason.

    `asked` says that the schedule asks for these sizes to be captured.
    """

    sizes: str
    reason: str
    asked: bool

    def __str__(self) -> str:
        return f"steps of {self.sizes} are not captured: {self.reason}"


@dataclass(frozen=True, slots=True)
class FetchedMemory:
    """Weights that are fetched: bytes of them in host memory, bytes of the buffers on
    the device that they are brought to, and the number of these buffers."""

    host: int = 0
    buffers: int = 0
    count: int = 0


NOTHING_FETCHED = FetchedMemory()


@dataclass(frozen=True, slots=True)
class StepReport:
    """All captured sizes of an executor, and what it holds of weights that are fetched.

    `waiting` are sizes that no step had yet, `refused` those that run uncaptured, with
    the reason. `inputs` are the bytes of the graphs' own copies of step inputs.
    `expected` bounds the bytes that each waiting size takes, where that is known, and
    `free` is what the device has left: all sizes of a module share one pool.
    """

    name: str
    sizes: tuple[SizeReport, ...] = ()
    waiting: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    inputs: int = 0
    fetched: FetchedMemory = NOTHING_FETCHED
    expected: Mapping[str, int] = field(default_factory=dict)
    free: int = 0

    @property
    def pool(self) -> int:
        """Bytes that the graphs took from the device."""
        return sum(one.taken for one in self.sizes)

    def lines(self) -> Iterator[str]:
        """The report as text."""
        yield self.name
        if (held := self.fetched).count:
            each = "buffer" if held.count == 1 else "buffers"
            yield (
                f"  weights in host memory {held.host / 1e6:.1f} MB, fetched to "
                f"{held.count} {each} of {held.buffers / 1e6:.1f} MB in all"
            )
        for one in self.sizes:
            nodes = one.nodes
            line = (
                f"  {one.sizes}: {one.step}, {nodes.total} nodes ({nodes.kernels} "
                f"kernels, {nodes.copies} copies, {nodes.fills} fills), "
                f"{one.taken / 1e6:.1f} MB"
            )
            if one.between:
                line += f", {one.graphs} graphs around {', '.join(one.between)}"
            yield line
        if self.sizes:
            yield (
                f"  pool {self.pool / 1e6:.1f} MB, input copies "
                f"{self.inputs / 1e6:.1f} MB"
            )
        for sizes in self.waiting:
            bound = self.expected.get(sizes)
            taken = "" if bound is None else f", takes {bound / 1e6:.1f} MB at most"
            yield f"  {sizes}: not captured yet{taken}"
        if self.expected:
            most = max(self.expected.values())
            yield (
                f"  the pool they share grows to {most / 1e6:.1f} MB at most, "
                f"{self.free / 1e6:.1f} MB are free"
            )
        for sizes, reason in self.refused.items():
            yield f"  {sizes}: not captured, {reason}"
        if not (self.sizes or self.waiting or self.refused):
            yield "  nothing is captured"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def described(dimensions: Sequence[str], sizes: Sequence[int]) -> str:
    """`batch = 64, seq = 512`."""
    pairs = zip(dimensions, sizes, strict=True)
    return ", ".join(f"{name} = {size}" for name, size in pairs)
