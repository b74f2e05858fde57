"""Simulated ranks against timelines that were worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks import simulated_ranks
from benchmarks.clusters import Cluster, Link, fitted
from benchmarks.plan_simulation import Cost, simulate
from benchmarks.simulated_ranks import Parameters, point, simulated
from dynaflow_dsl import pipeline
from dynaflow_dsl.plan.model import (
    Block,
    Call,
    Join,
    Layer,
    Plan,
    Program,
    Record,
    Statement,
    Straight,
    Wait,
)
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.trace import trace
from tests.runtime import small_ranks

NOWHERE = Span(Source("test.dfs", ""), 0, 0)
SLOW = Link(bandwidth=10.0, latency=1.0)
FAR = Link(bandwidth=5.0, latency=2.0)
# A message of n bytes takes n seconds.
PLAIN = Cluster(8, Link(1.0, 0.0), Link(1.0, 0.0))


def call(part: str, stream: str) -> Call:
    return Call(part, Layer(0), None, stream, (), (), part, NOWHERE)


def program(*statements: Statement) -> Program:
    return Program((Straight((Block("", statements),)),))


def ran(
    given: Program, costs: dict[str, Cost], slower: float = 1.0
) -> dict[str, tuple[float, float]]:
    found = simulate(given, ("main", "comm"), lambda one: costs[one.part], slower)
    return {one.call.part: (one.begin, one.end) for one in found}


def test_two_steps_that_compute_at_once_share_the_device() -> None:
    given = program(call("short", "main"), call("long", "comm"))
    assert ran(given, {"short": Cost(1.0), "long": Cost(3.0)}) == {
        "short": (0.0, 2.0),
        "long": (0.0, 4.0),
    }


def test_what_is_moved_leaves_the_device_to_others_or_slows_it_down() -> None:
    given = program(call("compute", "main"), call("move", "comm"))
    costs = {"compute": Cost(3.0), "move": Cost(0.0, 2.0)}
    assert ran(given, costs) == {"compute": (0.0, 3.0), "move": (0.0, 2.0)}
    # Two seconds at half the pace, and two more.
    slow = ran(given, costs, slower=2.0)
    assert slow == {"compute": (0.0, 4.0), "move": (0.0, 2.0)}


def test_two_transports_share_the_link_and_a_step_may_do_both() -> None:
    given = program(call("both", "main"), call("move", "comm"))
    assert ran(given, {"both": Cost(1.0, 1.0), "move": Cost(0.0, 2.0)}) == {
        "both": (0.0, 3.0),
        "move": (0.0, 3.0),
    }


def test_waits_are_for_the_record_before_them() -> None:
    given = program(
        call("a", "main"),
        Record("e", "main"),
        Wait("comm", "e", "b", ()),
        call("b", "comm"),
        call("c", "main"),
        Record("e", "main"),
        Join(),
        call("d", "comm"),
    )
    costs = dict.fromkeys("abcd", Cost(1.0))
    found = ran(given, {**costs, "b": Cost(0.0, 4.0)})
    assert found == {
        "a": (0.0, 1.0),
        "b": (1.0, 5.0),
        "c": (1.0, 2.0),
        "d": (5.0, 6.0),
    }


@cache
def halves() -> Plan:
    """Three layers in halves, whose reduction travels beside the other half."""
    file = pipeline.understand(Source("test.dfs", small_ranks.HALVES)).unwrap()
    model = trace(small_ranks.target(), "tests:target", {}).unwrap()
    (proved,) = pipeline.check_schedules(file, model).unwrap().plans
    return proved.plan


def parameters(moved: float, **changes: Any) -> Parameters:
    """A half computes for one second on two ranks; a rank moves all that it has."""
    given = Parameters(
        whole={"compute": 2.0},
        piece={"compute": 1.0},
        moved={"reduce": moved},
        cluster=PLAIN,
    )
    return replace(given, **changes)


@pytest.mark.parametrize(
    ("moved", "slower", "sequential", "scheduled"),
    [
        # A reduction of 2 bytes on two ranks takes 2 s, of a half 1 s: the first half
        # computes alone, the last reduction is alone, and five steps have both.
        (2.0, 1.0, 12.0, 7.0),
        # Reductions of a half take 2 s: six in a row behind the first half.
        (4.0, 1.0, 18.0, 13.0),
        # Beside a reduction of 1 s a half computes for 1.5 s.
        (2.0, 2.0, 12.0, 9.5),
        (0.0, 1.0, 6.0, 6.0),
    ],
)
def test_halves_of_three_layers(
    moved: float, slower: float, sequential: float, scheduled: float
) -> None:
    found = point(halves(), 2, parameters(moved, slower=slower))
    assert found.sequential == pytest.approx(sequential)
    assert found.scheduled == pytest.approx(scheduled)
    assert found.compute == pytest.approx(6.0)
    assert found.transport == pytest.approx(sequential - 6.0)
    assert found.speedup == pytest.approx(sequential / scheduled)
    assert found.bound == pytest.approx(sequential / max(6.0, sequential - 6.0))


def test_more_ranks_share_the_computing_and_not_the_bytes() -> None:
    # On four ranks a half computes for 0.5 s; its reduction takes 2 * 3 / 4 * 1 s.
    found = point(halves(), 4, parameters(2.0))
    assert found.compute == pytest.approx(3.0)
    assert found.transport == pytest.approx(9.0)
    assert found.scheduled == pytest.approx(0.5 + 6 * 1.5)
    # Where ranks have rows of their own they compute as before.
    found = point(halves(), 4, parameters(2.0, shared=False))
    assert found.compute == pytest.approx(6.0)


def test_steps_are_those_of_the_plan() -> None:
    found = simulated(halves(), halves().step, 2, parameters(2.0))
    assert [
        (one.call.label.removeprefix("prev."), one.iteration, one.begin)
        for one in found
        if one.call.part == "reduce"
    ] == [
        ("reduce[0]", 0, 1.0),
        ("reduce[1]", 0, 2.0),
        ("reduce[0]", 1, 3.0),
        ("reduce[1]", 1, 4.0),
        ("reduce[0]", 2, 5.0),
        ("reduce[1]", 2, 6.0),
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"whole": {}}, "no time is given for the part compute"),
        ({"piece": {}}, "no time is given for the part compute"),
        ({"moved": {}}, "no bytes are given for the part reduce"),
    ],
)
def test_what_is_not_given_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        point(halves(), 2, replace(parameters(2.0), **changes))


@pytest.mark.parametrize(
    ("kind", "ranks", "seconds"),
    [
        # Half of 100 bytes to the other rank, and half of the sums back.
        ("all_reduce", 2, 2 * (50 / 10 + 1)),
        # Inside machines of two, then a half of each between two machines.
        ("all_reduce", 4, 2 * (50 / 10 + 1 + 25 / 5 + 2)),
        ("all_gather", 2, 50 / 10 + 1),
        ("reduce_scatter", 8, 50 / 10 + 1 + 37.5 / 5 + 3 * 2),
        # 25 bytes to each: two of three others are on another machine.
        ("all_to_all", 4, 50 / 5 + 2 * 2),
        ("all_to_all", 2, 50 / 10 + 1),
        ("all_reduce", 1, 0.0),
    ],
)
def test_collectives_of_a_hundred_bytes(kind: str, ranks: int, seconds: float) -> None:
    cluster = Cluster(2, SLOW, FAR)
    assert cluster.seconds(kind, 100.0, ranks) == pytest.approx(seconds)


def test_what_has_no_cost_is_refused() -> None:
    cluster = Cluster(2, SLOW, FAR)
    with pytest.raises(ValueError, match="3 ranks are no whole machines of 2"):
        cluster.seconds("all_reduce", 1.0, 3)
    with pytest.raises(ValueError, match="the kind broadcast has no cost here"):
        cluster.seconds("broadcast", 1.0, 2)


def test_a_link_is_fitted_to_reductions_of_two_ranks() -> None:
    cluster = Cluster(8, Link(3e9, 5e-6), SLOW)
    samples = [(n, cluster.seconds("all_reduce", n, 2)) for n in (1e4, 1e6, 1e8)]
    found = fitted(samples)
    assert found.bandwidth == pytest.approx(3e9)
    assert found.latency == pytest.approx(5e-6)
    with pytest.raises(ValueError, match="two sizes and more"):
        fitted(samples[:1])
    with pytest.raises(ValueError, match="that is no link"):
        fitted([(1e4, 1.0), (1e8, 1.0)])


def documents(folder: Path) -> dict[str, str]:
    """What two ranks would have written: times of the plain case, in milliseconds."""
    cluster = Cluster(8, Link(1e9, 1e-6), SLOW)
    events = [
        {"cat": "step", "dur": 2000.0, "args": {"part": "compute", "layer": 1}},
        {"cat": "step", "dur": 1500.0, "args": {"part": "compute", "microbatch": 1}},
        {"cat": "step", "dur": 9999.0, "args": {"part": "reduce", "microbatch": 1}},
        {"cat": "work", "dur": 1.0, "args": {"part": "compute", "microbatch": 1}},
        {"ph": "M", "args": {"name": "main"}},
    ]
    found = {
        "trace": {"traceEvents": events},
        "bench": {
            "contenders": {
                "sequential": {"wall": [14000.0, 15000.0, 90000.0]},
                "scheduled": {"wall": [10000.0]},
            }
        },
        "transports": {
            "sizes": [
                {
                    "megabytes": n,
                    "calls": 8,
                    "milliseconds": {
                        "nccl": [8e3 * cluster.seconds("all_reduce", n * 1e6, 2)]
                    },
                }
                for n in (1.0, 10.0)
            ]
        },
    }
    for name, document in found.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return {name: str(folder / f"{name}.json") for name in found}


def run(words: list[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    monkeypatch.setattr(simulated_ranks, "read_plan", lambda *_: halves())
    out = folder / "out.json"
    simulated_ranks.main(["test.dfs", *words, "-o", str(out)])
    return json.loads(out.read_text())


def test_what_two_ranks_have_measured_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = documents(tmp_path)
    words = ["--megabytes", "reduce=2", "--ranks", "2", "4"]
    words += ["--profile", files["trace"], "--transports", files["transports"]]
    made = run(words, monkeypatch, tmp_path)
    assert made["simulated"] is True
    given = made["parameters"]
    assert given["whole"] == {"compute": pytest.approx(2e-3)}
    assert given["piece"] == {"compute": pytest.approx(1.5e-3)}
    assert given["cluster"]["inside"]["bandwidth"] == pytest.approx(1e9)
    # Three layers of 2 ms, and of a reduction of 2 MB.
    first, _ = made["points"]
    assert first["sequential"] == pytest.approx(3 * (2e-3 + 2e-3 + 2e-6))
    said = capsys.readouterr().out
    assert said.startswith("SIMULATED, not measured: test.dfs, entry decode")
    assert "| 2 | 12.01 | " in said
    assert "| 4 | " in said

    made = run([*words, "--bench", files["bench"]], monkeypatch, tmp_path)
    first, _ = made["points"]
    assert first["sequential"] == pytest.approx(15e-3)
    assert made["parameters"]["whole"]["compute"] == pytest.approx(2.998e-3)
    assert made["measured"] == {"ranks": 2, "speedup": 1.5}
    assert "Measured on 2 ranks: 1.500" in capsys.readouterr().out


def test_the_sequential_contender_is_named_or_found() -> None:
    walls = {"all-gather": 3.0, "all-to-all": 2.0, "scheduled": 1.0}
    document = {"contenders": {name: {"wall": [w]} for name, w in walls.items()}}
    micro = pytest.approx
    assert simulated_ranks.benched(document) == (micro(3e-6), micro(1e-6))
    named = simulated_ranks.benched(document, "all-to-all")
    assert named == (micro(2e-6), micro(1e-6))
    for name in ("sequential", "scheduled"):
        with pytest.raises(ValueError, match="contenders of --bench are all-gather"):
            simulated_ranks.benched(document, name)


def test_times_may_be_given_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--whole", "compute=2000", "--megabytes", "reduce=1", "--ranks", "2"]
    made = run([*words, "--overhead", "0.5"], monkeypatch, tmp_path)
    assert made["parameters"]["piece"] == {"compute": pytest.approx(1.5e-3)}
    made = run([*words, "--piece", "compute=900"], monkeypatch, tmp_path)
    assert made["parameters"]["piece"] == {"compute": pytest.approx(0.9e-3)}
    bench = documents(tmp_path)["bench"]
    slow = ["--bandwidth", "0.0001", "--bench", bench]
    with pytest.raises(SystemExit, match=r"collectives alone take \d+ us of the 15000"):
        run([*words, *slow], monkeypatch, tmp_path)
    with pytest.raises(SystemExit, match="no time is given for the part compute"):
        run(words[2:], monkeypatch, tmp_path)
