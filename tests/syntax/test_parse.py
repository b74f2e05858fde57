from __future__ import annotations

import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax import SyntaxTree, model, parse
from dynaflow_dsl.syntax.parse import MAX_ERRORS

EXAMPLES = sorted((Path(__file__).parent / "examples").rglob("*.dfs"))
HALVES = next(file for file in EXAMPLES if file.stem == "halves").read_text("utf-8")


def tree(text: str) -> SyntaxTree:
    return parse(Source("a.dfs", textwrap.dedent(text))).unwrap()


def codes(text: str) -> list[str]:
    return [each.code for each in parse(Source("a.dfs", text)).diagnostics]


def schedule(text: str) -> model.Schedule:
    found = tree(text).declarations[0]
    assert isinstance(found, model.Schedule)
    return found


def selector(text: str) -> model.SelectorExpression:
    group = tree(f"dfs 1\nparts p:\n    part a = {text}\n").declarations[0]
    assert isinstance(group, model.PartGroup)
    return group.parts[0].selector


def expression(text: str) -> model.Expression:
    statement = schedule(f"dfs 1\nschedule s:\n    require {text}\n").statements[0]
    assert isinstance(statement, model.Require)
    return statement.condition


def plain(node: object) -> object:
    """A node without its spans."""
    if isinstance(node, tuple):
        return tuple(map(plain, node))
    if is_dataclass(node) and not isinstance(node, Source):
        values = [
            plain(getattr(node, field.name))
            for field in fields(node)
            if field.name not in ("span", "source")
        ]
        return (type(node).__name__, *values)
    return node


def walk(node: object, above: Span | None) -> None:
    """Every node has a span with text in it."""
    if isinstance(node, tuple):
        for each in node:
            walk(each, above)
    elif is_dataclass(node) and not isinstance(node, Source | Span):
        span = getattr(node, "span", above)
        if not isinstance(node, SyntaxTree):
            assert isinstance(span, Span)
            assert span.text == span.text.strip() != ""
        for field in fields(node):
            walk(getattr(node, field.name), span)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_node_has_a_span(file: Path) -> None:
    walk(tree(file.read_text(encoding="utf-8")), None)


def test_spans_of_statements_and_names() -> None:
    halves = tree(HALVES)
    assert halves.model is not None
    assert halves.model.span.text.startswith('model "dynaflow_dsl.models')
    assert halves.model.span.text.endswith("(layers = 8)")
    plan = schedule(HALVES)
    assert plan.span.text == "schedule llama_halves:"
    assert plan.name.span.text == "llama_halves"
    each = plan.statements[-1]
    assert isinstance(each, model.Each)
    assert each.span.text == "each layer in .model.layers.*:"
    attn, _, stagger = each.body
    assert attn.span.text == "part attn on side = .input_layernorm + .self_attn"
    assert isinstance(stagger, model.Stagger)
    assert [window.span.text for window in stagger.windows] == ["attn", "mlp"]


def test_a_comment_block_above_a_schedule_is_its_doc() -> None:
    text = """
    dfs 1
    # not this

    # First line.
    #
    #   Indented.
    schedule a:
        # not this either
        stream side

    # nor this

    schedule b:
        stream side
    """
    first, second = tree(text).declarations
    assert isinstance(first, model.Schedule)
    assert isinstance(second, model.Schedule)
    assert first.doc == "First line.\n\n  Indented."
    assert second.doc == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.rstrip("\n"),
        lambda text: "\n\n# top\n\n" + text,
        lambda text: text + "\n   \n# end",
        lambda text: text.replace("\n\n", "\n  \n      # between\n"),
        lambda text: text.replace("rest", "rest   # and a comment"),
        lambda text: text.replace(
            " = .input_layernorm +", "=(\n.input_layernorm\n+ # a\n"
        ).replace(".self_attn", ".self_attn)"),
    ],
    ids=["crlf", "bom", "no-newline", "top", "end", "blank", "comment", "brackets"],
)
def test_layout_means_nothing(change: object) -> None:
    assert callable(change)
    changed = change(HALVES)
    assert changed != HALVES
    expected = plain(tree(HALVES))
    result = parse(Source("a.dfs", changed))
    assert plain(result.unwrap()) == expected
    assert result.diagnostics == ()


def test_selectors() -> None:
    a, b, c = (("Path", "scope", (name,)) for name in "abc")
    assert plain(selector(".")) == ("Path", "scope", ())
    assert plain(selector("root.model.norm")) == ("Path", "root", ("model", "norm"))
    assert plain(selector("next.")) == ("Path", "next", ())
    assert plain(selector(".x.**.l?_*")) == ("Path", "scope", ("x", "**", "l?_*"))
    assert plain(selector(".a - .b + .c")) == (
        "SetOperation",
        "+",
        ("SetOperation", "-", a, b),
        c,
    )
    assert plain(selector(".a - (.b + .c)")) == (
        "SetOperation",
        "-",
        a,
        ("SetOperation", "+", b, c),
    )
    assert plain(selector("own in .a")) == ("OperationsIn", ("Name", "own"), a)
    assert plain(selector('".*" in (.a or b)')) == (
        "OperationsIn",
        ("String", ".*"),
        ("FirstMatch", a, ("PartReference", "b")),
    )


def test_spans_of_selectors_include_brackets_of_their_operands() -> None:
    union = selector("(.a + .b) - (own in .c)")
    assert isinstance(union, model.SetOperation)
    assert union.span.text == "(.a + .b) - (own in .c)"
    assert union.left.span.text == ".a + .b"


def test_expressions() -> None:
    assert plain(expression("1 + 2 * 3 >= 0.5 or not a and true")) == (
        "Logical",
        "or",
        (
            "Comparison",
            ">=",
            (
                "Arithmetic",
                "+",
                ("Number", 1),
                ("Arithmetic", "*", ("Number", 2), ("Number", 3)),
            ),
            ("Number", Fraction(1, 2)),
        ),
        ("Logical", "and", ("Not", ("Symbol", "a")), ("Boolean", True)),
    )
    assert plain(expression('arch in ["a", 7 // 2 % 3,]')) == (
        "Comparison",
        "in",
        ("Symbol", "arch"),
        (
            "ListOf",
            (
                ("String", "a"),
                (
                    "Arithmetic",
                    "%",
                    ("Arithmetic", "//", ("Number", 7), ("Number", 2)),
                    ("Number", 3),
                ),
            ),
        ),
    )


def test_timelines() -> None:
    plan = schedule(
        """
        dfs 1
        schedule s:
            order:
                a[0], b after prev.c[1] | d[*]
                (x[prefill]
                    | prev.y)
        """
    )
    order = plan.statements[0]
    assert isinstance(order, model.Order)

    def reference(name: str, index: object = None, previous: bool = False) -> object:
        return ("Reference", ("Name", name), previous, index)

    assert plain(order.windows) == (
        (
            "Window",
            (
                (
                    "Run",
                    (
                        ("Step", reference("a", ("Number", 0)), None),
                        (
                            "Step",
                            reference("b"),
                            reference("c", ("Number", 1), previous=True),
                        ),
                    ),
                ),
                ("Run", (("Step", reference("d", ("AllPieces",)), None),)),
            ),
        ),
        (
            "Window",
            (
                ("Run", (("Step", reference("x", ("Name", "prefill")), None),)),
                ("Run", (("Step", reference("y", None, previous=True), None),)),
            ),
        ),
    )
    step = order.windows[1].runs[1].steps[0].reference
    assert (step.span.text, step.name.span.text) == ("prev.y", "y")


def test_a_select() -> None:
    serving = next(file for file in EXAMPLES if file.stem == "serving")
    select = tree(serving.read_text(encoding="utf-8")).declarations[-1]
    assert isinstance(select, model.Select)
    assert len(select.conditions) == 2
    assert [case.choice.name.text for case in select.cases] == [
        "llama_tokenweave",
        "llama_nanoflow",
        "llama_two_batch",
    ]
    assert select.otherwise.choice.name.text == "sequential"
    assert [parameter.name.text for parameter in select.parameters] == [
        "small",
        "large",
    ]


def test_keywords_end_where_words_end() -> None:
    assert codes("dfs 1\nschedule s:\n    streamside\n") == ["DFS004"]
    assert codes("dfs1\n") == ["DFS014"]


def test_keywords_are_names_where_no_keyword_can_stand() -> None:
    assert schedule("dfs 1\nschedule order:\n    stream part\n").name.text == "order"


def test_independent_errors_are_found_in_one_run() -> None:
    text = """dfs 1

schedule a:
    stream $
    split batch 2 as half
    each layer in .l:
        part x = .y .z
        order
            x || x

    require a = b

schedule b
    stream = side

schedule c:
    stream side,
"""
    assert codes(text) == [
        "DFS001",
        "DFS004",
        "DFS004",
        "DFS010",
        "DFS016",
        "DFS010",
        "DFS004",
    ]


def test_blocks_that_become_empty_are_not_reported() -> None:
    text = "dfs 1\nschedule s:\n    each l in .m:\n        order:\n            a ||\n"
    assert codes(text) == ["DFS004"]
    assert codes("dfs 1\nselect s:\n    when a: b\n    else b\n") == ["DFS004"]


def test_the_number_of_errors_is_bounded() -> None:
    text = "dfs 1\nschedule s:\n" + "    strem side\n" * (3 * MAX_ERRORS)
    assert codes(text) == ["DFS004"] * MAX_ERRORS
    tabs = "dfs 1\nschedule s:\n" + "\tstream side\n" * (3 * MAX_ERRORS)
    assert codes(tabs) == ["DFS002"] * MAX_ERRORS


@pytest.mark.parametrize(
    "text",
    [
        "dfs 1\n" + "(" * 100_000,
        "dfs 1\nparts p:\n    part a = " + "(" * 5_000 + ".b" + ")" * 5_000,
        "dfs 1\nparts p:\n    part a = " + " + ".join([".b"] * 5_000),
        "dfs 1\nschedule s:\n    require " + "not " * 5_000 + "a\n",
        "dfs 1\nschedule s:\n    require " + "[" * 5_000 + "]" * 5_000,
        "dfs 1\n" + "".join(" " * depth + "a:\n" for depth in range(500)),
        "dfs 1\n" + "\ufeff\r\r" * 1_000,
        "dfs 1\n" + "9" * 10_000 + "\n",
        "dfs " + "9" * 10_000 + "\n",
        'dfs 1\nmodel "' + "x" * 10_000,
        "\0" * 1_000,
        "dfs 1\nschedule s:\n    order:\n        " + "a|" * 100_000,
    ],
    ids=lambda text: f"{text[:30]!r}-{len(text)}",
)
def test_junk_gives_a_diagnostic(text: str) -> None:
    result = parse(Source("a.dfs", text))
    assert result.value is None
    assert result.diagnostics


def test_the_deepest_that_is_read() -> None:
    assert parse(
        Source("a.dfs", "dfs 1\nparts p:\n    part a = " + " + ".join([".b"] * 201))
    ).ok


def test_one_parser_serves_several_threads() -> None:
    texts = [file.read_text(encoding="utf-8") for file in EXAMPLES] * 3
    alone = [plain(tree(text)) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda text: plain(tree(text)), texts)) == alone
