"""Going through a syntax tree or a schedule whatever its nodes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax import model as syntax

Node = TypeVar("Node")


def symbols(node: object) -> Iterator[syntax.Symbol]:
    """The names that stand for values in a node, in the order of the text."""
    match node:
        case syntax.Symbol():
            yield node
        case tuple():
            for item in node:
                yield from symbols(item)
        case Span() | Source():
            pass
        case _ if is_dataclass(node):
            for field in fields(node):
                yield from symbols(getattr(node, field.name))


def used_at(node: Node, use: Span) -> Node:
    """The same node with places that remember the statement that brought it there."""
    return placed(node, lambda span: replace(span, used_at=use))


def placed(node: Node, place: Callable[[Span], Span]) -> Node:
    """The same node with other places."""
    return cast(Node, _placed(node, place))


def _placed(node: object, place: Callable[[Span], Span]) -> object:
    match node:
        case Span():
            return place(node)
        case tuple():
            return tuple(_placed(item, place) for item in node)
        case _ if is_dataclass(node) and not isinstance(node, type):
            changed = {
                field.name: _placed(getattr(node, field.name), place)
                for field in fields(node)
            }
            return replace(node, **changed)
    return node
