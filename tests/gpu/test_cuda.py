"""Steps on real streams; run with `pytest -m gpu` on a machine with a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from dynaflow_dsl.models import llama
from dynaflow_dsl.runtime.streams import CallingThread, CpuStreams
from tests.end_to_end.building import Built, build, run_verify
from tests.end_to_end.test_in_place import joined
from tests.end_to_end.test_schedules import SCHEDULES

pytestmark = pytest.mark.gpu

REPEATS = 40


def one_stream(
    device: torch.device, names: Sequence[str], options: object
) -> CpuStreams:
    """Everything on the stream that the step is called on, in order of the text."""
    return CpuStreams(CallingThread("main"), *map(CallingThread, names))


def built(name: str, dtype: str, folder: Path) -> Built:
    spec = llama.decode(
        layers=6, hidden=256, device="cuda", dtype=dtype, initializer_range=0.02
    )
    return build(spec, SCHEDULES[name], folder)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["halves", "both", "nano", "four", "stages", "beside"])
def test_streams_change_no_bit(name: str, dtype: str, tmp_path: Path) -> None:
    made = built(name, dtype, tmp_path)
    for compiled in (False, True):
        step = made.module.load(made.spec.model, "cuda", compile=compiled)
        ordered = made.module.load(
            made.spec.model, "cuda", compile=compiled, streams=one_stream
        )
        entry = made.spec.entries["decode"]
        for repeat in range(REPEATS):
            torch.manual_seed(repeat)
            first = entry.arguments({"batch": 5 + repeat % 60})
            torch.manual_seed(repeat)
            second = entry.arguments({"batch": 5 + repeat % 60})
            assert torch.equal(step(*first), ordered(*second)), repeat
            for one, other in zip(
                first[4] + first[5], second[4] + second[5], strict=True
            ):
                assert torch.equal(one, other), repeat


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_verify_on_the_device(dtype: str, tmp_path: Path) -> None:
    made = built("halves", dtype, tmp_path)
    (report,) = run_verify(made, batches=(1, 2, 7, 64), compiled=True, device="cuda")
    assert report.ok, str(report)


def test_inside_a_capture_the_step_just_runs(tmp_path: Path) -> None:
    made = built("halves", "float32", tmp_path)
    step = made.module.load(made.spec.model, "cuda")
    arguments = made.spec.entries["decode"].arguments({"batch": 8})
    expected = step(*arguments)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(*arguments)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(*arguments)
    for _ in range(20):
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(captured, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_results_in_place_have_the_bits_of_joined_pieces(
    dtype: str, tmp_path: Path
) -> None:
    made = built("halves", dtype, tmp_path)
    assert "mlp_into(" in made.compiled.text
    step = made.module.load(made.spec.model, "cuda")
    other = made.mutated(joined(made)).load(made.spec.model, "cuda")
    for batch in (2, 7, 64):
        torch.manual_seed(batch)
        first = made.spec.entries["decode"].arguments({"batch": batch})
        torch.manual_seed(batch)
        second = made.spec.entries["decode"].arguments({"batch": batch})
        assert torch.equal(step(*first), other(*second)), batch


def test_results_in_place_inside_a_capture(tmp_path: Path) -> None:
    made = built("both", "bfloat16", tmp_path)
    assert "mlp_into(" in made.compiled.text
    step = made.module.load(made.spec.model, "cuda")
    arguments = made.spec.entries["decode"].arguments({"batch": 64})
    expected = step(*arguments).clone()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(*arguments)
    for _ in range(20):
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(captured, expected)
