"""How each statement is written, for those who write it otherwise."""

from __future__ import annotations

import re
from collections.abc import Collection

# Words that people bring from Python and YAML, and the keyword that does the same.
HABITS = {
    "assert": "require",
    "case": "when",
    "class": "schedule",
    "def": "schedule",
    "default": "else",
    "elif": "when",
    "for": "each",
    "group": "parts",
    "if": "when",
    "import": "from",
    "include": "from",
    "otherwise": "else",
    "parallel": "order",
    "switch": "select",
    "timeline": "order",
}

# By the keyword that a statement begins with.
FORMS = {
    "capture": "capture batch at [1, 2]",
    "each": "each NAME in PATH:",
    "else": "else: SCHEDULE",
    "equal": "equal NAME, NAME",
    "from": 'from "FILE.dfs" import NAME',
    "kernel": 'kernel NAME = "package.module:name"',
    "model": 'model "package.module:function"',
    "order": "order:",
    "part": "part NAME = SELECTOR",
    "parts": "parts NAME:",
    "require": "require CONDITION",
    "schedule": "schedule NAME:",
    "select": "select NAME:",
    "split": "split batch into 2 as half",
    "stagger": "stagger half by 1:",
    "stream": "stream side",
    "use": "use NAME",
    "when": "when CONDITION: SCHEDULE",
}

# A statement of Python: `side = stream()`, or a name that is given a value.
_ASSIGNMENT = re.compile(r"\w+[ \t]*=(?!=)[ \t]*(\w*)")
# What a name stands for, where nobody says so, in the order of what is likelier.
_NAMED = ("part", "kernel")


def is_call(word: str, before: str) -> bool:
    """Whether a word opens the arguments of a statement that is written as a call.

    `before` is what stands before it in its line.
    """
    return word == "(" and before.strip() in FORMS


def forms_for(line: str, before: str, accepted: Collection[str]) -> tuple[str, ...]:
    """How the statement of a line is written, if it is known which one is meant.

    `before` is what stands before the word that is wrong, and `accepted` are keywords
    that might stand in its place.
    """
    keyword = _begins(line) if before.strip() else None
    if keyword is None and not before.strip():
        assigned = _ASSIGNMENT.match(line)
        if assigned is not None:
            wanted = (assigned[1], *_NAMED)
            keyword = next((each for each in wanted if each in accepted), None)
    if keyword not in FORMS or (keyword == "part" and "=" in before):
        # What is wrong with a selector is no matter of the statement.
        return ()
    return (f"write {FORMS[keyword]}",)


def _begins(line: str) -> str:
    """The word that a line begins with."""
    found = re.match(r"\w+", line)
    return found[0] if found else ""
