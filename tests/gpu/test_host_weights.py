"""Weights that come from host memory, on a real device; run with `pytest -m gpu`."""

from __future__ import annotations

import copy
import gc
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.models import llama
from tests.end_to_end.building import Built, build, run_verify
from tests.end_to_end.test_fetched_weights import SCHEDULES

pytestmark = pytest.mark.gpu

RESIDENT = """dfs 1

schedule resident:
    each layer in .model.layers.*:
        part body = rest

        order:
            body
"""
LAYERS = 6
REPEATS = 30


def captured(text: str) -> str:
    """The schedule with its steps captured."""
    above, each, below = text.partition("    each layer")
    return f"{above}    capture batch at [1, 8, 64]\n\n{each}{below}"


def spec(layers: int = LAYERS, hidden: int = 512) -> Any:
    return llama.decode(
        layers=layers,
        hidden=hidden,
        device="cuda",
        dtype="bfloat16",
        initializer_range=0.02,
    )


def arguments(made: Built, batch: int, seed: int) -> tuple[Any, ...]:
    torch.manual_seed(seed)
    return tuple(made.spec.entries["decode"].arguments({"batch": batch}))


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two steps wrote the same caches."""
    pairs = zip(one[4] + one[5], other[4] + other[5], strict=True)
    return all(torch.equal(left, right) for left, right in pairs)


# Compiled, two parts round where one does not.
@pytest.mark.parametrize(
    ("name", "compiled"),
    [
        ("ahead", False),
        ("two", False),
        ("in_turn", False),
        ("ahead", True),
        ("in_turn", True),
    ],
)
def test_numbers_are_those_of_resident_weights(
    name: str, compiled: bool, tmp_path: Path
) -> None:
    model = spec()
    made = build(model, SCHEDULES[name], tmp_path)
    beside = build(model, RESIDENT, tmp_path)
    step = made.module.load(model.model, "cuda", compile=compiled)
    resident = beside.module.load(model.model, "cuda", compile=compiled)
    for repeat in range(REPEATS):
        batch = 1 + repeat * 7 % 64
        mine, theirs = (arguments(made, batch, repeat) for _ in range(2))
        assert torch.equal(step(*mine), resident(*theirs)), repeat
        assert same(mine, theirs), repeat


@pytest.mark.parametrize("name", ["ahead", "two", "halves"])
def test_verify_on_the_device(name: str, tmp_path: Path) -> None:
    made = build(spec(), captured(SCHEDULES[name]), tmp_path)
    (report,) = run_verify(made, batches=(1, 2, 8, 64), compiled=True, device="cuda")
    assert report.ok, str(report)


def test_graphs_hold_the_copies_and_change_no_bit(tmp_path: Path) -> None:
    made = build(spec(), captured(SCHEDULES["ahead"]), tmp_path)
    step = made.module.load(made.spec.model, "cuda")
    plain = made.module.load(made.spec.model, "cuda", capture=False)
    # A graph uses the cache where it lies.
    kept = {batch: arguments(made, batch, batch) for batch in (1, 8, 64)}
    for repeat in range(REPEATS):
        batch = (1, 8, 64)[repeat % 3]
        fresh = arguments(made, batch, repeat)
        other = arguments(made, batch, repeat)
        mine = (*fresh[:4], *kept[batch][4:])
        for target, source in zip(mine[4] + mine[5], fresh[4] + fresh[5], strict=True):
            target.copy_(source)
        assert torch.equal(step(*mine), plain(*other)), repeat
        assert same(mine, other), repeat
    report = step.report()
    assert not report.refused
    assert len(report.sizes) == 3
    # One copy of a layer each, beside those of inputs that are no part of a graph.
    assert all(one.nodes.copies >= LAYERS for one in report.sizes)


def test_a_callers_capture_holds_the_copies(tmp_path: Path) -> None:
    made = build(spec(), SCHEDULES["ahead"], tmp_path)
    step = made.module.load(made.spec.model, "cuda")
    given = arguments(made, 8, 0)
    expected = step(*given)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step(*given)
    for _ in range(REPEATS):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result, expected)


def test_steps_on_several_streams_share_the_buffers(tmp_path: Path) -> None:
    made = build(spec(), captured(SCHEDULES["in_turn"]), tmp_path)
    step = made.module.load(made.spec.model, "cuda")
    given = [arguments(made, 8, seed) for seed in range(2)]
    with warnings.catch_warnings():
        # One replays; the other's cache lies elsewhere, so that it runs as it is.
        warnings.filterwarnings("ignore", ".*lies elsewhere.*")
        expected = [step(*one).clone() for one in given]
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in range(2)]
        found = []
        for repeat in range(REPEATS):
            k = repeat % 2
            with torch.cuda.stream(streams[k]):
                found.append((k, step(*given[k])))
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected[k]) for k, result in found)


def test_a_model_on_the_host_is_placed_layer_by_layer(tmp_path: Path) -> None:
    model = spec(layers=24, hidden=1024)
    made = build(model, SCHEDULES["ahead"], tmp_path)
    given = arguments(made, 8, 0)
    expected = made.module.load(model.model, "cuda")(*arguments(made, 8, 0))
    on_host = copy.deepcopy(model.model).to("cpu")
    values = {name: one.clone() for name, one in on_host.named_parameters()}
    layers = sum(one.nbytes for name, one in values.items() if ".layers." in name)
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step = made.module.load(on_host, "cuda", place=True)
    taken = torch.cuda.max_memory_allocated() - before
    # Two layers of 24 in buffers, and what is no layer.
    others = sum(one.nbytes for name, one in values.items() if ".layers." not in name)
    assert taken < layers // 4 + 2 * others
    assert torch.equal(step(*given), expected)
    for name, parameter in on_host.named_parameters():
        assert torch.equal(parameter.detach().cpu(), values[name]), name
        if ".layers." in name:
            assert parameter.is_pinned(), name
        else:
            assert parameter.is_cuda, name
    report = step.report()
    assert report.fetched.host >= layers
    assert report.fetched.buffers < layers // 8
    # Loaded again, the blocks are used where they are.
    again = made.module.load(on_host, "cuda")
    assert torch.equal(again(*arguments(made, 8, 0)), expected)


def test_weights_are_copied_without_the_host_waiting(tmp_path: Path) -> None:
    made = build(spec(), SCHEDULES["ahead"], tmp_path)
    step = made.module.load(made.spec.model, "cuda")
    given = arguments(made, 8, 0)
    step(*given)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(*given)
    finally:
        torch.cuda.set_sync_debug_mode("default")
