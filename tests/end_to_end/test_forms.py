"""Sections, gaps, `after`, joined parts and streams per piece, from text to results."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.cli.verify import claims_of
from dynaflow_dsl.diagnostics import DiagnosticError
from tests.end_to_end import forms
from tests.end_to_end.building import Built, build, run_verify
from tests.simulator.text import judge
from tests.verification.mutations import without_waits

TRANSLATE = """dfs 1

schedule translate:
    stream side

    split batch into {into} as half

    each block in .encoder.*:
        part up on side = .a
        part down = rest

        stagger half by 1:
            up
            down

    each layer in .decoder.*:
        part own_part on side = .own
        part cross = rest

        {timeline}
"""
STAGGER = "stagger half by 1:\n            own_part\n            cross"
ORDER = "order:\n            own_part\n            cross"

CHAIN = """dfs 1

schedule chain:
    stream side

    split batch into {into} as half

    each block in .first.*:
        part one on side = .a
        part two = rest
        stagger half:
            one
            two
    each layer in .second.*:
        part three on side = .own
        part four = rest
        stagger half:
            three
            four
"""

TOWERS = """dfs 1

schedule towers:
    stream side
{split}
    part text on side = .text
    part vision = .vision
    part head = .head

    order:
        text | vision
        head
"""

STEM = """dfs 1

schedule stem:
    stream side

    split batch into {into} as half

    part stem = .stem
    part gate on side = .gate

    {timeline}

    each layer in .layers.*:
        part up on side = .a
        part down = rest

        stagger half by 1:
            up
            down
"""

SKIP = """dfs 1

schedule skip:
    stream side
{split}
    each layer in .layers.*:
        part up on side = .a
        part down = rest

        {timeline}
"""
HALVES = "stagger half by 1:\n            up\n            down"
PLAIN = "order:\n            up\n            down"

REMIND = """dfs 1

schedule remind:
    stream side

    split batch into {into} as half

    each layer in .layers.*:
        part own_part on side = .own
        part cross = rest

        stagger half by 1:
            own_part
            cross
"""

CENTRED = """dfs 1

schedule centred:
    stream side

    split batch into {into} as half

    each layer in .layers.*:
        part first = .a
        part mixed on {stream} = .mix
        part last = rest

        order:
            first
            mixed[*]
            last
"""

LANES = """dfs 1

schedule lanes:
    stream s0
    stream s1

    split batch into {into} as half

    each layer in .layers.*:
        part up on [s0, s1] = .a
        part down on [s0, s1] = rest

        order:
            {first}
            {second}
"""


def right(built: Built, batches: tuple[int, ...] = (1, 2, 5, 7)) -> str:
    """The text, once it agrees with the model and no order of its streams is wrong."""
    claims = claims_of(built.compiled.bindings[0].schedule)
    for report in run_verify(built, batches=batches, claims=claims):
        assert report.ok, str(report)
    assert judge(built.compiled.text) == []
    return built.compiled.text


def split(into: str) -> str:
    return f"\n    split batch into {into} as half\n" if into else ""


@pytest.mark.parametrize("into", ["2", "[3, 1]", "3"])
@pytest.mark.parametrize("timeline", [STAGGER, ORDER])
def test_a_decoder_that_reads_the_encoder(
    into: str, timeline: str, tmp_path: Path
) -> None:
    spec = forms.target(forms.Translator(), "x", "y")
    built = build(spec, TRANSLATE.format(into=into, timeline=timeline), tmp_path)
    text = right(built)
    assert "def gap(w, " in text
    assert text.count("        for i in range(") == 4


@pytest.mark.parametrize("into", ["2", "[1, 2]"])
@pytest.mark.parametrize("again", [False, True])
def test_a_stack_that_goes_on_with_another(
    into: str, again: bool, tmp_path: Path
) -> None:
    spec = forms.target(forms.Chain(again=again), "x")
    text = right(build(spec, CHAIN.format(into=into), tmp_path))
    # Where the first result is read to the end, the second stack has names of its own.
    assert ("hidden_b" in text) == again


@pytest.mark.parametrize("into", ["", "2", "[2, 1]"])
def test_two_towers(into: str, tmp_path: Path) -> None:
    spec = forms.target(forms.Towers(), "x", "y")
    text = right(build(spec, TOWERS.format(split=split(into)), tmp_path))
    step = text.partition("def step")[2].partition("def sequential")[0]
    assert "for i in" not in step


@pytest.mark.parametrize("into", ["2", "[1, 2]"])
@pytest.mark.parametrize(
    "timeline",
    [
        "order:\n        gate | stem",
        "stagger half by 1:\n        gate\n        stem",
    ],
)
def test_a_section_of_the_model_and_its_layers(
    into: str, timeline: str, tmp_path: Path
) -> None:
    spec = forms.target(forms.Stem(), "x")
    right(build(spec, STEM.format(into=into, timeline=timeline), tmp_path))


@pytest.mark.parametrize(
    ("into", "timeline"),
    [(into, PLAIN) for into in ("", "2", "[3, 1]", "3")]
    + [(into, HALVES) for into in ("2", "[3, 1]", "3")],
)
@pytest.mark.parametrize(
    "after", [(0, 1, 2, 3, 4), (1,), (0, 3, 4, 5), (0, 1, 3, 4), (5,)]
)
def test_layers_with_something_between(
    into: str, timeline: str, after: tuple[int, ...], tmp_path: Path
) -> None:
    spec = forms.target(forms.Skipping(after), "x")
    built = build(spec, SKIP.format(split=split(into), timeline=timeline), tmp_path)
    text = right(built, (1, 3, 7))
    assert ("self.gap(" in text) == (after != (5,))
    step = text.partition("def step")[2].partition("def sequential")[0]
    assert " if " not in step


@pytest.mark.parametrize("into", ["2", "[1, 3]"])
def test_something_new_before_every_layer(into: str, tmp_path: Path) -> None:
    spec = forms.target(forms.Reminded(), "x")
    text = right(build(spec, REMIND.format(into=into), tmp_path))
    assert "self.gap(i" in text


@pytest.mark.parametrize("into", ["2", "[3, 1]", "3"])
@pytest.mark.parametrize("stream", ["main", "side"])
def test_a_part_over_all_pieces(into: str, stream: str, tmp_path: Path) -> None:
    text = CENTRED.format(into=into, stream=stream)
    if stream == "main":
        text = text.replace("first = ", "first on side = ")
    built = build(forms.target(forms.CentredStack(), "x"), text, tmp_path)
    assert "mixed" in right(built)


def test_a_part_that_mixes_rows_has_to_run_over_all_pieces(tmp_path: Path) -> None:
    text = CENTRED.format(into="2", stream="side").replace("[*]", "")
    with pytest.raises(DiagnosticError, match="DFS601"):
        build(forms.target(forms.CentredStack(), "x"), text, tmp_path)


@pytest.mark.parametrize("into", ["2", "[2, 1]"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("up", "down"),
        ("up[0] | up[1]", "down[0] | down[1]"),
        ("up[0] | prev.down[1]", "down[0] | up[1]"),
    ],
)
def test_a_stream_for_each_piece(
    into: str, first: str, second: str, tmp_path: Path
) -> None:
    spec = forms.target(forms.Skipping((1, 2)), "x")
    text = LANES.format(into=into, first=first, second=second)
    right(build(spec, text, tmp_path))


AFTER = """dfs 1

schedule ordered:
    stream side
    stream far

    split batch into {into} as half

    each layer in .layers.*:
        part up on side = .own
        part mem on far = .cross
        part down = rest

        order:
            {windows}
"""


def windows(*lines: str) -> str:
    return "\n            ".join(lines)


@pytest.mark.parametrize("into", ["2", "[1, 3]"])
def test_an_order_that_the_data_does_not_need(into: str, tmp_path: Path) -> None:
    spec = forms.target(forms.Shared(), "x", "y")
    lines = windows("up", "mem[0] after up[0]", "mem[1]", "down")
    text = right(build(spec, AFTER.format(into=into, windows=lines), tmp_path))
    assert "# mem[0] after up[0], as the schedule says" in text
    # Without it nothing makes far wait for side.
    plain = windows("up", "mem[0]", "mem[1]", "down")
    text = right(build(spec, AFTER.format(into=into, windows=plain), tmp_path))
    assert "as the schedule says" not in text


def test_an_order_to_the_iteration_before_and_to_all_pieces(tmp_path: Path) -> None:
    spec = forms.target(forms.Shared(), "x", "y")
    lines = windows("mem[0] after prev.up", "mem[1]", "up | mem[2]", "down")
    text = right(build(spec, AFTER.format(into="3", windows=lines), tmp_path))
    assert (
        "far.wait(up_2_done)  # mem[0] after prev.up[2], as the schedule says" in text
    )


def refused(into: str, *lines: str) -> DiagnosticError:
    spec = forms.target(forms.Shared(), "x", "y")
    with pytest.raises(DiagnosticError) as caught:
        build(spec, AFTER.format(into=into, windows=windows(*lines)), Path())
    return caught.value


def test_an_order_against_the_text() -> None:
    found = refused("2", "mem[0] after up[0]", "up", "mem[1]", "down").diagnostics
    assert [(d.code, d.message) for d in found] == [
        ("DFS306", "mem[0] comes after up[0], which is issued later")
    ]
    found = refused("2", "up[0] after up[0]", "up[1]", "mem", "down").diagnostics
    assert [(d.code, d.message) for d in found] == [
        ("DFS306", "up[0] cannot come after itself")
    ]


def test_an_order_that_a_window_denies() -> None:
    found = refused("2", "up | mem after up", "down").diagnostics
    assert {d.code for d in found} == {"DFS302"}


def test_an_order_that_is_there_anyway() -> None:
    (found,) = refused("2", "up", "mem", "down[0] after up[0]", "down[1]").diagnostics
    assert (found.code, found.message) == (
        "DFS318",
        "'after up[0]' has no effect on down[0]",
    )
    assert found.primary is not None
    assert found.primary.text == ("comes after up[0] anyway: it reads what up[0] makes")
    (found,) = refused("2", "up[0]", "up[1] after up[0]", "mem", "down").diagnostics
    assert found.primary is not None
    assert found.primary.text == ("comes after up[0] anyway: both run on side")
    (found,) = refused(
        "2", "up", "mem[0] after up[0]", "mem[1] after up[0]", "down"
    ).diagnostics
    assert found.primary is not None
    assert found.primary.text == (
        "comes after up[0] anyway: it follows mem[0], which follows up[0]"
    )


def mutated_forms(folder: Path) -> dict[str, Built]:
    """One module with gaps, one with sections, one with a joined part."""
    return {
        "gaps": build(
            forms.target(forms.Skipping((0, 3, 4)), "x"),
            SKIP.format(split=split("2"), timeline=HALVES),
            folder,
        ),
        "sections": build(
            forms.target(forms.Translator(), "x", "y"),
            TRANSLATE.format(into="2", timeline=STAGGER),
            folder,
        ),
        "joined": build(
            forms.target(forms.CentredStack(), "x"),
            CENTRED.format(into="2", stream="side"),
            folder,
        ),
    }


@pytest.mark.parametrize("name", ["gaps", "sections", "joined"])
def test_verify_finds_each_wait_that_is_left_out(name: str, tmp_path: Path) -> None:
    built = mutated_forms(tmp_path)[name]
    mutations = without_waits(built.compiled.text)
    assert mutations
    for mutation in mutations:
        (report,) = run_verify(built, module=built.mutated(mutation.text), batches=(6,))
        assert any(recorded.faults for recorded in report.recordings), mutation.name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaps", "sections", "joined"])
def test_compiled_forms(name: str, tmp_path: Path) -> None:
    built = mutated_forms(tmp_path)[name]
    (report,) = run_verify(built, batches=(2, 5), compiled=True)
    assert report.ok, str(report)
