"""Parts of which every piece would compute the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Set

from dynaflow_dsl.bind.fragments import Fragment
from dynaflow_dsl.bind.ownership import Owner
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.graph.rowwise import Fact, Shared
from dynaflow_dsl.resolve.model import Part, Split


def repeated_parts(
    split: Split,
    parts: Collection[Part],
    inner: Mapping[Owner, Fragment],
    maker: Mapping[str, Owner],
    cut: Set[str],
    facts: Mapping[str, Fact],
    joinable: Collection[str],
) -> Iterator[Diagnostic]:
    """DFS607: parts that run once for each piece, and have no rows of it.

    Neither what they read nor what they make has rows of the split dimension, in any
    iteration: each piece would give the same tensors, and those of one are used.
    `maker` says who makes a value, and `cut` are those that are sliced before they
    enter the parts.
    """
    shared = {name for name, fact in facts.items() if isinstance(fact, Shared)}
    touched: dict[str, set[str]] = defaultdict(set)
    for owner, fragment in inner.items():
        touched[owner.part].update(fragment.inputs)
    for name, owner in maker.items():
        if owner in inner:
            touched[owner.part].add(name)
    # A tensor without a fact comes from outside of the parts: whole, unless cut.
    with_rows = cut | (facts.keys() - shared)
    for part in parts:
        if part.name in touched and not touched[part.name] & with_rows:
            yield _repeated(split, part, part.name in joinable)


def _repeated(split: Split, part: Part, may_join: bool) -> Diagnostic:
    ways = ["leave it out of the parts: what no part takes runs once, on the whole"]
    if may_join:
        once = f"run it once for all pieces: '{part.name}[*]' in the timeline"
        ways.insert(0, once)
    return Diagnostic(
        "DFS607",
        f"every piece of {part.name} computes the same",
        Label(part.selector.span, f"nothing in it has rows of {split.dimension}"),
        (Label(split.span, "cut here"),),
        helps=tuple(ways),
    )
