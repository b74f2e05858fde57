"""Captured steps on a real device; run with `pytest -m gpu`."""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.models import llama
from dynaflow_dsl.runtime import Executor, LoadError
from dynaflow_dsl.runtime.captured_sizes import Wanted
from dynaflow_dsl.runtime.gemm_target import gemm_target
from tests.end_to_end.building import Built, build, run_verify

pytestmark = pytest.mark.gpu

SCHEDULE = """dfs 1

schedule {name}:
    stream side{stream}
    split batch into 2 as half
    capture batch at [1, 8, 64]{options}

    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest
        stagger half by 1:
            attn
            mlp
"""
ROWS = 128


def built(
    folder: Path, name: str = "halves", stream: str = "", options: str = ""
) -> Built:
    spec = llama.decode(
        layers=6, hidden=256, device="cuda", dtype="bfloat16", initializer_range=0.02
    )
    text = SCHEDULE.format(name=name, stream=stream, options=options)
    return build(spec, text, folder)


class Server:
    """One cache, of which every step has the first rows."""

    def __init__(self, made: Built) -> None:
        self.entry = made.spec.entries["decode"]
        *_, self.keys, self.values = self.entry.arguments({"batch": ROWS})

    def step(self, batch: int, seed: int) -> tuple[Any, ...]:
        torch.manual_seed(seed)
        given = self.entry.arguments({"batch": batch})
        rows = ([one[:batch] for one in listed] for listed in (self.keys, self.values))
        return (*given[:4], *rows)

    def cache(self) -> list[torch.Tensor]:
        return [one.clone() for one in (*self.keys, *self.values)]


def compare(made: Built, batches: list[int], *, exact: bool = True) -> Executor:
    """Run steps captured and uncaptured, each with a cache of its own."""
    captured = made.module.load(made.spec.model, "cuda")
    plain = made.module.load(made.spec.model, "cuda", capture=False)
    torch.manual_seed(0)
    one = Server(made)
    torch.manual_seed(0)
    other = Server(made)
    kept = []
    for number, batch in enumerate(batches):
        mine = captured(*one.step(batch, number))
        expected = plain(*other.step(batch, number))
        kept.append((mine, mine.clone()))
        if exact:
            assert torch.equal(mine, expected), (number, batch)
            for left, right in zip(one.cache(), other.cache(), strict=True):
                assert torch.equal(left, right), (number, batch)
        else:
            torch.testing.assert_close(mine, expected, atol=2e-2, rtol=2e-2)
    for mine, copy in kept:
        assert torch.equal(mine, copy)
    assert isinstance(captured, Executor)
    return captured


def test_replays_change_no_bit(tmp_path: Path) -> None:
    batches = [64, 8, 1, 64, 64, 8, 8, 1, 1, 64, 8, 100, 64] * 4
    step = compare(built(tmp_path), batches)
    report = step.report()
    assert [one.sizes for one in report.sizes] == [
        "batch = 1",
        "batch = 8",
        "batch = 64",
    ]
    assert all(one.nodes.kernels > 6 for one in report.sizes)
    print(report)


def test_verify_replays_captured_sizes(tmp_path: Path) -> None:
    made = built(tmp_path)
    (report,) = run_verify(made, batches=(1, 3, 8, 64), compiled=True, device="cuda")
    assert report.ok, str(report)
    replayed = [one.batch for one in report.comparisons if one.what == "captured"]
    assert replayed == [1, 8, 64]


def test_padded_steps_leave_other_rows_alone(tmp_path: Path) -> None:
    made = built(tmp_path)
    step = compare(made, [64, 8, 64, 8, 50, 33, 7, 9, 50], exact=False)
    assert Wanted(False, (50,)) in step.replays._replays  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "stream",
    [" (priority = high)", " (sms = 16)", " (priority = high, gemm_sms = 16)"],
)
def test_streams_with_options(stream: str, tmp_path: Path) -> None:
    step = compare(built(tmp_path, "options", stream), [64, 8, 64, 8, 1, 1, 64, 8])
    assert len(step.report().sizes) == 3, str(step.report())


def test_both_options_are_refused_together(tmp_path: Path) -> None:
    made = built(tmp_path, "both", " (priority = high, sms = 16)")
    with pytest.raises(LoadError, match="DFS807"):
        made.module.load(made.spec.model, "cuda")


@pytest.mark.parametrize("option", ["sms", "gemm_sms"])
def test_more_multiprocessors_than_there_are(option: str, tmp_path: Path) -> None:
    made = built(tmp_path, "many", f" ({option} = 100000)")
    with pytest.raises(LoadError, match="for 100000 multiprocessors"):
        made.module.load(made.spec.model, "cuda")


def with_a_blocking_part(made: Built, position: int) -> Executor:
    """An executor whose attention waits for the device in one layer."""
    step = made.module.load(made.spec.model, "cuda")
    real = step.attn

    def attn(layer: int, *given: Any) -> Any:
        if layer == position:
            given[0].sum().item()
        return real(layer, *given)

    step.attn = attn
    return step


def test_a_blocking_part_is_named_and_the_step_still_runs(tmp_path: Path) -> None:
    made = built(tmp_path)
    step = with_a_blocking_part(made, 2)
    plain = made.module.load(made.spec.model, "cuda", capture=False)
    torch.manual_seed(0)
    one = Server(made)
    torch.manual_seed(0)
    other = Server(made)
    with pytest.warns(RuntimeWarning, match="in the part `attn`"):
        step(*one.step(8, 0))
    plain(*other.step(8, 0))
    for number in range(1, 4):
        assert torch.equal(step(*one.step(8, number)), plain(*other.step(8, number)))


def test_pieces_around_a_blocking_part(tmp_path: Path) -> None:
    made = built(tmp_path, "around", options=" (pieces = true)")
    step = with_a_blocking_part(made, 2)
    plain = made.module.load(made.spec.model, "cuda", capture=False)
    torch.manual_seed(0)
    one = Server(made)
    torch.manual_seed(0)
    other = Server(made)
    for number, batch in enumerate([64, 8, 1] * 8):
        mine, expected = (
            step(*one.step(batch, number)),
            plain(*other.step(batch, number)),
        )
        assert torch.equal(mine, expected), (number, batch)
        for left, right in zip(one.cache(), other.cache(), strict=True):
            assert torch.equal(left, right), (number, batch)
    assert [each.graphs for each in step.report().sizes] == [2, 3, 3]


def test_a_capture_that_fails_leaves_the_executor_usable(tmp_path: Path) -> None:
    made = built(tmp_path)
    step = made.module.load(made.spec.model, "cuda")
    plain = made.module.load(made.spec.model, "cuda", capture=False)
    real = step.mlp

    def mlp(layer: int, *given: Any) -> Any:
        if layer == 3 and torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
        return real(layer, *given)

    step.mlp = mlp
    torch.manual_seed(0)
    one = Server(made)
    torch.manual_seed(0)
    other = Server(made)
    with pytest.warns(RuntimeWarning, match="are not captured"):
        step(*one.step(8, 0))
    plain(*other.step(8, 0))
    step.mlp = real
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(1, 6):
            for batch in (8, 64):
                assert torch.equal(
                    step(*one.step(batch, number)), plain(*other.step(batch, number))
                )
    assert [each.sizes for each in step.report().sizes] == ["batch = 64"]


def test_two_executors_on_two_streams(tmp_path: Path) -> None:
    made = built(tmp_path)
    steps = [made.module.load(made.spec.model, "cuda") for _ in range(2)]
    plain = made.module.load(made.spec.model, "cuda", capture=False)
    servers = []
    for _ in range(3):
        torch.manual_seed(0)
        servers.append(Server(made))
    streams = [torch.cuda.Stream() for _ in steps]
    torch.cuda.synchronize()
    for number in range(30):
        expected = plain(*servers[2].step(64, number))
        torch.cuda.synchronize()
        for step, server, stream in zip(steps, servers, streams, strict=False):
            given = server.step(64, number)
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                made_now = step(*given)
            stream.synchronize()
            assert torch.equal(made_now, expected)


def test_inside_a_capture_of_the_caller(tmp_path: Path) -> None:
    made = built(tmp_path)
    step = made.module.load(made.spec.model, "cuda")
    torch.manual_seed(0)
    server = Server(made)
    arguments = server.step(8, 0)
    expected = step(*arguments)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(*arguments)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, expected)


def test_lent_memory_changes_no_bit(tmp_path: Path) -> None:
    made = built(tmp_path)
    lent = made.module.load(made.spec.model, "cuda", outputs="lent")
    plain = made.module.load(made.spec.model, "cuda", capture=False)
    torch.manual_seed(0)
    one = Server(made)
    torch.manual_seed(0)
    other = Server(made)
    for number, batch in enumerate([64, 8, 64, 64, 8, 8, 64, 1, 1, 8] * 3):
        given = list(one.step(batch, number))
        buffers = lent.buffers(batch=batch)
        for position, name in enumerate(buffers):
            given[position] = buffers[name].copy_(given[position])
        assert torch.equal(lent(*given), plain(*other.step(batch, number))), number
    for left, right in zip(one.cache(), other.cache(), strict=True):
        assert torch.equal(left, right)
    assert all(size.outputs == 0 for size in lent.report().sizes)


SELECT = """
select pick:
    when batch >= 64: halves
    else: sequential
"""


def test_what_a_select_runs_unsplit_is_captured(tmp_path: Path) -> None:
    spec = llama.decode(
        layers=6, hidden=256, device="cuda", dtype="bfloat16", initializer_range=0.02
    )
    text = SCHEDULE.format(name="halves", stream="", options="") + SELECT
    made = build(spec, text, tmp_path)
    step = made.module.load(spec.model, "cuda")
    plain = made.module.load(spec.model, "cuda", capture=False)
    torch.manual_seed(0)
    one = Server(made)
    torch.manual_seed(0)
    other = Server(made)
    for number, batch in enumerate([64, 8, 64, 8, 8, 64, 1, 1] * 3):
        given = step(*one.step(batch, number))
        assert torch.equal(given, plain(*other.step(batch, number))), number
    steps = [(size.sizes, size.step) for size in step.report()["halves"].sizes]
    assert steps == [
        ("batch = 1", "sequential"),
        ("batch = 8", "sequential"),
        ("batch = 64", "step"),
    ]


def test_products_are_planned_for_some_multiprocessors() -> None:
    """Products with a bias go through cuBLASLt, others through cuBLAS."""
    left = torch.randn(512, 1024, device="cuda").bfloat16()
    right = torch.randn(2048, 1024, device="cuda").bfloat16()
    bias = torch.randn(2048, device="cuda").bfloat16()
    products: tuple[Callable[[], Any], ...] = (
        lambda: torch.addmm(bias, left, right.T),
        lambda: left @ right.T,
    )
    target = gemm_target(0, "side", 4)
    for product in products:
        wide = blocks_of(product)
        target.begin()
        try:
            narrow = blocks_of(product)
        finally:
            target.end()
        assert narrow < wide
        assert blocks_of(product) == wide


def blocks_of(product: Callable[[], Any]) -> int:
    """The most blocks that a kernel of a product has."""
    product()
    torch.cuda.synchronize()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA]
    ) as profile:
        product()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    grids = [e["args"]["grid"] for e in events if e.get("cat") == "kernel"]
    return max(math.prod(grid) for grid in grids)
