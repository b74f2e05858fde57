"""Patterns for names: `*` stands for any text, `?` for one character."""

from __future__ import annotations

import re
from functools import lru_cache


def matches_name(pattern: str, name: str) -> bool:
    """Whether a whole name matches a pattern; no other character is special."""
    return _compiled(pattern).fullmatch(name) is not None


def matches_operator(pattern: str, operator: str) -> bool:
    """Whether an operator, `namespace.name.overload`, matches with or without its
    overload."""
    expression = _compiled(pattern)
    if expression.fullmatch(operator):
        return True
    return expression.fullmatch(without_overload(operator)) is not None


def without_overload(operator: str) -> str:
    """`aten.add` of `aten.add.Tensor`."""
    return operator.rpartition(".")[0]


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    # A run of stars is one star, which keeps matching from going through all ways to
    # share a text among them.
    parts = re.split(r"(\*+|\?)", pattern)
    special = {"?": "."}
    text = "".join(
        ".*" if part.startswith("*") else special.get(part, re.escape(part))
        for part in parts
    )
    return re.compile(text, re.DOTALL)
