"""Readable, unique Python names for values, taken from the model's own source."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Collection
from functools import cache

from dynaflow_dsl.graph.model import Operation

RESERVED = frozenset({"self", "w", "i", "torch", "aten", "held", "device", "main"})


@cache
def assigned_name(code: str) -> str | None:
    """`name` when a source line assigns to a plain name, else None."""
    try:
        statements = ast.parse(code.strip()).body
    except (SyntaxError, ValueError):
        # A statement over several lines is cut off; its first line may still tell.
        found = re.match(r"\s*([A-Za-z_]\w*)\s*=(?!=)", code)
        return found.group(1) if found else None
    match statements:
        case [ast.Assign(targets=[ast.Name(id=name)])]:
            return name
        case [ast.AnnAssign(target=ast.Name(id=name))]:
            return name
        case [ast.AugAssign(target=ast.Name(id=name))]:
            return name
        case [ast.Assign(targets=[ast.Tuple(elts=[*_, ast.Name(id=name)])])]:
            # The last operation of the line makes the last target.
            return name
        case _:
            return None


def role_name(operation: Operation, *, last_of_line: bool = True) -> str:
    """What a reader of the model would call the result of an operation.

    The variable that the source line assigns, if the operation is the last of its line;
    else the module's own name (`q_proj`); else the operator's.
    """
    if last_of_line and operation.source is not None:
        name = assigned_name(operation.source.code)
        if name is not None:
            return name
    leaf = operation.module.rpartition(".")[2]
    code = operation.source.code if operation.source is not None else ""
    is_module_result = operation.operator.startswith(
        ("aten.linear", "aten.embedding")
    ) or (last_of_line and code.startswith("return "))
    if leaf and not leaf.isdigit() and is_module_result:
        return identifier(leaf)
    return identifier(operation.operator.split(".")[1])


def identifier(text: str) -> str:
    """The nearest legal Python identifier."""
    name = re.sub(r"\W", "_", text)
    name = name.strip("_") or "value"
    if name[0].isdigit() or keyword.iskeyword(name):
        name = f"{name}_" if keyword.iskeyword(name) else f"_{name}"
    return name


class Names:
    """Hands out names that do not collide, each with all its piece suffixes."""

    def __init__(self, taken: Collection[str], pieces: int) -> None:
        self._taken = set(taken) | RESERVED
        self._pieces = pieces

    def new(self, wanted: str) -> str:
        """A base name whose `name_0`, `name_1`, … and `name_done` are free as well."""
        wanted = identifier(wanted)
        for candidate in (wanted, *(f"{wanted}_{letter}" for letter in _letters())):
            family = self._family(candidate)
            if not family & self._taken:
                self._taken |= family
                return candidate
        raise AssertionError("letters never run out")

    def _family(self, base: str) -> set[str]:
        pieces = range(self._pieces) if self._pieces > 1 else ()
        bases = {base, *(f"{base}_{k}" for k in pieces)}
        return bases | {f"{name}_done" for name in bases}


def _letters() -> list[str]:
    alphabet = "bcdefghijklmnopqrstuvwxyz"
    return [*alphabet, *(a + b for a in alphabet for b in alphabet)]


def piece_name(base: str, piece: int, pieces: int) -> str:
    """`base` for an unsplit value, `base_0` for a piece."""
    return base if pieces == 1 else f"{base}_{piece}"
