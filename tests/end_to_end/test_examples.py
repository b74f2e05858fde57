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


@pytest.mark.parametrize("name", ["llama/slow_links.dfs", "llama/tokenweave.dfs"])
def test_nothing_is_said_of_kernels_that_nobody_has_imported(
    name: str, models: dict[str, TracedModel]
) -> None:
    """What the parts would use by their own operations is not what a kernel uses."""
    checked, errors = found(SCHEDULES / name, models["llama"], dict(HOPPER))
    assert errors == []
    assert checked is not None
    assert checked.plans


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
        (
            "llama/phases.dfs",
            {"attn[decode] | prev.mlp[prefill]", "attn[prefill] | mlp[decode]"},
        ),
        ("moe/shared_expert.dfs", {"dispatch | shared"}),
        (
            "llama/tokenweave.dfs",
            {"attn[1] | attn_join[0]", "attn[0] | prev.mlp_join[1]"},
        ),
        (
            "llama/slow_links.dfs",
            {"attn[1] | attn_join[0]", "attn_join[0] | attn_join[1]"},
        ),
        ("llama/async_tp.dfs", {"attn_reduce[0] | o[1]", "down[3] | mlp_reduce[2]"}),
        (
            "moe/two_batch.dfs",
            {"attn[1] | dispatch[0]", "dispatch[1] | experts[0]"},
        ),
    ],
)
def test_a_shipped_strategy_runs_as_its_windows_say(
    name: str,
    concurrent: set[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(SCHEDULES / name)
    large = ["--batch", "64", "-F", "arch=sm90"]
    assert run(["verify", path, "-o", str(tmp_path), "--text-only", *large]) == 0
    said = capsys.readouterr().out
    assert "no race, no early free, joined" in said
    claimed = {line.partition("unordered: ")[2] for line in said.splitlines()}
    assert claimed >= concurrent


@pytest.mark.parametrize(
    ("name", "given"),
    [
        (
            "llama/serving.dfs",
            {
                "decode": ["never", "such as batch = 64", "such as batch = 1"],
                # Prompts of this target have 16 tokens.
                "prefill": ["such as batch = 64", "never", "such as batch = 1"],
            },
        ),
        (
            "moe/serving.dfs",
            {
                "decode": ["such as batch = 256", "such as batch = 1"],
                "prefill": ["such as batch = 16", "such as batch = 1"],
            },
        ),
    ],
)
def test_what_a_server_loads(
    name: str,
    given: dict[str, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, graph = str(SCHEDULES / name), str(tmp_path / "served.graph.json")
    assert run(["compile", path, "-o", str(tmp_path)]) == 0
    assert run(["trace", path, "-o", graph]) == 0
    capsys.readouterr()
    assert run(["show", path, "--graph", graph, "--windows"]) == 0
    said = capsys.readouterr().out
    for entry, sizes in given.items():
        lines = said.partition(f"entry {entry}:\n")[2].splitlines()[: len(sizes)]
        for line, size in zip(lines, sizes, strict=True):
            assert line.endswith(f"  {size}")


def test_a_strategy_is_a_short_file() -> None:
    """No longer than the policies in Python that it stands for: 11 + 31 lines."""
    table = (ROOT / "docs" / "strategies.md").read_text().splitlines()
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table]
    files = {cells[0].strip("`"): cells[2] for cells in rows if len(cells) == 5}
    assert len(files) == 11  # nine, and two lines of the table's head
    for name, said in files.items():
        if not name.endswith(".dfs"):
            continue
        lines = [_plain_lines(SCHEDULES / name)]
        if "parts.dfs" in said:
            lines.append(_plain_lines((SCHEDULES / name).with_name("parts.dfs")))
        assert said.split()[0] == str(sum(lines)), name
        assert sum(lines) <= 42


def _plain_lines(path: Path) -> int:
    lines = (line.strip() for line in path.read_text().splitlines())
    return sum(1 for line in lines if line and not line.startswith("#"))
