"""A model is after it was traced what it was before.

Torch puts a copy in the place of every list and dictionary that a module has as an
attribute, keeps attributes that the model's code sets while it is traced, and leaves
what that code puts into a container there. Two layers with one list have two then, and
a tensor that is kept for the next call is one without memory.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_is_leaf, tree_leaves

_TABLES = (dict, OrderedDict, defaultdict)
_ROWS = (list, deque)


@contextmanager
def left_as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Give the modules of a model their attributes back when a block is left.

    Each attribute is the object that it was, and lists, deques, sets and dictionaries
    hold what they held. Of other containers that torch copies, the copy stays where the
    block changed the original.
    """
    before = _Before()
    for module in model.modules():
        before.keep_table(vars(module))
    try:
        yield
    finally:
        before.restore()


@dataclass(slots=True)
class _Before:
    """What containers held, each of them once.

    `others` are containers that can be copied and not be filled again, with what was in
    them.
    """

    tables: list[tuple[dict[Any, Any], dict[Any, Any]]] = field(default_factory=list)
    rows: list[tuple[Any, list[Any]]] = field(default_factory=list)
    sets: list[tuple[set[Any], set[Any]]] = field(default_factory=list)
    others: list[tuple[object, list[Any]]] = field(default_factory=list)
    known: set[int] = field(default_factory=set)

    def keep_table(self, table: dict[Any, Any]) -> None:
        """Note what a dictionary holds, and what is in that."""
        if id(table) in self.known:
            return
        self.known.add(id(table))
        self.tables.append((table, dict(table)))
        self._keep_all(table.values())

    def _keep_all(self, values: Iterable[object]) -> None:
        for value in values:
            self._keep(value)

    def _keep(self, value: Any) -> None:
        if type(value) in _TABLES:
            self.keep_table(value)
        elif isinstance(value, tuple):
            self._keep_all(value)
        elif id(value) in self.known:
            return
        elif type(value) in _ROWS:
            self.known.add(id(value))
            self.rows.append((value, list(value)))
            self._keep_all(value)
        elif type(value) is set:
            self.sets.append((value, set(value)))
        elif not tree_is_leaf(value):
            self.others.append((value, tree_leaves(value)))

    def restore(self) -> None:
        """Let all of them hold it again."""
        changed = {
            id(value)
            for value, leaves in self.others
            if not _same(tree_leaves(value), leaves)
        }
        for table, held in self.tables:
            kept = {
                key: table.get(key, value) if id(value) in changed else value
                for key, value in held.items()
            }
            if not (_same(table, kept) and _same(table.values(), kept.values())):
                table.clear()
                table.update(kept)
        for row, items in self.rows:
            if not _same(row, items):
                row.clear()
                row.extend(items)
        for each, members in self.sets:
            each.clear()
            each.update(members)


def _same(left: Iterable[object], right: Iterable[object]) -> bool:
    """Whether two hold the same objects in the same order."""
    return [*map(id, left)] == [*map(id, right)]
