"""What capturing a step needs of a device: recording work and running it again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from dynaflow_dsl.runtime.streams import Streams


@dataclass(frozen=True, slots=True)
class Nodes:
    """What a graph holds: kernels, copies between memories, fills, and the rest."""

    kernels: int = 0
    copies: int = 0
    fills: int = 0
    others: int = 0

    @property
    def total(self) -> int:
        """All nodes."""
        return self.kernels + self.copies + self.fills + self.others

    def __add__(self, other: Nodes) -> Nodes:
        return Nodes(
            self.kernels + other.kernels,
            self.copies + other.copies,
            self.fills + other.fills,
            self.others + other.others,
        )


@dataclass(frozen=True, slots=True)
class Graph:
    """Recorded work: `replay()` puts all of it on the current stream."""

    replay: Callable[[], None]
    nodes: Nodes


@dataclass(slots=True)
class Watch:
    """What was seen of work while it ran.

    `peak` is the most memory that was taken at once, in bytes. `blocking` holds what
    made the host wait for the device so far: a graph cannot hold such work.
    """

    peak: int = 0
    blocking: list[str] = field(default_factory=list)


class GraphBackend(Protocol):
    """Records work on a device. Between `begin` and `end` nothing is executed.

    A recording may be ended and begun again, and each stretch is a graph of its own
    that takes its memory from one pool: memory of a value that is alive stays its own,
    other memory is used again. So graphs must be replayed one after the other.
    """

    def is_recording(self) -> bool:
        """Whether somebody, us or a caller, is recording the current stream."""

    def watch(self) -> AbstractContextManager[Watch]:
        """See what work does while it runs."""

    def session(self) -> AbstractContextManager[None]:
        """Around all stretches of one recording; cleans up after an exception."""

    def begin(self) -> None:
        """Start recording on all streams."""

    def end(self) -> Graph:
        """Stop recording, with all streams joined."""

    def without_owner(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same memory, which the result does not keep."""

    def free_bytes(self) -> int:
        """Memory that can still be taken."""

    def pool_bytes(self) -> int:
        """Memory that all graphs together keep."""

    def take_turn(self) -> None:
        """Let what is replayed next run after all that was replayed before."""


@dataclass(slots=True)
class Pools:
    """Memory of all graphs of a module; the last pool is the one in use."""

    handles: list[Any] = field(default_factory=list)


def make_graphs(
    device: torch.device, streams: Streams, pools: Pools
) -> GraphBackend | None:
    """Graphs of a device; None where steps cannot be captured."""
    if device.type != "cuda":
        return None
    # Here, since it looks for the driver's library.
    from dynaflow_dsl.runtime.cuda_graphs import CudaGraphs
    from dynaflow_dsl.runtime.cuda_streams import CudaStreams

    if not isinstance(streams, CudaStreams):
        return None
    return CudaGraphs(device, streams, pools)
