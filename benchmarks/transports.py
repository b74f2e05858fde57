"""All-reduces by copy engine beside those of NCCL, alone and next to matrix products.

    NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 2 -m benchmarks.transports -o FILE.json

Without NCCL_P2P_DISABLE GPUs use each other's memory where they reach it. Each way is
one CUDA graph of several calls. `beside products` has matrix products on another stream
that would take about as long as the copied calls alone. All ways run in alternating
rounds, and a round counts with the time of the slowest rank.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from dynaflow_dsl.kernels import copied, transports
from dynaflow_dsl.measurement import machine
from dynaflow_dsl.runtime import bind_group

CALLS = 8
WIDTH = 4096


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of some work, which has run before."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            work()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph


def slowest(milliseconds: float, device: torch.device) -> float:
    """The time of the rank that took longest."""
    one = torch.tensor([milliseconds], device=device)
    dist.all_reduce(one, dist.ReduceOp.MAX)
    return one.item()


def timed(graph: torch.cuda.CUDAGraph, device: torch.device) -> float:
    """Milliseconds of one replay, of the slowest rank."""
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    dist.barrier()
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return slowest(start.elapsed_time(end), device)


def beside(
    reduce: Callable[[torch.Tensor], object],
    tensor: torch.Tensor,
    products: Callable[[], object],
) -> Callable[[], None]:
    """All-reduces on a stream of their own while products run."""
    side = torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]

    def work() -> None:
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            for _ in range(CALLS):
                reduce(tensor)
        products()
        main.wait_stream(side)

    return work


def measure(rows: int, rounds: int, device: torch.device) -> dict[str, Any]:
    """Times for tensors of so many rows, bfloat16 [rows, 4096]."""
    tensor = torch.randn(rows, WIDTH, device=device, dtype=torch.bfloat16)
    weight = torch.randn(WIDTH, WIDTH, device=device, dtype=torch.bfloat16)
    ways: dict[str, Callable[[torch.Tensor], object]] = {
        "nccl": lambda one: copied.reduced(one, "tp"),
        "copied": lambda one: copied.copied_all_reduce(tensor=one, group="tp"),
    }
    graphs = {
        name: captured(lambda way=way: [way(tensor) for _ in range(CALLS)])  # type: ignore[misc]
        for name, way in ways.items()
    }
    one_product = captured(lambda: torch.mm(tensor, weight))
    each = median(timed(one_product, device) for _ in range(rounds))
    alone = median(timed(graphs["copied"], device) for _ in range(rounds))
    count = max(1, round(alone / each))

    def products() -> None:
        for _ in range(count):
            torch.mm(tensor, weight)

    graphs["products"] = captured(products)
    for name, way in ways.items():
        graphs[f"{name} beside products"] = captured(beside(way, tensor, products))
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            times[name].append(round(timed(graph, device), 4))
    return {
        "megabytes": round(tensor.nbytes / 1e6, 2),
        "calls": CALLS,
        "products": count,
        "milliseconds": times,
    }


def main(words: Sequence[str] | None = None) -> None:
    """Measure on all ranks; the first prints medians, and writes the JSON if asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transports",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 512, 2048, 8192])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE.json")
    options = parser.parse_args(words)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=timedelta(seconds=60), device_id=device)
    everybody = dist.group.WORLD
    assert everybody is not None
    bind_group("tp", everybody)
    with torch.inference_mode():
        sizes = [measure(rows, options.rounds, device) for rows in options.rows]
        found = transports.transport_of("tp", torch.empty(1, device=device))
    if dist.get_rank() == 0:
        result = {
            "machine": machine.describe("cuda"),
            "ranks": dist.get_world_size(),
            "transport": type(found).__name__,
            "sizes": sizes,
        }
        for one in sizes:
            medians = {k: median(v) for k, v in one["milliseconds"].items()}
            print(one["megabytes"], "MB,", result["transport"], medians)
        if options.output is not None:
            text = json.dumps(result, indent=2) + "\n"
            options.output.write_text(text, encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
