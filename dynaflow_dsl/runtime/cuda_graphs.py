"""CUDA graphs of a whole step, and every semi-private call that they need."""

from __future__ import annotations

import ctypes
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from dynaflow_dsl.runtime.collector import no_collections
from dynaflow_dsl.runtime.cuda_streams import CudaStreams, take_turn
from dynaflow_dsl.runtime.driver import driver
from dynaflow_dsl.runtime.graphs import Graph, Nodes, Pools, Watch

# Kinds of nodes in the driver's numbering (CUgraphNodeType).
_KERNEL, _COPY, _FILL = 0, 1, 2

_SYNCHRONIZING = "called a synchronizing CUDA operation"


class CudaGraphs:
    """Records steps of one executor into graphs that share `pools` with others.

    All replays of a device run one after the other (see `take_turn`), so that graphs
    may use the same memory.
    """

    def __init__(
        self, device: torch.device, streams: CudaStreams, pools: Pools
    ) -> None:
        assert device.index is not None
        self._device = device
        self._index: int = device.index
        self._sides = [stream.stream for stream in streams.sides]
        # A failed capture leaves its pool unusable for others.
        self._pools = pools.handles
        if not self._pools:
            self._pools.append(torch.cuda.graph_pool_handle())
        # Made when something is first recorded.
        self._stream: torch.cuda.Stream | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inside: Any = None

    def is_recording(self) -> bool:
        """Whether the current stream is being captured."""
        return torch.cuda.is_current_stream_capturing()

    @contextmanager
    def watch(self) -> Iterator[Watch]:
        """Count memory and find operations that wait for the device.

        Resets the peak of PyTorch's memory statistics.
        """
        seen = Watch()
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.reset_peak_memory_stats(self._device)
        start = torch.cuda.memory_allocated(self._device)
        shown = warnings.showwarning

        def note(message: Any, category: Any, *rest: Any, **named: Any) -> None:
            if _SYNCHRONIZING in str(message):
                seen.blocking.append(_SYNCHRONIZING)
            else:
                shown(message, category, *rest, **named)

        with warnings.catch_warnings():
            warnings.filterwarnings("always", f".*{_SYNCHRONIZING}.*")
            warnings.showwarning = note
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield seen
            finally:
                torch.cuda.set_sync_debug_mode(before)
        seen.peak = torch.cuda.max_memory_allocated(self._device) - start

    @contextmanager
    def session(self) -> Iterator[None]:
        """Keep Python's collector, which may free graphs, from running meanwhile."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._index)  # type: ignore[no-untyped-call]
        before = torch.cuda.current_stream(self._device)
        self._inside = self._stream
        # What runs on other streams must not be waited for inside.
        torch.cuda.synchronize(self._device)
        with no_collections():
            try:
                yield
            finally:
                try:
                    if self._graph is not None:
                        self._abandon()
                finally:  # a device that is broken refuses to be mended, too
                    torch.cuda.set_stream(before)

    def begin(self) -> None:
        """Start a stretch; every side stream follows main from here."""
        assert self._stream is not None
        torch.cuda.set_stream(self._stream)
        self._graph = torch.cuda.CUDAGraph(keep_graph=True)
        self._graph.capture_begin(
            pool=self._pools[-1], capture_error_mode="thread_local"
        )
        start = self._stream.record_event()
        for side in self._sides:
            side.wait_event(start)
        torch.cuda.set_stream(self._inside)

    def end(self) -> Graph:
        """End a stretch; the stream that was current is so again after `begin`."""
        assert self._graph is not None
        assert self._stream is not None
        self._inside = torch.cuda.current_stream(self._device)
        torch.cuda.set_stream(self._stream)
        for side in self._sides:
            self._stream.wait_event(side.record_event())
        with warnings.catch_warnings():
            # What lies between two parts that run by themselves may be nothing.
            warnings.filterwarnings("ignore", ".*CUDA Graph is empty.*")
            self._graph.capture_end()
        graph, self._graph = self._graph, None
        nodes = _count_nodes(graph.raw_cuda_graph())
        graph.instantiate()
        return Graph(graph.replay, nodes)

    def _abandon(self) -> None:
        """End a capture in which something failed."""
        assert self._stream is not None
        graph, self._graph = self._graph, None
        assert graph is not None
        torch.cuda.set_stream(self._stream)
        try:
            abandon(graph, self._index, self._pools[-1])
        finally:
            self._pools.append(torch.cuda.graph_pool_handle())

    def without_owner(self, tensor: torch.Tensor) -> torch.Tensor:
        """An alias that leaves the memory to the pool."""
        storage = tensor.untyped_storage()
        alias = torch._C._construct_storage_from_data_pointer(
            storage.data_ptr(), tensor.device, storage.nbytes()
        )
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            alias, tensor.storage_offset(), tensor.shape, tensor.stride()
        )

    def free_bytes(self) -> int:
        """Memory of the device that is free, and what PyTorch keeps unused."""
        free, _ = torch.cuda.mem_get_info(self._device)
        kept = torch.cuda.memory_reserved(self._device)
        return int(free + kept - torch.cuda.memory_allocated(self._device))

    def pool_bytes(self) -> int:
        """What the allocator holds for the pools, by its own account."""
        pools = {tuple(pool) for pool in self._pools}
        return sum(
            segment["total_size"]
            for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
            if segment["device"] == self._index
            and tuple(segment["segment_pool_id"]) in pools
        )

    def take_turn(self) -> None:
        """Let the current stream wait for the one that replayed last, if another."""
        take_turn(self._index)


def abandon(graph: torch.cuda.CUDAGraph, index: int, pool: Any) -> None:
    """End a capture in which something failed, and mend what that leaves behind.

    PyTorch ends a failed capture with an exception before it has told its random
    generators and its allocator; the next capture that succeeds tells the former. The
    current stream is that of the capture, and `index` is its device's. The pool is
    unusable for others.
    """
    try:
        graph.capture_end()
    except RuntimeError:
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(index, pool)
    mended = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is empty, which PyTorch warns of
        mended.capture_begin(capture_error_mode="thread_local")
        mended.capture_end()


def _count_nodes(graph: int) -> Nodes:
    """Nodes of a `cudaGraph_t` by kind."""
    cuda, handle = driver(), ctypes.c_void_p(graph)
    count = ctypes.c_size_t()
    _check(cuda.cuGraphGetNodes(handle, None, ctypes.byref(count)))
    nodes = (ctypes.c_void_p * count.value)()
    _check(cuda.cuGraphGetNodes(handle, nodes, ctypes.byref(count)))
    kinds: Counter[int] = Counter()
    for node in nodes:
        kind = ctypes.c_int()
        _check(cuda.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)))
        kinds[kind.value] += 1
    known = kinds[_KERNEL], kinds[_COPY], kinds[_FILL]
    return Nodes(*known, others=kinds.total() - sum(known))


def _check(result: int) -> None:
    if result != 0:
        raise RuntimeError(f"the CUDA driver cannot describe a graph (error {result})")
