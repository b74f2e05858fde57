"""Modules are born as `ruff format` leaves them, whatever they hold."""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynaflow_dsl.bind import bind
from dynaflow_dsl.emit import emit
from dynaflow_dsl.emit.layout import docstring, string
from dynaflow_dsl.graph.model import Constant, Operation, Reference, Value
from dynaflow_dsl.plan import plan
from dynaflow_dsl.prove.model import ProvedPlan
from tests.emit.formatting import formatted
from tests.plan.layered import ROWS, Layered, Read, Shape, file_of, graph_of, traced
from tests.prove.schedules import (
    fetching,
    order,
    scheduled,
    schedules,
    stagger,
    weighted,
    written,
)

SCHEDULES = {**schedules(), **fetching()}
LONG = "a_part_whose_name_says_everything_that_it_does_and_a_little_more"


@pytest.mark.parametrize("name", SCHEDULES)
def test_all_kinds_of_schedules(name: str) -> None:
    text = SCHEDULES[name].text()
    assert formatted(text) == text


@pytest.mark.parametrize("length", [1, 8, 17, 24, 33, 45, len(LONG)])
def test_names_of_every_length(length: int) -> None:
    first = f"p{LONG[:length]}"
    model = Layered(
        (
            Shape(first, (Read("q", carried=True),), outputs=3, cache="w"),
            Shape("q", tuple(Read(first, k) for k in range(3))),
        ),
        layers=3,
        results=(),
        head=(("q", 0), (first, 0), (first, 1)),
        argument=f"x{LONG[:length]}",
    )
    for pieces in (1, 2, 4):
        timeline = order(f"{first}, q") if pieces == 1 else order(first, "q")
        text = scheduled(
            model,
            {"q": "side"} if pieces > 1 else {},
            pieces,
            timeline,
            *(["side"] if pieces > 1 else []),
        ).text()
        assert formatted(text) == text


@pytest.mark.parametrize("length", [1, 8, 17, 24, 33, 45, len(LONG)])
def test_parts_that_bring_weights_with_names_of_every_length(length: int) -> None:
    name = f"p{LONG[:length]}"
    text = f"""    stream s_{name}
    each layer in .layers.*:
        part {name} on s_{name} = weights in .
        part body = rest
        order:
            {name} | prev.body
"""
    made = written(weighted(3), text).text()
    assert formatted(made) == made


def test_many_parts_and_streams() -> None:
    names = [f"part{k}" for k in range(12)]
    shapes = [Shape(names[0], (Read(names[-1], carried=True),), outputs=2)]
    for before, name in pairwise(names):
        reads = dict.fromkeys((Read(before), Read(names[0], 1)))
        shapes.append(Shape(name, tuple(reads)))
    model = Layered(tuple(shapes), 3, ((names[5], 0),), ((names[-1], 0),))
    streams = [f"stream{k}" for k in range(11)]
    on: dict[str, str | list[str]] = dict(zip(names, streams, strict=False))
    text = scheduled(model, on, 4, stagger(*names), *streams).text()
    assert formatted(text) == text


def module_with(doc: str = "", operations: tuple[Operation, ...] = ()) -> str:
    model = SCHEDULES_MODEL
    graph = graph_of(model)
    graph = replace(graph, operations=(*operations, *graph.operations))
    file = file_of(model, {}, 1, order("attn", "mlp"), ())
    schedule = replace(file.schedules[0], doc=doc)
    plan_ = plan(bind(schedule, graph).unwrap()).unwrap()
    return emit([ProvedPlan(plan_, 0, ())], file, "s", "s.dfs", traced(model)).text


SCHEDULES_MODEL = Layered(
    (
        Shape("attn", (Read("mlp", carried=True),)),
        Shape("mlp", (Read("attn"),)),
    ),
    layers=2,
    results=(),
    head=(("mlp", 0),),
)

DOCS = [
    'ends in a "quote"',
    '"starts" with one',
    'three """ of them',
    "ends in a backslash \\",
    r"C:\new\table and \N{BULLET}",
    "first line\n\nparagraph\n  indented\n    more\nback",
    "first\n    all of the rest\n    is indented",
    "    indented first\nthen not",
    "trailing spaces   \n   \nend",
    "a\ttab\n\tand a tab first",
    "é ü 漢字 " * 12,
    "one long line " * 12,
    "{{ braces }} {% statements %} # comment",
    "'''",
    "\\",
    '"',
    "ends in a blank line\n",
]


@pytest.mark.parametrize("doc", DOCS)
def test_docstrings(doc: str) -> None:
    text = module_with(doc)
    assert formatted(text) == text
    assert ast.get_docstring(ast.parse(text))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.text(alphabet="a\"\\' \t#", min_size=1, max_size=6), min_size=1, max_size=4
    )
)
def test_any_docstring_keeps_its_words(lines: list[str]) -> None:
    doc = "\n".join(lines)
    if not doc.strip():
        return
    for indent in (0, 4):
        body = "\n".join(docstring([doc], indent))
        tree = ast.parse(body if not indent else f"class A:\n{body}\n")
        owner = tree.body[0] if indent else tree
        assert isinstance(owner, ast.Module | ast.ClassDef)
        read = ast.get_docstring(owner)
        assert read is not None
        assert read.split() == doc.replace('"""', "'''").split()


def made(name: str, operator: str, *arguments: object, **keywords: object) -> Operation:
    return Operation(
        name,
        operator,
        arguments,  # type: ignore[arg-type]
        tuple(keywords.items()),  # type: ignore[arg-type]
        (Value(name, ROWS, hash(name)),),
        False,
        (),
        False,
        (),
        "embed",
        None,
    )


def test_numbers_strings_and_lists() -> None:
    infinity, nothing = float("inf"), float("nan")
    operations = (
        made("f", "aten.full.default", (4, 4), infinity),
        made(
            "g",
            "aten.full.default",
            (4, 4),
            -infinity,
            dtype=Constant("dtype", "float32"),
        ),
        made("h", "aten.clamp.default", Reference("f"), nothing, 1e-300),
        made("k", "aten.gelu.default", Reference("g"), approximate="tanh"),
        made("o", "own.operator.default", Reference("g"), "a \"b\" \\ 'c'", True, None),
        made("p", "own.operator.default", Reference("g"), tuple(range(60))),
        made("q", "own.operator.default", Reference("g"), ((1,), (2, 3)), ()),
        made("r", "own.operator.default", (Reference("g"),) * 20, key=tuple(range(40))),
        made("s", "own.operator.default", Reference("g"), "x" * 100),
        made("t", "own.operator.default", -1, 10**30, -0.0, 1e22, 0.1),
    )
    text = module_with(operations=operations)
    assert formatted(text) == text
    tree = ast.parse(text)
    constants = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    assert "a \"b\" \\ 'c'" in constants
    assert 10**30 in constants
    assert 'float("nan")' in text
    assert '-float("inf")' in text


@given(st.text(max_size=12))
def test_a_string_reads_back(text: str) -> None:
    assert ast.literal_eval(string(text)) == text
