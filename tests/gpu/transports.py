"""Every kernel that ships against its reference over NCCL, on all ranks of a machine.

`torchrun --nproc-per-node 2 tests/gpu/transports.py`, alone or by `test_transports.py`.
With NCCL_P2P_DISABLE=1 in the environment data goes through memory of the host.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.testing import assert_close

from dynaflow_dsl import kernels
from dynaflow_dsl.kernels import (
    combining,
    copied,
    exchange,
    transports,
)
from dynaflow_dsl.kernels.host import HostPeers
from dynaflow_dsl.kernels.symmetric import SymmetricPeers
from dynaflow_dsl.models import exchange as operators
from dynaflow_dsl.runtime import bind_group
from dynaflow_dsl.runtime.cuda_streams import cuda_streams
from dynaflow_dsl.runtime.errors import RankError

REPLAYS = 20
DTYPES = [torch.float32, torch.bfloat16]

# Elements: one, odd ones, and so many that chunks use slots again.
SIZES = [1, 4097, 1_000_003, 24_000_000]

Inputs = Callable[[], tuple[torch.Tensor, ...]]
Call = Callable[..., Any]


class Ranks:
    """This process among those of the group."""

    def __init__(self) -> None:
        self.rank = int(os.environ["RANK"])
        self.size = int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        self.dice = torch.Generator(self.device).manual_seed(self.rank)
        # What has to be alike on all ranks.
        self.alike = torch.Generator(self.device).manual_seed(1000)

    def say(self, text: str) -> None:
        if self.rank == 0:
            print(text, flush=True)

    def numbers(self, *shape: int, dtype: torch.dtype, alike: bool = False) -> Any:
        dice = self.alike if alike else self.dice
        drawn = torch.randn(shape, generator=dice, device=self.device)
        return drawn.to(dtype)

    def same_on_all(self, tensor: torch.Tensor) -> bool:
        """Whether all ranks have the bits of rank 0."""
        first = tensor.clone()
        dist.broadcast(first, 0)
        equal = torch.tensor([torch.equal(first, tensor)], device=self.device).int()
        dist.all_reduce(equal, dist.ReduceOp.MIN)
        return bool(equal.item())


def listed(made: Any) -> list[torch.Tensor]:
    return list(made) if isinstance(made, tuple | list) else [made]


def compare(
    name: str, made: Any, expected: Any, exact: Sequence[bool], near: dict[str, float]
) -> None:
    pairs = zip(listed(made), listed(expected), exact, strict=True)
    for k, (one, other, equal) in enumerate(pairs):
        said = partial("{}, result {}: {}".format, name, k)
        assert one.stride() == other.stride(), said("other strides")
        tolerances = {"rtol": 0.0, "atol": 0.0} if equal or not near else near
        assert_close(one, other, msg=said, **tolerances)


def eager(ranks: Ranks, name: str, call: Call, reference: Call, inputs: Inputs) -> Any:
    """The last result, and what it should be, of calls with other numbers."""
    for _ in range(3):
        given = inputs()
        made, expected = call(*given), reference(*given)
        yield made, expected
    torch.cuda.synchronize()


def replayed(call: Call, reference: Call, inputs: Inputs) -> Any:
    """Results of replays that follow each other without the host, and the expected."""
    given = [inputs() for _ in range(REPLAYS)]
    fixed = [one.clone() for one in given[0]]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call(*fixed)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        made = call(*fixed)
    results = []
    for one in given:
        for place, value in zip(fixed, one, strict=True):
            place.copy_(value)
        graph.replay()
        results.append([each.clone() for each in listed(made)])
    torch.cuda.synchronize()
    for one, result in zip(given, results, strict=True):
        yield result, reference(*one)


def check(
    ranks: Ranks,
    name: str,
    call: Call,
    reference: Call,
    inputs: Inputs,
    *,
    exact: Sequence[bool] = (True,),
    near: dict[str, float] | None = None,
    alike: Sequence[bool] = (False,),
) -> None:
    """Compare a kernel with its reference, eager and replayed."""
    runs = [
        ("eager", eager(ranks, name, call, reference, inputs)),
        ("replayed", replayed(call, reference, inputs)),
    ]
    for how, pairs in runs:
        for made, expected in pairs:
            compare(f"{name}, {how}", made, expected, exact, near or {})
            for one, same in zip(listed(made), alike, strict=True):
                assert not same or ranks.same_on_all(one), f"{name}: ranks differ"
        ranks.say(f"ok   {name}, {how}")


def check_copied(ranks: Ranks) -> None:
    for dtype in DTYPES:
        # Of two numbers there is one sum; more are added in another order by NCCL.
        sums = ranks.size == 2 and dtype == torch.float32
        near = (
            {"rtol": 0.02, "atol": 0.06}
            if dtype == torch.bfloat16
            else {"rtol": 1e-5, "atol": 1e-5}
        )
        for size in SIZES:
            kind = f"[{size}] {str(dtype).removeprefix('torch.')}"
            for chunks in (0, 5 + size * dtype.itemsize // (2 << 20)):
                check(
                    ranks,
                    f"copied_all_reduce {kind} chunks={chunks}",
                    lambda one, n=chunks: kernels.copied_all_reduce(
                        tensor=one, group="tp", chunks=n
                    ),
                    lambda one: copied.reduced(one, "tp"),
                    lambda d=dtype, n=size: (ranks.numbers(n, dtype=d),),
                    exact=(sums,),
                    near=near,
                    alike=(True,),
                )
            check(
                ranks,
                f"copied_all_reduce_add {kind}",
                lambda one, other: kernels.copied_all_reduce_add(
                    tensor=one, residual=other, group="tp"
                ),
                lambda one, other: copied.reduced_and_added(one, other, "tp"),
                lambda d=dtype, n=size: (
                    ranks.numbers(n, dtype=d),
                    ranks.numbers(n, dtype=d, alike=True),
                ),
                exact=(sums,),
                near=near,
                alike=(True,),
            )
            rows, width = ranks.size * -(-size // (ranks.size * 33)), 33
            pairs = [
                ("copied_reduce_scatter", copied.scattered, rows, sums),
                ("copied_all_gather", copied.gathered, rows // ranks.size, True),
                ("copied_all_to_all", copied.exchanged, rows, True),
            ]
            for name, reference, count, equal in pairs:
                made = getattr(kernels, name)
                check(
                    ranks,
                    f"{name} {kind}",
                    lambda one, f=made: f(one, ranks=ranks.size, group="tp"),
                    lambda one, f=reference: f(one, ranks.size, "tp"),
                    lambda d=dtype, n=count, w=width: (ranks.numbers(n, w, dtype=d),),
                    exact=(equal,),
                    near=near,
                )


def check_two_graphs(ranks: Ranks) -> None:
    """Graphs of two sizes and eager steps use the same memory, one after the other."""
    given = [ranks.numbers(size, dtype=torch.bfloat16) for size in (5001, 9_000_001)]
    for one in given:
        kernels.copied_all_reduce(one, group="tp")
    torch.cuda.synchronize()
    graphs, results = [], []
    for one in given:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            results.append(kernels.copied_all_reduce(one, group="tp"))
        graphs.append(graph)
    expected = [copied.reduced(one, "tp") for one in given]
    for turn in range(REPLAYS):
        graphs[turn % 2].replay()
        between = kernels.copied_all_reduce(given[0], group="tp")
        for made, other in ((results[turn % 2], turn % 2), (between, 0)):
            near = {"rtol": 0.02, "atol": 0.06}
            assert_close(made, expected[other], **near)
    ranks.say("ok   two graphs and eager steps by turns")


def check_norm(ranks: Ranks) -> None:
    for dtype in DTYPES:
        near = (
            {"rtol": 0.02, "atol": 0.06}
            if dtype == torch.bfloat16
            else {"rtol": 1e-4, "atol": 1e-4}
        )
        for rows, width in ((1, 64), (37, 4096), (1024, 2000)):

            def inputs(
                shape: tuple[int, ...] = (rows, width), d: torch.dtype = dtype
            ) -> tuple[torch.Tensor, ...]:
                return (
                    ranks.numbers(*shape, dtype=d),
                    ranks.numbers(*shape, dtype=d, alike=True),
                    ranks.numbers(shape[1], dtype=d, alike=True),
                )

            fused = (kernels.all_reduce_add_norm, kernels.copied_all_reduce_add_norm)
            for made in fused:
                check(
                    ranks,
                    f"{made.function.__name__} [{rows}, {width}] {dtype}",
                    lambda *given, f=made: f(*given, eps=1e-5, group="tp"),
                    lambda *given: copied.reduced_norm(*given, 1e-5, "tp"),
                    inputs,
                    exact=(False, False),
                    near=near,
                    alike=(True, True),
                )


def check_two_streams(ranks: Ranks) -> None:
    """Calls on two streams are under way at once, and have memory of their own."""
    sides = list(cuda_streams(ranks.device, ["left", "right"]).others)
    shapes = (3_000_001, 70_001)
    fixed = [ranks.numbers(size, dtype=torch.float32) for size in shapes]
    made: list[list[torch.Tensor]] = [[], []]

    def step() -> None:
        for each in made:
            each.clear()
        main = torch.cuda.current_stream()
        for number, side in enumerate(sides):
            side.wait(main.record_event())
            with side:
                for times in range(1, 6):
                    given = fixed[number] * times
                    made[number].append(kernels.copied_all_reduce(given, group="tp"))
        for side in sides:
            main.wait_event(side.record())

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step()
    for turn in range(REPLAYS):
        for one in fixed:
            one.mul_(-0.5 if turn % 2 else 3.0)
        graph.replay()
        for number, one in enumerate(fixed):
            total = copied.reduced(one, "tp")
            for times, result in enumerate(made[number], 1):
                assert_close(result, total * times, rtol=1e-4, atol=1e-4)
    ranks.say("ok   two streams at once")


def check_exchange(ranks: Ranks) -> None:
    """Tokens to their experts and back; the reference asks the device for counts."""
    assert operators.dispatch is not None  # imported, or the reference has no operator
    local, choices, width = 3, 2, 96
    experts = ranks.size * local
    ways = {
        "push": (kernels.push_dispatch, kernels.push_combine_add),
        "gather": (kernels.gather_dispatch, kernels.reduce_combine_add),
    }

    def sent(
        send: Call, bring: Call, tokens: torch.Tensor, scores: torch.Tensor, room: int
    ) -> tuple[torch.Tensor, ...]:
        weights, chosen = scores.topk(choices)
        rows, ends, arrived = send(tokens, chosen, room, local, ranks.size, "ep")
        row = torch.arange(room, dtype=torch.int32, device=ranks.device)
        number = torch.searchsorted(ends, row, right=True)
        made = (rows * (1 + number[:, None])).to(rows.dtype)
        back = bring(made, chosen, weights, arrived, tokens, local, ranks.size, "ep")
        return rows, ends, arrived, back

    for dtype in DTYPES:
        near = (
            {"rtol": 0.02, "atol": 0.1}
            if dtype == torch.bfloat16
            else {"rtol": 1e-5, "atol": 1e-5}
        )
        for way, kinds in ways.items():
            for tokens in (1, 129, 2000):
                room = tokens * choices * ranks.size
                check(
                    ranks,
                    f"exchange by {way} [{tokens}] {dtype}",
                    lambda *given, r=room, k=kinds: sent(*k, *given, r),
                    lambda *given, r=room: sent(
                        exchange.dispatched, combining.combined_and_added, *given, r
                    ),
                    lambda n=tokens, d=dtype: (
                        ranks.numbers(n, width, dtype=d),
                        ranks.numbers(n, experts, dtype=torch.float32).sigmoid(),
                    ),
                    exact=(True, True, True, False),
                    near=near,
                    alike=(False,) * 4,
                )


def check_late_memory(ranks: Ranks) -> None:
    """A capture that would have to make memory says what to do."""
    large = ranks.numbers(1 << 26, dtype=torch.float32)
    graph = torch.cuda.CUDAGraph()
    said = ""
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        try:
            kernels.copied_all_reduce(large, group="tp", chunks=1)
        except RankError as error:
            said = str(error)
        large.add_(0)  # an empty graph is warned of
    assert "DFS818" in said, said
    assert "run the step once" in said, said
    ranks.say("ok   memory is not made inside a capture")


def check_release(ranks: Ranks) -> None:
    """A role that is bound anew has memory of its own."""
    before = transports.transport_of("tp", torch.empty(1, device=ranks.device))
    bind_group("tp", dist.new_group())
    tensor = ranks.numbers(12345, dtype=torch.float32)
    made = kernels.copied_all_reduce(tensor, group="tp")
    assert torch.allclose(made, copied.reduced(tensor, "tp"))
    after = transports.transport_of("tp", tensor)
    assert type(after) is type(before)
    assert after is not before
    # Its graphs are not known to be gone.
    assert before in transports._KEPT
    ranks.say("ok   a role bound anew")


def main() -> None:
    ranks = Ranks()
    dist.init_process_group(
        "nccl", timeout=timedelta(seconds=60), device_id=ranks.device
    )
    try:
        for role in ("tp", "ep"):
            bind_group(role, dist.group.WORLD)
        found = transports.transport_of("tp", torch.empty(1, device=ranks.device))
        disabled = os.environ.get("NCCL_P2P_DISABLE") == "1"
        reachable = not disabled and all(
            torch.cuda.can_device_access_peer(ranks.device, other)
            for other in range(ranks.size)
            if other != ranks.device.index
        )
        assert type(found) is (SymmetricPeers if reachable else HostPeers), found
        free = shutil.disk_usage("/dev/shm").free >> 20
        ranks.say(f"{type(found).__name__}, {ranks.size} ranks, {free} MiB in /dev/shm")
        with torch.inference_mode():
            check_copied(ranks)
        with torch.no_grad():
            check_two_graphs(ranks)
            check_norm(ranks)
            check_two_streams(ranks)
            check_exchange(ranks)
            check_late_memory(ranks)
            check_release(ranks)
        ranks.say("all ok")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
