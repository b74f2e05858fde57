"""Splits by phase: what runs, what steps are told, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl import pipeline
from dynaflow_dsl.bind.model import Binding
from dynaflow_dsl.cli.main import run
from dynaflow_dsl.cli.sizes import step_sizes
from dynaflow_dsl.runtime import Executor, InputError, PhaseSplit, Selected
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import Entry, TraceSpec, trace
from dynaflow_dsl.verification.verify import phase_pieces, verify
from dynaflow_dsl.views.data import schedule_data
from dynaflow_dsl.views.gantt import gantt
from dynaflow_dsl.views.windows import windows
from tests.end_to_end import flat
from tests.end_to_end.building import Built, build
from tests.end_to_end.flat import PHASES, arguments, flat_spec
from tests.runtime.fake_graphs import FakeGraphs

SIZES = [
    {"decode": 1, "prefill": 1},
    {"decode": 1, "prefill": 7},
    {"decode": 6, "prefill": 1},
    {"decode": 3, "prefill": 4},
    {"decode": 4, "prefill": 0},
    {"decode": 0, "prefill": 5},
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    text = PHASES.format(capture="")
    return build(flat_spec(), text, tmp_path_factory.mktemp("phases"))


def loaded(built: Built, **options: Any) -> Any:
    return built.module.load(built.spec.model, compile=False, **options)


def eager(built: Built, given: tuple[Any, ...]) -> torch.Tensor:
    with torch.no_grad():
        result = built.spec.model(*given)
    assert isinstance(result, torch.Tensor)
    return result


def copied(given: tuple[Any, ...]) -> tuple[Any, ...]:
    *plain, pools = given
    return (*[one.clone() for one in plain], [pool.clone() for pool in pools])


def whole(binding: Binding) -> set[str]:
    return {
        name
        for part in binding.everything
        if part.name in ("before", "after")
        for instance in part.instances
        for name in instance.operations
    }


def verified(built: Built, *, compiled: bool) -> Any:
    (binding,) = built.compiled.bindings
    return verify(
        built.module,
        built.spec.model,
        arguments,
        built.program("step"),
        whole(binding),
        phase_pieces(("decode", "prefill")),
        batches=SIZES,
        entry="step",
        claims={
            ("page[decode]", "prev.out[prefill]"),
            ("page[prefill]", "out[decode]"),
        },
        compiled=compiled,
        dimension="tokens",
    )


def test_every_partition_gives_what_the_model_gives(built: Built) -> None:
    report = verified(built, compiled=False)
    assert report.ok, str(report)
    assert (
        "tokens 8 (decode 1, prefill 7): text against reference: equal bit for bit"
        in (str(report))
    )
    # A step without rows of a phase runs unsplit, and orders nothing.
    concurrent = {(one.phases, one.concurrent != ()) for one in report.recordings}
    assert concurrent == {(tuple(s.items()), all(s.values())) for s in SIZES}


@pytest.mark.slow
def test_compiled_parts_take_pieces_of_any_size(built: Built) -> None:
    report = verified(built, compiled=True)
    assert report.ok, str(report)


def test_a_promise_that_does_not_hold_shows(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that decode read what the prompt of the same request writes in the step."""

    def meeting(sizes: Mapping[str, int]) -> tuple[Any, ...]:
        x, request, place, pools = arguments(sizes)
        rows, last = sizes["decode"], torch.full_like(place, 4)
        place = torch.where(torch.arange(len(x)) < rows, last, place)
        request = torch.where(torch.arange(len(x)) < rows, request[-1], request)
        return x, request, place, pools

    (binding,) = built.compiled.bindings
    report = verify(
        built.module,
        built.spec.model,
        meeting,
        built.program("step"),
        whole(binding),
        phase_pieces(("decode", "prefill")),
        batches=[{"decode": 1, "prefill": 2}],
        compiled=False,
    )
    assert not report.ok
    assert "text against model: NOT equal within" in str(report)


def test_the_text_goes_by_the_names_of_phases(built: Built) -> None:
    text = built.compiled.text
    assert 'split = PhaseSplit("tokens", ("decode", "prefill"))' in text
    assert "def step(self, x, request, place, pools, phases):" in text
    assert "def sequential(self, x, request, place, pools):" in text
    assert "phase_decode, phase_prefill = self.split.slices(phases)" in text
    assert "# page[decode] | prev.out[prefill]" in text
    assert "page_decode_done = side.record()" in text
    assert "hidden_decode" in text


def test_pieces_are_numbered_where_names_of_phases_would_collide(
    tmp_path: Path,
) -> None:
    names = ("chunk", "long_chunk")
    spec = flat_spec(
        entries={
            "step": Entry(
                lambda s: arguments({"decode": s["chunk"], "prefill": s["long_chunk"]}),
                phases={"tokens": names},
            )
        }
    )
    text = PHASES.format(capture="")
    for old, new in zip(("decode", "prefill"), names, strict=True):
        text = text.replace(old, new)
    built = build(spec, text, tmp_path)
    assert "phase_0, phase_1 = self.split.slices(phases)" in built.compiled.text
    assert "# page[chunk] | prev.out[long_chunk]" in built.compiled.text
    given = arguments({"decode": 2, "prefill": 3})
    expected = eager(built, copied(given))
    step = loaded(built)
    made = step(*copied(given), phases={"chunk": 2, "long_chunk": 3})
    torch.testing.assert_close(made, expected)


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        (None, "cut into `decode` and `prefill`, and nothing says how many rows of"),
        ([2, 3], "`phases` is a list, and must say how many rows each phase has"),
        ({"decode": 2}, "does not say how many rows `prefill` has"),
        ({"decode": 2, "prefil": 3}, "no phase 'prefil': did you mean `prefill`?"),
        ({"decode": 2, "x": 3}, "no phase 'x': there are `decode` and `prefill`."),
        ({"decode": -1, "prefill": 6}, "has -1 rows of `decode`; it must be a whole"),
        ({"decode": True, "prefill": 4}, "has True rows of `decode`"),
        ({"decode": 2.0, "prefill": 3}, "has 2.0 rows of `decode`"),
        ({"prefill": 3, "decode": 2}, "in this order, and `phases` has another"),
        (
            {"decode": 2, "prefill": 2},
            "`phases` has decode = 2, prefill = 2, 4 rows in all, and tokens = 5 in",
        ),
    ],
)
def test_what_steps_are_told_of_phases_is_checked(
    built: Built, phases: Any, said: str
) -> None:
    step = loaded(built)
    given = arguments({"decode": 2, "prefill": 3})
    before = copied(given)
    with pytest.raises(InputError) as caught:
        step(*given, phases=phases)
    assert caught.value.code == "DFS802"
    assert said in caught.value.message
    # Nothing has run.
    assert all(map(torch.equal, given[3], before[3]))


def test_an_empty_phase_runs_sequential(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = loaded(built)
    ran = []
    monkeypatch.setattr(
        type(step), "sequential", lambda self, *given: ran.append(len(given))
    )
    step(*arguments({"decode": 4, "prefill": 0}), phases={"decode": 4, "prefill": 0})
    assert ran == [4]
    step(*arguments({"decode": 3, "prefill": 1}), phases={"decode": 3, "prefill": 1})
    assert ran == [4]


NUMBERED = PHASES.replace("[decode, prefill]", "2").replace("[decode]", "[0]")
NUMBERED = NUMBERED.replace("[prefill]", "[1]").format(capture="")


def refused(spec: TraceSpec, text: str) -> list[Any]:
    file = pipeline.understand(Source("test.dfs", text)).unwrap()
    traced = trace(spec, "tests:target", {}).unwrap()
    checked = pipeline.check_schedules(file, traced)
    assert checked.value is None
    return list(checked.diagnostics)


def test_rows_of_one_phase_may_meet_so_a_number_of_pieces_is_refused() -> None:
    found = refused(flat_spec(), NUMBERED)
    assert {item.code for item in found} == {"DFS601"}
    (item,) = found
    assert "writes rows into a tensor that all microbatches share" in item.message
    assert item.helps[0] == (
        "cut by phase: split tokens into [decode, prefill] as phase"
    )


def test_without_phases_disjoint_means_every_row(tmp_path: Path) -> None:
    """Each row its own request: then any cut is right."""
    entry = Entry(lambda sizes: arguments({"decode": sizes["tokens"], "prefill": 0}))
    built = build(flat_spec(entries={"step": entry}), NUMBERED, tmp_path)
    given = arguments({"decode": 5, "prefill": 0})
    expected = eager(built, copied(given))
    torch.testing.assert_close(loaded(built)(*copied(given)), expected)


def test_what_is_not_declared_disjoint_is_refused() -> None:
    found = refused(flat_spec(disjoint=()), PHASES.format(capture=""))
    assert {item.code for item in found} == {"DFS601"}
    assert "all microbatches share" in found[0].message


SELECT = """dfs 1

select pick:
    when tokens >= 4: phased
    else: sequential
""" + PHASES.format(capture="").removeprefix("dfs 1\n")


def test_a_select_takes_phases_for_every_schedule(tmp_path: Path) -> None:
    built = build(flat_spec(), SELECT, tmp_path)
    step = loaded(built)
    assert isinstance(step, Selected)
    for sizes in SIZES:
        given = arguments(sizes)
        expected = eager(built, copied(given))
        torch.testing.assert_close(step(*copied(given), phases=sizes), expected)
    assert step.choice(tokens=5, decode=2, prefill=3) == "phased"
    assert step.choice(tokens=5, decode=0, prefill=5) == "sequential"
    assert step.choice(tokens=3, decode=1, prefill=2) == "sequential"
    with pytest.raises(InputError, match="nothing says how many rows"):
        step(*arguments(SIZES[3]))
    with pytest.raises(InputError, match="nothing says how many rows"):
        step.choice(tokens=5)


def test_a_phase_is_no_entry_and_no_size_of_a_select() -> None:
    for condition in ("phase == prefill", "prefill >= 4"):
        text = SELECT.replace("tokens >= 4", condition)
        (item,) = refused(flat_spec(), text)
        assert item.code in ("DFS102", "DFS106")
        assert item.notes == (
            "'prefill' is a phase of tokens in the entry 'step': 'split tokens into "
            "[decode, prefill]' cuts there, and conditions read whole dimensions",
        )


# ---- capture ------------------------------------------------------------------------

CAPTURE = "capture decode at [0, 2]\n    capture prefill at [0, 3]"


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeGraphs:
    backend = FakeGraphs()
    monkeypatch.setattr(
        "dynaflow_dsl.runtime.load.make_graphs", lambda device, streams, pools: backend
    )
    return backend


def test_graphs_go_by_the_rows_of_each_phase(
    tmp_path: Path, backend: FakeGraphs
) -> None:
    built = build(flat_spec(), PHASES.format(capture=CAPTURE), tmp_path)
    assert (
        'capture = Capture(\n        {"decode": (0, 2), "prefill": (0, 3)},\n'
        '        phases={"tokens": ("decode", "prefill")},\n'
    ) in built.compiled.text
    step = loaded(built)
    assert isinstance(step, Executor)
    assert isinstance(step.split, PhaseSplit)
    pools = [torch.randn(24, 5, 6) for _ in range(3)]

    def run(decode: int, prefill: int) -> None:
        phases = {"decode": decode, "prefill": prefill}
        given = (*arguments(phases)[:3], pools)
        before = [pool.clone() for pool in pools]
        expected = eager(built, (*given[:3], before))
        torch.testing.assert_close(step(*given, phases=phases), expected)
        for pool, wanted in zip(pools, before, strict=True):
            torch.testing.assert_close(pool, wanted)

    for _ in range(4):
        # Two steps of five tokens, of which one is captured.
        for phases in ((2, 3), (0, 3), (2, 0), (3, 2), (1, 1)):
            run(*phases)
    report = step.report()
    assert [(one.sizes, one.step) for one in report.sizes] == [
        ("decode = 0, prefill = 3", "sequential"),
        ("decode = 2, prefill = 0", "sequential"),
        ("decode = 2, prefill = 3", "step"),
    ]
    assert report.waiting == ()
    replay = step.replays.find if step.replays is not None else None
    assert replay is not None
    given = (*arguments(SIZES[3])[:3], pools)
    assert replay(given, {"decode": 3, "prefill": 4}) is None
    given = (*arguments({"decode": 2, "prefill": 3})[:3], pools)
    assert replay(given, {"decode": 2, "prefill": 3}) is not None
    # As many rows, cut elsewhere, or nobody says where.
    assert replay(given, {"decode": 3, "prefill": 2}) is None
    assert replay(given, None) is None


def test_inputs_may_lie_in_the_memory_of_a_graph(
    tmp_path: Path, backend: FakeGraphs
) -> None:
    built = build(flat_spec(), PHASES.format(capture=CAPTURE), tmp_path)
    step = loaded(built)
    phases = {"decode": 2, "prefill": 3}
    lent = step.buffers(tokens=5, **phases)
    assert sorted(lent) == ["place", "request", "x"]
    assert len(lent["x"]) == 5
    pools = [torch.randn(24, 5, 6) for _ in range(3)]
    for seed in range(3):
        torch.manual_seed(seed)
        given = (*arguments(phases)[:3], pools)
        for name, one in zip(("x", "request", "place"), given, strict=False):
            lent[name].copy_(one)
        expected = eager(built, copied(given))
        made = step(lent["x"], lent["request"], lent["place"], pools, phases=phases)
        torch.testing.assert_close(made, expected)
    assert len(step.report().sizes) == 1
    with pytest.raises(InputError, match="nothing says how many rows"):
        step.buffers(tokens=5)
    with pytest.raises(InputError, match="5 rows in all, and tokens = 6"):
        step.buffers(tokens=6, **phases)
    # As the step itself is called; phases alone say how many rows there are.
    for again in (
        step.buffers(phases=phases),
        step.buffers(tokens=5, phases=phases),
        step.buffers(**phases),
    ):
        assert again["x"].data_ptr() == lent["x"].data_ptr()
        assert len(again["x"]) == 5


CHOSEN = SELECT.replace("split tokens", f"{CAPTURE}\n    split tokens")


def test_a_select_captures_by_phase_what_it_runs_unsplit(
    tmp_path: Path, backend: FakeGraphs
) -> None:
    """Steps of fewer than four tokens are captured as well, as the model is."""
    built = build(flat_spec(), CHOSEN, tmp_path)
    step = loaded(built)
    pools = [torch.randn(24, 5, 6) for _ in range(3)]
    tried = [(2, 3), (2, 0), (0, 3), (3, 2), (2, 1)]
    for decode, prefill in tried * 3:
        phases = {"decode": decode, "prefill": prefill}
        given = (*arguments(phases)[:3], pools)
        expected = eager(built, copied(given))
        torch.testing.assert_close(step(*given, phases=phases), expected)
    report = step.report()["phased"]
    assert [(one.sizes, one.step) for one in report.sizes] == [
        ("decode = 0, prefill = 3", "sequential"),
        ("decode = 2, prefill = 0", "sequential"),
        ("decode = 2, prefill = 3", "step"),
    ]


# ---- what is shown and measured -----------------------------------------------------


def test_pieces_are_shown_by_the_names_of_phases(built: Built) -> None:
    (binding,) = built.compiled.bindings
    said = windows(binding.schedule, [3])
    assert "tokens in 2 pieces (decode, prefill) as phase" in said
    assert "    page[decode]  | prev.out[prefill]\n" in said
    assert "page[prefill] 1" in gantt(binding.schedule, [3])
    data = schedule_data(binding.schedule, [3])
    assert data["split"] == {"dimension": "tokens", "phases": ["decode", "prefill"]}


def test_steps_by_phase_are_repeated_with_delays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PHASES.format(capture="").replace(
        "dfs 1\n", 'dfs 1\n\nmodel "tests.end_to_end.flat:flat_spec"\n'
    )
    Path("phased.dfs").write_text(text, encoding="utf-8")
    few = ["--text-only", "--batch", "5", "--stress", "4"]
    assert run(["verify", "phased.dfs", *few]) == 0
    said = capsys.readouterr().out
    assert "entry step, stress at tokens 5: ok" in said
    assert "tokens 5 (decode 2, prefill 3): text against reference" in said


@pytest.mark.slow
def test_a_step_is_measured_with_as_many_rows_of_each_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PHASES.format(capture="").replace(
        "dfs 1\n", 'dfs 1\n\nmodel "tests.end_to_end.flat:flat_spec"\n'
    )
    Path("phased.dfs").write_text(text, encoding="utf-8")
    monkeypatch.setenv("DFSC_CACHE_DIR", str(tmp_path / "cache"))
    few = ["--rounds", "5", "--seconds", "0.001", "--size", "9"]
    only = ["--only", "eager", "--only", "scheduled"]
    assert run(["bench", "phased.dfs", *few, *only]) == 0
    said = capsys.readouterr().out
    assert "tokens = 9, decode = 4, prefill = 5 on cpu" in said


# ---- what verify tries --------------------------------------------------------------


@pytest.mark.parametrize("meet", [False, True])
def test_what_the_target_says_of_phases_is_tried(
    meet: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The tokens of a prompt meet in their request; none meets those that decode."""

    def made(sizes: Mapping[str, int]) -> tuple[Any, ...]:
        rows, request, place, pools = arguments(sizes)
        return rows, request * 0 if meet else request, place, pools

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flat, "arguments", made)
    text = PHASES.format(capture="").replace(
        "dfs 1\n", 'dfs 1\n\nmodel "tests.end_to_end.flat:flat_spec"\n'
    )
    Path("phased.dfs").write_text(text, encoding="utf-8")
    assert run(["verify", "phased.dfs", "--text-only", "--batch", "5"]) == int(meet)
    said = capsys.readouterr().out
    assert said.count("'disjoint' of the target states that rows are apart") == 3
    assert said.count("is written differently in pieces") == 3 * meet


def test_verify_tries_several_partitions(built: Built) -> None:
    (binding,) = built.compiled.bindings
    assert step_sizes([1, 3], binding.schedule) == [
        {"decode": 0, "prefill": 1},
        {"decode": 1, "prefill": 0},
        {"decode": 0, "prefill": 3},
        {"decode": 1, "prefill": 2},
        {"decode": 2, "prefill": 1},
        {"decode": 3, "prefill": 0},
    ]
