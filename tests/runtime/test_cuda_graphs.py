"""What a recording on a CUDA device leaves behind, where the device refuses all."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import cuda_graphs
from dynaflow_dsl.runtime.cuda_graphs import CudaGraphs
from dynaflow_dsl.runtime.graphs import Pools


class BrokenGraph:
    """A graph of a device that refuses to begin and to end."""

    def __init__(self, **_: Any) -> None:
        pass

    def capture_begin(self, **_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def capture_end(self) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_a_device_that_refuses_all_leaves_stream_and_collector_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current = ["the caller's"]
    for name, stand_in in {
        "CUDAGraph": BrokenGraph,
        "Stream": lambda _: "recording",
        "current_stream": lambda _: current[-1],
        "graph_pool_handle": object,
        "set_stream": current.append,
        "synchronize": lambda _: None,
    }.items():
        monkeypatch.setattr(cuda_graphs.torch.cuda, name, stand_in)
    monkeypatch.setattr(
        torch._C, "_cuda_endAllocateToPool", lambda *_: None, raising=False
    )
    pools = Pools()
    backend = CudaGraphs(
        torch.device("cuda", 0),
        SimpleNamespace(sides=()),
        pools,  # type: ignore[arg-type]
    )
    assert gc.isenabled()
    try:
        with pytest.raises(RuntimeError, match="illegal"), backend.session():
            backend.begin()
        assert gc.isenabled()
    finally:
        gc.enable()
    assert current[-1] == "the caller's"
    # Others take their memory from a pool that this one has not spoilt.
    assert len(pools.handles) == 2
