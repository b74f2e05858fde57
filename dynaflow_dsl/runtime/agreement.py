"""What ranks tell each other: which module each has loaded, and which step it runs.

Ranks that run different steps hang in collectives that never meet, or one is aborted by
its process group. So they compare what can be compared before: the module when it is
loaded, and the step when it begins. Nothing of it goes through the groups that steps
use: a rank that is elsewhere in its program could take it for something else.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypeAlias

import torch
import torch.distributed
from torch.distributed import ProcessGroup

from dynaflow_dsl.runtime.errors import RankError
from dynaflow_dsl.runtime.groups import store_of, timeout_of

# What a rank says of itself, by what it is.
Statement: TypeAlias = Mapping[str, str]

_FAILED = "dynaflow/failed"
_STATED = "dynaflow/stated"


def compare_statements(role: str, group: ProcessGroup, mine: Statement) -> None:
    """Raise RankError (DFS815) on every rank where one states something else.

    A rank that does not come in time is named as well.
    """
    store = store_of(group)
    # Kept where the statements are: all ranks count alike, and a new group from one.
    counter = f"dynaflow/loads/{group.rank()}"
    count = store.add(counter, 1)
    keys = [f"dynaflow/loaded/{count}/{rank}" for rank in range(group.size())]
    store.set(keys[group.rank()], json.dumps(dict(mine)))
    limit = timeout_of(group)
    try:
        store.wait(keys, limit)
    except RuntimeError as error:
        said = f"did not load a module within {_seconds(limit)}"
        try:
            missing = [rank for rank, key in enumerate(keys) if not _has(store, key)]
            # A rank that comes later, and this one if it tries again, count alike.
            store.delete_key(keys[group.rank()])
            store.add(counter, -1)
        except RuntimeError:
            missing, said = [], "have lost the rank that keeps their store"
        who = _ranks(missing) if missing else "ranks"
        raise RankError(
            "DFS815",
            f"{who} of the group '{role}' {said}, and rank {group.rank()} loads "
            f"{mine['module']}: all ranks of a group load the same modules in the same "
            "order.",
        ) from error
    stated = [json.loads(store.get(key)) for key in keys]
    if (difference := _difference(stated)) is not None:
        raise RankError(
            "DFS815",
            _differently(role, mine, difference),
        )


def _differently(role: str, mine: Statement, difference: str) -> str:
    return (
        f"ranks of the group '{role}' load {mine['module']} differently: {difference}. "
        "All ranks run one text: compile the schedule once, and give the same module, "
        "model and installation to every rank."
    )


# What follows from numbers in a graph. Ranks may have numbers of their own there, such
# as those of the rows of a vocabulary that they hold.
_OF_NUMBERS = frozenset({"module", "graph", "module's text"})

# What is alike then: what they run and how they meet, apart from numbers.
_STRUCTURE = ("operations", "collectives")


def _by_numbers_alone(first: Statement, other: Statement) -> bool:
    """Whether the graphs of two ranks differ, and only in numbers of their own."""
    if first.get("graph") == other.get("graph"):
        return False
    return all(
        first.get(name) and first[name] == other.get(name) for name in _STRUCTURE
    )


def _difference(stated: Sequence[Statement]) -> str | None:
    """What ranks state differently from rank 0, as part of a sentence."""
    found: list[str] = []
    first = stated[0]
    excused = [_by_numbers_alone(first, each) for each in stated]
    for name in dict.fromkeys(name for each in stated for name in each):
        others: dict[str, list[int]] = {}
        for rank, each in enumerate(stated):
            if excused[rank] and name in _OF_NUMBERS:
                continue
            if each.get(name) != first.get(name):
                others.setdefault(each.get(name, "none"), []).append(rank)
        here = first.get(name, "none")
        found += [
            f"the {name} is {value} on {_ranks(ranks)}, and {here} on rank 0"
            for value, ranks in others.items()
        ]
    return "; ".join(found) or None


class Steps:
    """The steps of the ranks of a group, compared where they begin.

    `control` is a group of the host, used for nothing else. With a `statement`, what
    ranks have loaded is compared as well, in the first step of each.
    """

    # A step is told in numbers, always as many: ranks may run different executors.
    _SIZES = 8
    _REFUSED = -1

    # The steps that this process has loaded, by number: name, and names of sizes.
    _KNOWN: ClassVar[dict[int, tuple[str, tuple[str, ...]]]] = {}

    def __init__(
        self,
        role: str,
        group: ProcessGroup,
        control: ProcessGroup,
        statement: Statement | None = None,
    ) -> None:
        self._role = role
        self._statement = statement
        self._stated: set[int] = set()
        self._group = group
        self._control = control
        self._told = False
        # Kept until it is replaced: the others may come late.
        self._refusal: tuple[Any, list[torch.Tensor]] | None = None

    @classmethod
    def know(cls, step: str, sizes: Sequence[str]) -> int:
        """The number by which ranks tell each other of a step, on all ranks alike."""
        number = zlib.crc32(step.encode())
        cls._KNOWN[number] = step, tuple(sizes)
        return number

    def compare(self, step: str, sizes: Mapping[str, int]) -> None:
        """Raise RankError (DFS815) on every rank where one runs another step.

        `step` names it, on all ranks alike; `sizes` are those that have to be alike.
        """
        number = self.know(step, tuple(sizes))
        if self._statement is not None:
            number = self._state(step, tuple(sizes), self._statement)
        told = list(sizes.values())
        if len(told) > self._SIZES:
            # The last place stands for all that have none.
            rest = zlib.crc32(repr(told[self._SIZES - 1 :]).encode())
            told = [*told[: self._SIZES - 1], rest]
        rows = self._gather([number, *told])
        refused = [rank for rank, row in enumerate(rows) if row[0] == self._REFUSED]
        if refused:
            raise RankError(
                "DFS815",
                f"{_ranks(refused)} of the group '{self._role}' refused the inputs of "
                f"a step, so that no rank runs one{self.said_by(refused)}.",
            )
        self._compare_stated(step, number, [row[0] for row in rows])
        if all(row == rows[0] for row in rows):
            # The others are past whatever they were told.
            self.withdraw()
            return
        others: dict[str, list[int]] = {}
        for rank, row in enumerate(rows):
            others.setdefault(self._described(row), []).append(rank)
        listed = ", and ".join(f"{_ranks(r)} for {one}" for one, r in others.items())
        raise RankError(
            "DFS815",
            f"ranks of the group '{self._role}' were called for different steps: "
            f"{listed}. Call the same step on every rank, with sizes that are alike; "
            "a rank with nothing to do runs rows of padding.",
        )

    def _state(self, step: str, sizes: tuple[str, ...], statement: Statement) -> int:
        """The number of a step of what this rank has loaded, of which it leaves word.

        Ranks whose graphs differ in numbers alone have one number.
        """
        alike = {
            name: said for name, said in statement.items() if name not in _OF_NUMBERS
        }
        number = zlib.crc32(json.dumps([step, alike]).encode())
        if number not in self._KNOWN:
            self._KNOWN[number] = step, sizes
        if number not in self._stated:
            said = json.dumps([step, dict(statement)])
            store_of(self._group).set(f"{_STATED}/{number}/{self._group.rank()}", said)
        return number

    def _compare_stated(self, step: str, number: int, numbers: Sequence[int]) -> None:
        """Raise RankError (DFS815) where ranks have loaded what differs."""
        if self._statement is None:
            return
        if number in self._stated and all(one == number for one in numbers):
            return
        store = store_of(self._group)
        stated = [
            json.loads(store.get(f"{_STATED}/{one}/{rank}"))
            for rank, one in enumerate(numbers)
        ]
        if any(one != step for one, _ in stated):
            # That they are other steps says more.
            for one, (name, _) in zip(numbers, stated, strict=True):
                self._KNOWN.setdefault(one, (name, ()))
            return
        difference = _difference([each for _, each in stated])
        if difference is not None:
            message = _differently(self._role, self._statement, difference)
            raise RankError("DFS815", message)
        self._stated.add(number)

    def _described(self, row: Sequence[int]) -> str:
        number, *numbers = row
        step, names = self._KNOWN.get(number, ("another step", ()))
        given = ", ".join(f"{n} = {k}" for n, k in zip(names, numbers, strict=False))
        return step + (f" with {given}" if given else "")

    def refuse(self) -> None:
        """Tell the others that this rank was called with inputs that do not fit.

        They are about to compare steps, and are not kept waiting for this one's; nor
        is this rank kept for them.
        """
        self._refusal = self._start([self._REFUSED])

    def tell(self, message: str) -> None:
        """Leave word of why a step of this rank has failed."""
        try:
            store = store_of(self._group)
            store.set(f"{_FAILED}/{self._group.rank()}", message)
            self._told = True
        except RuntimeError:
            pass  # the rank that keeps the store is gone

    def withdraw(self) -> None:
        """Take back what was told: this rank goes on."""
        if self._told:
            self._told = False
            store_of(self._group).delete_key(f"{_FAILED}/{self._group.rank()}")

    def said_by(self, ranks: Sequence[int]) -> str:
        """What ranks have left word of, as the end of a sentence."""
        found = []
        try:
            store = store_of(self._group)
            for rank in ranks:
                key = f"{_FAILED}/{rank}"
                if rank != self._group.rank() and _has(store, key):
                    text = store.get(key).decode("utf-8", "replace")
                    found.append(f" (rank {rank}: {text})")
        except RuntimeError:
            pass
        return "".join(found)

    def others_said(self) -> str:
        """What any other rank has left word of."""
        return self.said_by(range(self._group.size()))

    def _gather(self, numbers: Sequence[int]) -> list[list[int]]:
        work, rows = self._start(numbers)
        work.wait()
        return [one.tolist() for one in rows]

    def _start(self, numbers: Sequence[int]) -> tuple[Any, list[torch.Tensor]]:
        width = self._SIZES + 1
        row = torch.tensor([*numbers, *[0] * (width - len(numbers))])
        rows = [torch.empty_like(row) for _ in range(self._group.size())]
        work: Any = torch.distributed.all_gather(
            rows, row, group=self._control, async_op=True
        )
        return work, rows


def _has(store: Any, key: str) -> bool:
    return bool(store.check([key]))


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _seconds(limit: timedelta) -> str:
    return f"{limit.total_seconds():g} s"
