"""The strategies of the field, as files: checked on the models that they are made for.

The examples of the language stand in `tests/syntax/examples` as they were designed;
what is shipped is laid out and names its model.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.main import run
from dynaflow_dsl.diagnostics import Severity
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.models import clip, expert_parallel, llama, tensor_parallel
from dynaflow_dsl.resolve.model import Scalar
from dynaflow_dsl.trace import TraceSpec, trace

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "tests" / "syntax" / "examples"
SCHEDULES = ROOT / "schedules"
HOPPER = {"arch": "sm90"}


def traced(spec: TraceSpec) -> TracedModel:
    return trace(spec, "tests:target", {}).unwrap()


@pytest.fixture(scope="module")
def models() -> dict[str, TracedModel]:
    """The models of the examples, by the folder or the file."""
    return {
        "llama": traced(tensor_parallel.llama(ways=8, entries="serve", layers=3)),
        "llama/halves.dfs": traced(llama.decode(layers=3)),
        "llama/prefetch.dfs": traced(llama.prefill(layers=3)),
        "moe": traced(expert_parallel.deepseek_v3(ways=4, layers=4)),
        "clip": traced(clip.both(layers=2)),
    }


def found(
    path: Path, model: TracedModel, facts: dict[str, Scalar]
) -> tuple[pipeline.CheckedSchedules | None, list[str]]:
    """What `dfsc check` finds wrong with a file for a model."""
    read = pipeline.read_schedule(path)
    assert read.value is not None, read.diagnostics
    checked = pipeline.check_schedules(read.value, model, facts)
    errors = [d for d in checked.diagnostics if d.severity == Severity.ERROR]
    return checked.value, [f"{d.code}: {d.message}" for d in errors]


@pytest.mark.parametrize(
    ("name", "plans"),
    [
        ("llama/halves.dfs", 1),
        ("llama/prefetch.dfs", 1),
        ("llama/two_batch.dfs", 2),
        ("llama/nanoflow.dfs", 2),
        ("llama/tokenweave.dfs", 2),
        # Steps of decode never run tokenweave, and those of 16 tokens each that are
        # large enough for nanoflow run tokenweave already.
        ("llama/serving.dfs", 4),
        ("moe/shared_expert.dfs", 1),
        ("clip/branches.dfs", 1),
    ],
)
def test_an_example_is_proved_for_its_model(
    name: str, plans: int, models: dict[str, TracedModel]
) -> None:
    model = models.get(name, models[name.partition("/")[0]])
    checked, errors = found(EXAMPLES / name, model, dict(HOPPER))
    assert errors == []
    assert checked is not None
    assert len(checked.plans) == plans


def test_a_tensor_parallel_schedule_is_refused_for_a_whole_model(
    models: dict[str, TracedModel],
) -> None:
    model = models["llama/halves.dfs"]
    _, errors = found(EXAMPLES / "llama" / "two_batch.dfs", model, dict(HOPPER))
    assert [error[:6] for error in errors] == ["DFS106"]


@pytest.mark.parametrize(
    ("name", "concurrent"),
    [
        ("llama/prefetch.dfs", {"fetch | prev.body"}),
        ("llama/two_batch.dfs", {"attn[1] | attn_reduce[0]", "mlp[1] | mlp_reduce[0]"}),
        ("llama/nanoflow.dfs", {"ffn[0] | o_reduce[2]", "prev.ffn_reduce[1] | qkv[0]"}),
        ("moe/shared_expert.dfs", {"dispatch | shared"}),
    ],
)
def test_a_shipped_strategy_runs_as_its_windows_say(
    name: str,
    concurrent: set[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(SCHEDULES / name)
    large = ["--batch", "48", "-F", "arch=sm90"]
    assert run(["verify", path, "-o", str(tmp_path), "--text-only", *large]) == 0
    said = capsys.readouterr().out
    assert "no race, no early free, joined" in said
    claimed = {line.partition("unordered: ")[2] for line in said.splitlines()}
    assert claimed >= concurrent
