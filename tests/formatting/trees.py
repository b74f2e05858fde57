"""Syntax trees of every form of the grammar, made by hypothesis; places are empty."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax import SyntaxTree, model

SOURCE = Source("generated.dfs", "")
NOWHERE = Span(SOURCE, 0, 0)

Trees = st.SearchStrategy[Any]


def node(kind: type, *parts: Trees) -> Trees:
    """Nodes of one class: its fields in order, without the span."""
    return st.builds(lambda *values: kind(*values, NOWHERE), *parts)


def some(parts: Trees, least: int = 1, most: int = 3) -> Trees:
    return st.lists(parts, min_size=least, max_size=most).map(tuple)


WORDS = st.sampled_from(
    """
    a b2 half attn mlp_reduce batch side layer experts_of_one_layer next_ previous
    a_name_that_is_so_long_that_few_of_them_fit_in_one_line
    """.split()
)
NAMES = node(model.Name, WORDS)
STRINGS = node(
    model.String,
    st.sampled_from(["", "*dispatch*", "std:llama/parts.dfs", "# ( no comment [", "é"]),
)
INTEGERS = node(model.Number, st.integers(0, 10**17))
DECIMALS = node(
    model.Number,
    st.tuples(st.integers(0, 10**6), st.integers(0, 6)).map(
        lambda pair: Fraction(pair[0], 10 ** pair[1])
    ),
)
ATOMS = st.one_of(
    INTEGERS,
    DECIMALS,
    STRINGS,
    node(model.Boolean, st.booleans()),
    node(model.Symbol, WORDS),
)


def _larger_expressions(inner: Trees) -> Trees:
    lists = node(model.ListOf, some(inner))
    compare = st.sampled_from(["==", "!=", "<=", ">=", "<", ">"])
    return st.one_of(
        lists,
        node(model.Arithmetic, st.sampled_from("+ - * // %".split()), inner, inner),
        node(model.Not, inner),
        node(model.Logical, st.sampled_from(["and", "or"]), inner, inner),
        node(model.Comparison, compare, inner, inner),
        node(model.Comparison, st.just("in"), inner, lists),
    )


EXPRESSIONS = st.recursive(ATOMS, _larger_expressions, max_leaves=8)
LISTS = node(model.ListOf, some(EXPRESSIONS, most=4))
ARGUMENTS = some(node(model.Argument, NAMES, EXPRESSIONS), least=0)
CALLS = node(model.Call, NAMES, ARGUMENTS)

PATHS = node(
    model.Path,
    st.sampled_from(["scope", "prev", "next", "root"]),
    some(st.sampled_from("* ** self_attn mlp 0 l?y* experts".split()), least=0),
)


def _larger_selectors(inner: Trees) -> Trees:
    return st.one_of(
        node(model.OperationsIn, NAMES | STRINGS, inner),
        node(model.SetOperation, st.sampled_from("+-"), inner, inner),
        node(model.FirstMatch, inner, inner),
    )


SELECTORS = st.recursive(
    PATHS | node(model.PartReference, WORDS), _larger_selectors, max_leaves=8
)

INDICES = st.none() | INTEGERS | NAMES | node(model.AllPieces)
REFERENCES = node(model.Reference, NAMES, st.booleans(), INDICES)
STEPS = node(model.Step, REFERENCES, st.none() | REFERENCES)
WINDOWS = some(node(model.Window, some(node(model.Run, some(STEPS)))), most=4)

PARTS = node(
    model.Part,
    NAMES,
    ARGUMENTS,
    st.none() | NAMES | LISTS,
    st.none() | CALLS,
    SELECTORS,
)
PLACEMENTS = st.one_of(
    PARTS,
    node(model.Use, NAMES),
    node(model.Order, WINDOWS),
    node(model.Stagger, NAMES, st.none() | INTEGERS, WINDOWS),
)
REQUIRES = node(model.Require, EXPRESSIONS)
STATEMENTS = st.one_of(
    REQUIRES,
    node(model.Stream, NAMES, ARGUMENTS),
    node(model.Split, NAMES, EXPRESSIONS, NAMES, ARGUMENTS),
    node(model.Capture, NAMES, LISTS, ARGUMENTS),
    node(model.Each, NAMES, PATHS, st.none() | PATHS, some(PLACEMENTS, most=4)),
    PLACEMENTS,
)

DOCS = st.lists(
    st.sampled_from(["", "One line.", "  indented", "# of its own"]), max_size=4
).map(lambda lines: "\n".join(lines).strip("\n"))
DECLARATIONS = st.one_of(
    node(model.Import, STRINGS, some(NAMES)),
    node(model.Kernel, NAMES, STRINGS, ARGUMENTS),
    node(model.PartGroup, NAMES, some(PARTS, most=4)),
    node(model.Schedule, NAMES, ARGUMENTS, some(STATEMENTS, most=4), DOCS),
    node(
        model.Select,
        NAMES,
        ARGUMENTS,
        some(REQUIRES | node(model.Equal, some(NAMES)), least=0),
        some(node(model.When, EXPRESSIONS, CALLS)),
        node(model.Otherwise, CALLS),
        DOCS,
    ),
)
TREES = st.builds(
    SyntaxTree,
    st.just(SOURCE),
    st.none() | node(model.Model, STRINGS, ARGUMENTS),
    some(DECLARATIONS, least=0),
)
