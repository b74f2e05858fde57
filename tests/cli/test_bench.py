from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import run
from tests.cli.conftest import Workspace
from tests.runtime.fake_graphs import FakeGraphs

Capture = pytest.CaptureFixture[str]

TEXT = """dfs 1

model "dynaflow_dsl.models.llama:decode" (layers = 2)

schedule halves:
    stream side
    split batch into 2 as half
    capture batch at [2, 4]

    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest

        stagger half by 1:
            attn
            mlp
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DFSC_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "halves.dfs"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_contenders_are_measured_on_the_same_step(file: str, capsys: Capture) -> None:
    words = ["--only", "eager", "--only", "sequential", "--only", "scheduled"]
    words += ["--seconds", "0.001", "--output-format", "json"]
    assert run(["bench", file, *words]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    # The largest captured size, although nothing is captured on a CPU.
    assert result["sizes"] == {"batch": 4}
    assert result["report"]["sizes"] == []
    rows = result["contenders"]
    assert list(rows) == ["eager", "sequential", "scheduled"]
    for row in rows.values():
        assert len(row["wall"]) == len(row["host"]) == 5
        assert row["apart"] < 1e-4


def test_an_unknown_contender_lists_the_known_ones(file: str, capsys: Capture) -> None:
    assert run(["bench", file, "--only", "eagre"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "there is no contender 'eagre'; choose from eager, torch.compile" in said


@pytest.mark.parametrize("name", ["eagre", "reduce-overhead"])
def test_contenders_are_known_before_anything_is_compiled(
    name: str, file: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def loaded(*_: object, **__: object) -> None:
        pytest.fail("something was loaded")

    monkeypatch.setattr("dynaflow_dsl.cli.bench._load", loaded)
    if name == "eagre":
        monkeypatch.setattr("dynaflow_dsl.cli.bench.make_to_run", loaded)
    assert run(["bench", file, "--only", "eager", "--only", name]) == 2
    assert f"'{name}'" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:steps of batch:RuntimeWarning")
def test_a_size_that_could_not_be_captured_is_not_measured(
    file: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeGraphs()
    backend.free = 10
    monkeypatch.setattr("dynaflow_dsl.runtime.load.make_graphs", lambda *_: backend)
    words = ["--only", "eager", "--only", "scheduled", "--seconds", "0.001"]
    words += ["--output-format", "json"]
    assert run(["bench", file, *words]) == 1
    (result,) = json.loads(capsys.readouterr().out)["results"]
    reason = result["contenders"]["scheduled"]["reason"]
    assert reason.startswith("NotCaptured: steps of batch = 4 are not captured: it ")
    assert len(result["contenders"]["eager"]["wall"]) == 5


def test_a_size_that_is_not_to_be_captured_is_said_so(
    file: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dynaflow_dsl.runtime.load.make_graphs", lambda *_: FakeGraphs()
    )
    words = ["--only", "scheduled", "--seconds", "0.001", "--size"]
    assert run(["bench", file, *words, "6"]) == 0
    said = capsys.readouterr().out
    assert "runs without a graph: steps of batch = 6 are not captured: no" in said
    assert run(["bench", file, *words, "4"]) == 0
    assert "without a graph" not in capsys.readouterr().out


@pytest.mark.parametrize("more", [(), ("--entry", "decode")])
def test_an_entry_that_is_none_lists_those_there_are(
    file: str, capsys: Capture, more: tuple[str, ...]
) -> None:
    assert run(["bench", file, *more, "--entry", "encode"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "halves.dfs has no encode; choose from decode" in said


@pytest.mark.slow
def test_entries_are_chosen(file: str, capsys: Capture) -> None:
    words = ["--model", "dynaflow_dsl.models.llama:serve", "-M", "layers=1"]
    words += ["--entry", "prefill", *QUICK]
    assert run(["bench", file, *words]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["entry"] == "prefill"


QUICK = ("--only", "scheduled", "--seconds", "0.001", "--output-format", "json")


@pytest.mark.slow
def test_files_and_settings_of_the_project(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(workspace.schedule, "stack_halves:", "stack_halves(ways = 2):")
    workspace.change(workspace.schedule, "into 2", "into ways")
    workspace.change(workspace.schedule, 'model "targets.py:stack" (layers = 3)\n', "")
    (workspace.folder / "a.dfs").write_text("no schedule\n")
    (workspace.folder / "pyproject.toml").write_text(
        """\
[tool.dfsc]
schedules = ["."]

[tool.dfsc.files."stack.dfs"]
model = "targets.py:stack"
arguments = { layers = 2 }
parameters = { ways = 3 }
"""
    )
    # The file that cannot be read is shown, and the next one measured.
    assert run(["bench", *QUICK]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["diagnostics"][0]["code"] == "DFS014"
    (result,) = document["results"]
    assert result["arguments"] == {"layers": 2}
    assert list(result["contenders"]) == ["scheduled"]


def test_a_size_that_no_step_has_is_refused(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["bench", "stack.dfs", "--size", "100", "--only", "eager"]) == 2
    assert "--size: batch goes from 1 to 64" in capsys.readouterr().err


def test_a_device_that_is_none_could_not_run(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run(["bench", "stack.dfs", "--device", "nonsense"]) == 2
    assert "error[DFS801]: 'nonsense' is no device" in capsys.readouterr().err


def test_what_the_target_raises_is_a_finding_about_it(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(
        workspace.targets,
        '(torch.randn(sizes["batch"], width),)',
        '(torch.randn(sizes["batch"], width), 1 // (sizes["batch"] - 8))[:1]',
    )
    assert run(["bench", "stack.dfs", "--only", "eager"]) == 2
    shown = capsys.readouterr().err
    assert "error[DFS110]: making arguments of the entry 'forward' raised" in shown
    assert "ZeroDivisionError" in shown


@pytest.mark.slow
@pytest.mark.parametrize("command", ["bench", "verify"])
def test_what_graphs_will_take_is_printed_before_any_is_made(
    command: str, file: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeGraphs()
    made = [0]

    def begin(self: FakeGraphs) -> None:
        made[0] += 1
        said = capsys.readouterr().err
        if made[0] == 1:
            assert "batch = 4: not captured yet, takes 0." in said
            assert "the pool they share grows to 0." in said
        real(self)

    real = FakeGraphs.begin
    monkeypatch.setattr(FakeGraphs, "begin", begin)
    monkeypatch.setattr("dynaflow_dsl.runtime.load.make_graphs", lambda *_: backend)
    monkeypatch.setattr("dynaflow_dsl.verification.verify.CAPTURING", ("cpu",))
    words = ["--only", "scheduled", "--seconds", "0.001"] if command == "bench" else []
    run([command, file, *words])
    assert made[0] > 0
