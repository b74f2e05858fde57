"""Schedules for several ranks: they bind, run alone, and are right on two processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch.multiprocessing as processes

from dynaflow_dsl import pipeline
from dynaflow_dsl.models import expert_parallel, tensor_parallel
from dynaflow_dsl.runtime import LoadError
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import TraceSpec, trace
from tests.end_to_end import parallel
from tests.end_to_end.building import build, run_verify


def codes(spec: TraceSpec, text: str) -> set[str]:
    file = pipeline.understand(Source("test.dfs", text)).unwrap()
    traced = trace(spec, "tests:target", {}).unwrap()
    return {item.code for item in pipeline.check_schedules(file, traced).diagnostics}


@pytest.mark.parametrize("target", ["llama", "qwen2", "qwen3"])
def test_two_batches_on_eight_ranks(target: str, tmp_path: Path) -> None:
    spec = getattr(tensor_parallel, target)(ways=8, layers=3)
    for report in run_verify(build(spec, parallel.TWO_BATCH, tmp_path)):
        assert report.ok, str(report)


def test_nano_batches_on_eight_ranks(tmp_path: Path) -> None:
    spec = tensor_parallel.llama(ways=8, layers=3)
    spec = replace(spec, facts={**spec.facts, "arch": "sm90"})
    made = build(spec, parallel.NANOFLOW, tmp_path)
    for report in run_verify(made, batches=(5, 48, 70)):
        assert report.ok, str(report)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("deepseek_v3", parallel.SHARED_EXPERT),
        ("deepseek_v2", parallel.SHARED_EXPERT),
        ("qwen3_moe", parallel.EXCHANGE),
        ("mixtral", parallel.EXCHANGE),
    ],
)
def test_experts_on_eight_ranks(target: str, text: str, tmp_path: Path) -> None:
    spec = getattr(expert_parallel, target)(ways=8, layers=3)
    for report in run_verify(build(spec, text, tmp_path)):
        assert report.ok, str(report)


def test_schedules_for_ranks_are_for_no_single_one() -> None:
    assert codes(tensor_parallel.llama(ways=1, layers=2), parallel.TWO_BATCH)
    assert not codes(tensor_parallel.llama(ways=2, layers=2), parallel.TWO_BATCH)


def test_a_split_does_not_reach_through_an_exchange() -> None:
    """What a rank receives is in the order of experts, not of rows."""
    text = parallel.EXCHANGE.replace(
        "    stream comm\n", "    stream comm\n\n    split batch into 2 as half\n"
    ).replace("        order:", "        stagger half by 1:")
    spec = expert_parallel.qwen3_moe(ways=2, layers=2)
    assert "DFS601" in codes(spec, text)
    # One part alone cannot say that its rows are apart: others read what has none.
    for part in ("dispatch", "experts", "combine"):
        alone = parallel.EXCHANGE_HALVES.replace(" (rowwise = true)", "").replace(
            f"part {part}", f"part {part} (rowwise = true)"
        )
        assert "DFS601" in codes(spec, alone)


@pytest.mark.parametrize("target", ["qwen3_moe", "mixtral"])
def test_a_split_through_an_exchange_is_stated_of_its_parts(
    target: str, tmp_path: Path
) -> None:
    spec = getattr(expert_parallel, target)(ways=8, layers=2)
    made = build(spec, parallel.EXCHANGE_HALVES, tmp_path)
    (binding, *_) = made.compiled.bindings
    assert [one.parts for one in binding.stated] == [
        ("dispatch", "experts", "combine"),
        ("dispatch", "experts", "combine"),
    ]
    for report in run_verify(made):
        assert report.ok, str(report)
        assert [trial.ok for trial in report.rows] == [True, True]


def test_a_role_that_nobody_plays(tmp_path: Path) -> None:
    """Torch knows names of groups only; ours are roles, and there is a way to play."""
    spec = tensor_parallel.llama(ways=2, layers=1, vocabulary=False)
    made = build(spec, parallel.TWO_BATCH, tmp_path)
    assert '"tp:comm"' in made.compiled.text
    module = made.mutated(made.compiled.text.replace('"tp:comm"', '"nobody:comm"'))
    advice = "bind_group('nobody', group) before the module is loaded"
    step = module.load(spec.model, compile=False)
    with pytest.raises(RuntimeError) as at_step:
        step(*spec.entries["decode"].arguments({"batch": 4}))
    assert any(advice in note for note in at_step.value.__notes__)
    with pytest.raises(LoadError, match="DFS805") as at_load:
        module.load(spec.model, cache=tmp_path / "cache")
    assert advice in str(at_load.value)
    assert "Inductor" not in str(at_load.value)


@pytest.mark.parametrize(
    ("job", "family"),
    [
        ("tensor", "llama"),
        ("tensor", "qwen2"),
        ("tensor", "qwen3"),
        ("expert", "deepseek_v3"),
        ("expert", "qwen3_moe"),
        ("expert halves", "qwen3_moe"),
    ],
)
def test_two_processes_compute_what_the_whole_model_does(
    job: str, family: str, tmp_path: Path
) -> None:
    """Scheduled steps with a real process group; both ranks run the same module."""
    processes.spawn(
        parallel.run_rank, (str(tmp_path), job, family), nprocs=parallel.RANKS
    )
    texts = [path.read_text("utf-8") for path in sorted(tmp_path.glob("rank*/*.py"))]
    assert len(texts) == parallel.RANKS
    assert texts[0] == texts[1]
