from __future__ import annotations

import json
from typing import Any

import click
import pytest

from dynaflow_dsl.cli.main import run
from tests.cli.conftest import Workspace
from tests.runtime.fake_graphs import FakeGraphs

Capture = pytest.CaptureFixture[str]
PROFILE = ("profile", "stack.dfs", "--text-only", "-o", "trace.json")


def events(workspace: Workspace) -> list[dict[str, Any]]:
    document = json.loads((workspace.folder / "trace.json").read_text())
    listed: list[dict[str, Any]] = document["traceEvents"]
    return listed


def test_ranges_carry_part_microbatch_and_layer(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run([*PROFILE, "--runs", "2"]) == 0
    told = capsys.readouterr().out
    assert "operations lie in a step" in told
    assert " ms a step, the median of 2 runs (" in told
    assert " for expand[0] of layer" in told
    assert "streams of the CPU are one thread" in told
    found = events(workspace)
    tracks = {
        event["tid"]: event["args"]["name"]
        for event in found
        if event["name"] == "thread_name"
    }
    assert list(tracks.values())[:2] == ["main", "side"]
    (process,) = (event for event in found if event["name"] == "process_name")
    assert process["args"]["name"] == "stack_halves, entry forward, batch = 8 on CPU"
    steps = [event for event in found if event.get("cat") == "step"]
    seen = {
        (
            tracks[event["tid"]],
            event["args"]["part"],
            event["args"].get("microbatch"),
            event["args"].get("layer"),
            event["args"]["run"],
        )
        for event in steps
        if "part" in event["args"]
    }
    for layer in range(3):
        for piece in range(2):
            for number in range(2):
                assert ("side", "expand", piece, layer, number) in seen
                assert ("main", "reduce", piece, layer, number) in seen
    assert {"before", "after"} & {event["name"] for event in steps}


def test_operators_lie_within_their_steps(workspace: Workspace) -> None:
    assert run(PROFILE) == 0
    found = events(workspace)
    steps = [event for event in found if event.get("cat") == "step"]
    work = [event for event in found if event.get("cat") == "work"]
    named = [event for event in work if event["args"].get("part") == "expand"]
    assert {"aten::layer_norm", "aten::linear"} <= {event["name"] for event in named}
    for event in named:
        assert any(
            step["tid"] == event["tid"]
            and {**step["args"], "kind": "operator"} == event["args"]
            and step["ts"] <= event["ts"] + 0.002
            and event["ts"] + event["dur"] <= step["ts"] + step["dur"] + 0.002
            for step in steps
        )


def test_the_result_as_data(workspace: Workspace, capsys: Capture) -> None:
    assert run([*PROFILE, "--size", "4", "--output-format", "json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["trace"] == "trace.json"
    assert 0 < result["operations_in_steps"] <= result["operations"]
    (profile,) = result["profiles"]
    assert profile["title"] == "stack_halves, entry forward, batch = 4"
    assert profile["streams"] == ["main", "side"]
    assert not profile["replayed"]
    assert profile["rank"] == 0
    summary = profile["summary"]
    assert [one["stream"] for one in summary["streams"]] == ["main", "side"]
    main = summary["streams"][0]
    assert main["busy"] + main["idle"] == pytest.approx(summary["step"])
    assert "expand[0]" in {one["awaited"] for one in summary["waits"]}
    assert result["ranks"] == len(result["clocks"]) == 1


def test_no_device_leaves_the_old_trace(workspace: Workspace, capsys: Capture) -> None:
    (workspace.folder / "trace.json").write_text("old")
    assert run([*PROFILE, "--device", "cuda"]) == 2
    output = capsys.readouterr()
    assert "error[DFS801]" in output.err
    assert "also run on the CPU" in output.err
    assert (workspace.folder / "trace.json").read_text() == "old"


def test_a_schedule_that_fails_writes_nothing(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.misspell()
    assert run(PROFILE) == 1
    assert "DFS102" in capsys.readouterr().err
    assert not (workspace.folder / "trace.json").exists()


def test_a_trace_that_cannot_be_written(workspace: Workspace, capsys: Capture) -> None:
    (workspace.folder / "trace.json").mkdir()
    assert run(PROFILE) == 2
    assert "DFS506" in capsys.readouterr().err


@pytest.mark.parametrize("words", [(), ("--eager",)])
def test_what_graphs_will_take_is_printed_before_the_trace(
    words: tuple[str, ...],
    workspace: Workspace,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workspace.change(
        workspace.schedule,
        "    split batch",
        "    capture batch at [4]\n\n    split batch",
    )
    backend = FakeGraphs()
    monkeypatch.setattr("dynaflow_dsl.runtime.load.make_graphs", lambda *_: backend)
    said: list[str] = []

    def profiled(*_: Any, **__: Any) -> Any:
        said.append(capsys.readouterr().err)
        raise click.ClickException("enough")

    monkeypatch.setattr("dynaflow_dsl.measurement.profile.profile_step", profiled)
    run([*PROFILE, *words])
    bound = "the pool they share grows to 0."
    assert ("batch = 4: not captured yet, takes 0." in said[0]) is not bool(words)
    assert (bound in said[0]) is not bool(words)
