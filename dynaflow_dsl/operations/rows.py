"""How operators of plug-ins treat rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dynaflow_dsl.operations.names import without_overload
from dynaflow_dsl.operations.plugins import PluginError, registered

# Their rows are known here, and are no one's to declare.
_OWN = ("aten.", "_c10d_functional.")


class DeclarationError(Exception):
    """Two plug-ins, or two values of one, declare the same operator."""


@dataclass(frozen=True, slots=True)
class OperationRows:
    """A custom operator each of whose rows depends on the same row of its arguments.

    `operator` is `namespace.name`, as in `torch.ops`, for all of its overloads or with
    one of them. `arguments` has, in the order of the signature, the axis of the rows of
    each argument: None for a tensor that has to be the same for all rows, and for what
    is no tensor; those left out have None. Lists of tensors have rows in each of them.
    `results` likewise. What the operator writes in place it writes row by row.

    It has to hold for rows in any order and number: a result may not depend on how many
    rows there are, or on which one a row is. Raises ValueError for a declaration that
    cannot be meant.
    """

    operator: str
    arguments: tuple[int | None, ...]
    results: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        """Look at the declaration alone."""
        name = self.operator.replace("::", ".")
        object.__setattr__(self, "operator", name)
        words = name.split(".")
        if not 2 <= len(words) <= 3 or not all(word.isidentifier() for word in words):
            raise ValueError(f"'{name}' is no operator: write 'namespace.name'")
        if name.startswith(_OWN):
            raise ValueError(f"the rows of '{name}' are not for a plug-in to declare")
        for what, axes in (("arguments", self.arguments), ("results", self.results)):
            if not isinstance(axes, tuple):
                raise ValueError(f"{what} of '{name}' must be a tuple of axes")
            for axis in axes:
                if axis is not None and type(axis) is not int:
                    raise ValueError(f"{what} of '{name}': {axis!r} is no axis")
        if all(axis is None for axis in self.arguments):
            raise ValueError(f"no argument of '{name}' has rows")


def declared_rows() -> Mapping[str, OperationRows]:
    """All declarations, by operator.

    Raises PluginError for a plug-in that cannot be imported, and DeclarationError for
    an operator that is declared twice.
    """
    found: dict[str, OperationRows] = {}
    for each in registered(OperationRows):
        if found.setdefault(each.operator, each) != each:
            raise DeclarationError(f"'{each.operator}' is declared twice, differently")
    return found


def rows_of(operator: str) -> OperationRows | None:
    """The declaration of an operator with its overload, if there is one."""
    if operator.startswith(_OWN):
        return None
    known = declared_rows()
    return known.get(operator) or known.get(without_overload(operator))


__all__ = [
    "DeclarationError",
    "OperationRows",
    "PluginError",
    "declared_rows",
    "rows_of",
]
