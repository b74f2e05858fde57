"""Patterns for names: `*` stands for any text, `?` for one character."""

from __future__ import annotations

from fnmatch import fnmatchcase


def matches_name(pattern: str, name: str) -> bool:
    """Whether a whole name matches a pattern; no other character is special."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def matches_operator(pattern: str, operator: str) -> bool:
    """Whether an operator, `namespace.name.overload`, matches with or without its
    overload."""
    return matches_name(pattern, operator) or matches_name(
        pattern, without_overload(operator)
    )


def without_overload(operator: str) -> str:
    """`aten.add` of `aten.add.Tensor`."""
    return operator.rpartition(".")[0]
