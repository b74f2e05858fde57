from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.pipeline import read_schedule
from dynaflow_dsl.resolve import ScheduleFile, model, resolve
from dynaflow_dsl.resources import folder
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse

HALVES = (folder("schedules") / "llama" / "halves.dfs").read_text(encoding="utf-8")
EXAMPLES = sorted((Path(__file__).parents[1] / "syntax" / "examples").rglob("*.dfs"))


def file(text: str) -> ScheduleFile:
    return resolve(parse(Source("a.dfs", text)).unwrap()).unwrap()


def codes(text: str) -> list[str]:
    tree = parse(Source("a.dfs", text)).unwrap()
    return [found.code for found in resolve(tree).diagnostics]


def test_halves() -> None:
    found = file(HALVES)
    assert found.model is not None
    assert found.model.target == "dynaflow_dsl.models.llama:decode"
    assert found.model.arguments == (("layers", 8),)
    (plan,) = found.schedules
    assert plan.name == "llama_halves"
    assert plan.doc.startswith("While one half is in attention")
    assert [stream.name for stream in plan.streams] == ["side"]
    assert plan.pieces == 2
    assert plan.sections[0].each.name == "layer"
    assert plan.sections[0].each.path.pattern == ("model", "layers", "*")
    attn, mlp = plan.parts
    assert (attn.name, attn.streams) == ("attn", ("side", "side"))
    assert (mlp.name, mlp.streams) == ("mlp", ("main", "main"))
    assert isinstance(attn.selector, model.UnionSelector)
    assert isinstance(attn.selector.left, model.PathSelector)
    assert attn.selector.left.pattern == ("input_layernorm",)
    assert isinstance(mlp.selector, model.RestSelector)
    assert attn.name_span.text == "attn"
    assert plan.span.text == "schedule llama_halves:"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_every_example_of_the_language_is_understood(example: Path) -> None:
    assert read_schedule(example).diagnostics == ()


def test_selectors() -> None:
    text = HALVES.replace(
        ".input_layernorm + .self_attn", "(own in .) + (next.a - root.b.*) - mlp"
    ).replace("= rest", "= .mlp")
    attn = file(text).schedules[0].parts[0].selector
    assert isinstance(attn, model.DifferenceSelector)
    assert isinstance(attn.right, model.PartSelector)
    assert attn.right.name == "mlp"
    assert isinstance(attn.left, model.UnionSelector)
    assert isinstance(attn.left.left, model.OwnSelector)
    assert attn.left.left.operand.pattern == ()
    inner = attn.left.right
    assert isinstance(inner, model.DifferenceSelector)
    assert isinstance(inner.left, model.PathSelector)
    assert isinstance(inner.right, model.PathSelector)
    assert (inner.left.anchor, inner.left.pattern) == ("next", ("a",))
    assert (inner.right.anchor, inner.right.pattern) == ("root", ("b", "*"))


def test_arguments_of_the_model() -> None:
    line = '(a = 1 + 1, b = 0.5, c = "x", d = true, e = 7 // 2, f = 1 - 2)'
    found = file(HALVES.replace("(layers = 8)", line)).model
    assert found is not None
    assert dict(found.arguments) == {
        "a": 2,
        "b": 0.5,
        "c": "x",
        "d": True,
        "e": 3,
        "f": -1,
    }
    assert [type(value) for _, value in found.arguments] == [
        int,
        float,
        str,
        bool,
        int,
        int,
    ]


def test_a_file_without_schedules_means_nothing_and_is_fine() -> None:
    found = file("dfs 1\n")
    assert (found.model, found.schedules) == (None, ())


def test_parts_may_be_read_before_they_are_declared() -> None:
    text = HALVES.replace(".self_attn", ".self_attn - mlp").replace("rest", ".mlp")
    assert codes(text) == []


def test_a_long_chain_of_parts_is_read_without_recursion() -> None:
    parts = "".join(f"        part p{n} = p{n + 1} + .x\n" for n in range(2000))
    steps = "".join(f"            p{n}\n" for n in range(2001))
    text = f"dfs 1\nschedule s:\n    each l in .l:\n{parts}        part p2000 = .y\n"
    assert codes(f"{text}        order:\n{steps}") == []


def test_several_schedules() -> None:
    second = HALVES[HALVES.index("# While") :].replace("halves", "thirds")
    found = file(HALVES + "\n" + second)
    assert [plan.name for plan in found.schedules] == ["llama_halves", "llama_thirds"]


@pytest.mark.parametrize(
    "change",
    [
        ("layers = 8", "layers = 4"),
        ("models.llama", "models.moe"),
        ("llama_halves", "other"),
        ("side", "aside"),
        ("half", "piece"),
        ("into 2", "into [2, 1]"),
        ("as half", "as half (align = 2)"),
        (".model.layers.*", ".model.blocks.*"),
        ("layer in", "block in"),
        ("+ .self_attn", "- .self_attn"),
        ("+ .self_attn", "+ next.self_attn"),
        ("part attn on side", "part attn on [side, main]"),
        ("mlp", "feed_forward"),
        ("rest", "own in ."),
        ("half by 1", "half by 0"),
    ],
    ids=lambda change: f"{change[0]}-{change[1]}",
)
def test_the_digest_follows_the_meaning(change: tuple[str, str]) -> None:
    changed = HALVES.replace(*change)
    assert changed != HALVES
    assert file(changed).digest != file(HALVES).digest


@pytest.mark.parametrize(
    "change",
    [
        ("# While", "# Whilst"),
        ("\n\n", "\n\n\n# more\n"),
        ("\n", "\r\n"),
        ("    ", "  "),
        (" by 1", ""),
        ("into 2", "into [1, 1]"),
        ("into 2", "into [0.5, 0.5]"),
        ("as half", "as half (align = 1)"),
        ("part mlp", "part mlp on main"),
        (
            "stagger half by 1:\n            attn\n            mlp",
            "order:\n            attn[0] | prev.mlp[1]\n            mlp[0] | attn[1]",
        ),
    ],
    ids=lambda change: f"{change[0]!r}-{change[1]!r}"[:40],
)
def test_the_digest_ignores_layout_and_wording(change: tuple[str, str]) -> None:
    changed = HALVES.replace(*change)
    assert changed != HALVES
    assert file(changed).digest == file(HALVES).digest


def test_the_digest_is_stable() -> None:
    digest = file(HALVES).digest
    assert len(digest) == 12
    assert int(digest, 16) >= 0
    assert digest == "9954ef40e9cf"
