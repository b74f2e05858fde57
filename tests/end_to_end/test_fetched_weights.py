"""Layers whose weights are brought from host memory give what the model gives."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch

from dynaflow_dsl import pipeline
from dynaflow_dsl.models import llama, mamba
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import trace
from dynaflow_dsl.verification.stress_report import StressRun
from dynaflow_dsl.verification.stressed import stress_module
from tests.end_to_end.building import Built, build, run_verify
from tests.verification.mutations import Mutation, without_joins, without_waits

AHEAD = """dfs 1

schedule ahead:
    stream copy

    each layer in .model.layers.*:
        part fetch on copy = weights in .
        part body = rest

        order:
            fetch | prev.body
"""

TWO = """dfs 1

schedule two:
    stream copy
    stream side

    each layer in .model.layers.*:
        part bring_attn on copy = weights in (. - .mlp)
        part bring_mlp on copy = weights in .mlp
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest

        order:
            bring_attn | prev.mlp
            bring_mlp | attn
"""

HALVES = """dfs 1

schedule halves:
    stream copy
    stream side

    split batch into 2 as half

    each layer in .model.layers.*:
        part fetch on copy = weights in (.self_attn + .mlp)
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest

        order:
            fetch | prev.mlp[1]
            attn[0]
            mlp[0] | attn[1]
"""

IN_TURN = """dfs 1

schedule in_turn:
    each layer in .model.layers.*:
        part fetch = weights in .
        part body = rest

        order:
            fetch
            body
"""

GAPS = """dfs 1

schedule gaps:
    stream copy

    each layer in .model.layers.* having .mlp:
        part fetch on copy = weights in .mlp
        part body = .mlp

        order:
            fetch | prev.body
"""

# Weights of one size, brought by two parts that are as far ahead.
ALIKE = """dfs 1

schedule alike:
    stream copy

    each layer in .model.layers.*:
        part bring_gate on copy = weights in .mlp.gate_proj
        part bring_up on copy = weights in .mlp.up_proj
        part body = rest

        order:
            bring_gate, bring_up | prev.body
"""

SCHEDULES = {
    "ahead": AHEAD,
    "two": TWO,
    "halves": HALVES,
    "in_turn": IN_TURN,
    "gaps": GAPS,
    "alike": ALIKE,
}
BUFFERS = {
    "ahead": [2],
    "two": [1, 2],
    "halves": [2],
    "in_turn": [1],
    "gaps": [2],
    "alike": [2, 2],
}


@pytest.fixture(scope="module")
def ahead(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(llama.decode(layers=5), AHEAD, tmp_path_factory.mktemp("ahead"))


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_gives_what_the_model_gives(name: str, tmp_path: Path) -> None:
    built = build(llama.decode(layers=5), SCHEDULES[name], tmp_path)
    (plan,) = built.compiled.plans
    assert sorted(plan.plan.buffers.values()) == BUFFERS[name]
    (report,) = run_verify(built)
    assert report.ok, str(report)


def test_compiled_parts_read_the_buffers(ahead: Built) -> None:
    (report,) = run_verify(ahead, compiled=True, batches=(1, 3))
    assert report.ok, str(report)


def test_layers_that_differ(tmp_path: Path) -> None:
    spec = mamba.decode(layers=3)
    text = AHEAD.replace(".model.layers.*", ".backbone.layers.*")
    built = build(spec, text, tmp_path)
    (report,) = run_verify(built, batches=(2,))
    assert report.ok, str(report)


def faults(built: Built, mutation: Mutation) -> set[str]:
    module = built.mutated(mutation.text)
    (report,) = run_verify(built, module=module, batches=(2,))
    return {fault.kind for recorded in report.recordings for fault in recorded.faults}


@pytest.mark.parametrize("name", ["ahead", "two", "halves"])
def test_every_wait_is_needed(name: str, tmp_path: Path) -> None:
    built = build(llama.decode(layers=4), SCHEDULES[name], tmp_path)
    text = built.compiled.text
    mutations = [*without_waits(text), *without_joins(text)]
    assert len(mutations) > 4
    assert [m.name for m in mutations if not faults(built, m)] == []


@pytest.mark.parametrize("name", ["ahead", "two", "halves"])
def test_no_order_that_waits_allow_changes_a_bit(name: str, tmp_path: Path) -> None:
    built = build(llama.decode(layers=3), SCHEDULES[name], tmp_path)
    run = stressed(built, built.module)
    assert run.failures == ()
    # Of the steps that are watched, those that bring weights are some.
    assert run.pairs > 1
    assert run.both == run.pairs


def test_stress_finds_each_missing_wait(tmp_path: Path) -> None:
    built = build(llama.decode(layers=4), AHEAD, tmp_path)
    mutations = without_waits(built.compiled.text)
    assert len(mutations) == 4
    # Without the fork, a step brings weights before its inputs are there: no harm.
    for mutation in mutations[1:]:
        run = stressed(built, built.mutated(mutation.text))
        assert run.failures, mutation.name
        assert any("fetch layer" in str(one.pair) for one in run.failures)


def stressed(built: Built, module: ModuleType) -> StressRun:
    arguments = built.spec.entries["decode"].arguments({"batch": 4})
    report = stress_module(
        module,
        built.spec.model,
        arguments,
        batch=4,
        trials=8,
        adapter=built.spec.adapted(),
    )
    (run,) = report.runs
    return run


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        # Too few buffers: a layer finds the next one's weights where its own were.
        ("buffers=2", "buffers=1"),
        ("self.fetch(i)", "self.fetch(max(i - 1, 1))"),
        ("self.fetch(0)", "self.fetch(2)"),
    ],
)
def test_weights_of_another_layer_are_seen(
    ahead: Built, line: str, changed: str
) -> None:
    text = ahead.compiled.text
    step, _, rest = text.partition("    def sequential(")
    broken = step.replace(line, changed) + "    def sequential(" + rest
    if broken == text:
        broken = text.replace(line, changed)
    module = ahead.mutated(broken)
    (report,) = run_verify(ahead, module=module, batches=(2,))
    (recorded,) = report.recordings
    seen = [f for f in recorded.faults if f.kind == "weights of another layer"]
    assert seen
    assert " finds in its buffer what aten.copy_.default on copy (" in str(seen[0])
    # The buffers really take turns: the numbers are wrong as well.
    assert not any(one.ok for one in report.comparisons)


def test_sequential_brings_the_weights_too(
    ahead: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFSC_SEQUENTIAL", "1")
    (report,) = run_verify(ahead, batches=(2,))
    monkeypatch.undo()
    fine = [one.ok for one in report.comparisons]
    assert fine
    assert all(fine)


CHOSEN = f"""{AHEAD}
select by_size:
    when batch >= 4: ahead
    else:            sequential
"""


def test_a_select_runs_sequential_with_weights_from_the_host(tmp_path: Path) -> None:
    built = build(llama.decode(layers=3), CHOSEN, tmp_path)
    step = built.module.load(built.spec.model, compile=False)
    for batch, chosen in ((2, "sequential"), (4, "ahead"), (3, "sequential")):
        assert step.choice(batch=batch) == chosen
        arguments = built.spec.entries["decode"].arguments({"batch": batch})
        torch.manual_seed(0)
        copies = [
            [one.clone() for one in given] if isinstance(given, list) else given.clone()
            for given in arguments
        ]
        with torch.no_grad():
            expected = built.spec.adapted()(*copies)
        torch.testing.assert_close(step(*arguments), expected)


def refused(text: str, *entries: str) -> list[str]:
    """What is said of a file for entries of a model."""
    spec = llama.serve(layers=3) if entries else llama.decode(layers=3)
    model = trace(spec, "tests:target", {}).unwrap()
    file = pipeline.understand(Source("test.dfs", text)).unwrap()
    found = pipeline.check_schedules(file, model).diagnostics
    return [f"{d.code}: {d.message}" for d in found]


PLAIN = """
schedule plain:
    each layer in .model.layers.*:
        part body = rest + (own in .)
        order:
            body
"""


def test_other_schedules_of_a_module_fetch_the_same() -> None:
    (found,) = refused(f"{AHEAD}{PLAIN}")
    assert found.startswith("DFS208: part fetch cannot bring model.layers.0.")
    assert found.endswith("schedule plain for the entry decode reads it where it lies")
    twice = AHEAD.partition("\n")[2].replace("schedule ahead", "schedule again")
    assert refused(f"{AHEAD}{twice}") == []


def test_all_entries_of_a_module_fetch_the_same() -> None:
    assert refused(AHEAD, "decode", "prefill") == []
    chosen = """
select by_phase:
    when phase == prefill: ahead
    else:                  sequential
"""
    (found,) = refused(f"{AHEAD}{chosen}", "decode", "prefill")
    assert ": sequential for the entry decode reads it where it lies" in found


def test_entries_share_blocks_and_buffers(tmp_path: Path) -> None:
    built = build(llama.serve(layers=3), AHEAD, tmp_path)
    both = built.module.load(built.spec.model, compile=False)

    def memory(step: object) -> set[int]:
        calls = step.fetch.__closure__[0].cell_contents  # type: ignore[attr-defined]
        return {one.args[k].data_ptr() for one in calls for k in (0, 1)}

    assert memory(both.decode) == memory(both.prefill)
    assert len(memory(both.decode)) == 3 + 2
    report = both.decode.report()
    layer = sum(
        parameter.numel() * 4
        for parameter in built.spec.model.model.layers[0].parameters()
    )
    assert report.fetched.host == 3 * report.fetched.buffers // 2
    assert report.fetched.host >= 3 * layer
    assert report.fetched.count == 2
    assert "fetched to 2 buffers of" in str(report)
