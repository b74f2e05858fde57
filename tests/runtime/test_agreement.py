"""What ranks state of what they have loaded, and which differences are theirs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from dynaflow_dsl.runtime import RankError, agreement
from dynaflow_dsl.runtime.agreement import _difference, compare_statements

STATED = {
    "module": "halves.py",
    "schedule": "s",
    "graph": "g",
    "operations": "o",
    "collectives": "c",
    "module's text": "t",
    "torch": "2.13.0",
}


def rank(**changes: str) -> dict[str, str]:
    return {**STATED, **{name.replace("_", " "): v for name, v in changes.items()}}


OWN_NUMBERS = {"graph": "h", "module": "rank_1.py", "module's text": "u"}


def test_numbers_of_its_own_are_a_ranks_affair() -> None:
    other = {**STATED, **OWN_NUMBERS}
    assert _difference([STATED, other]) is None
    assert _difference([STATED, STATED, other]) is None


@pytest.mark.parametrize(
    "name", ["schedule", "torch", "operations", "collectives", "parameter tile"]
)
def test_all_else_is_not(name: str) -> None:
    said = _difference([STATED, {**STATED, **OWN_NUMBERS, name: "x"}])
    assert said is not None
    assert f"the {name} is x on rank 1" in said
    # What structures differ in shows in all that follows from them.
    assert ("the graph is h" in said) == (name in ("operations", "collectives"))


def test_a_text_that_was_edited_is_told_where_graphs_are_the_same() -> None:
    said = _difference([STATED, rank(), {**STATED, "module's text": "u"}])
    assert said == "the module's text is u on rank 2, and t on rank 0"


def test_modules_that_say_nothing_of_their_collectives_have_one_graph() -> None:
    first = {**STATED, "operations": "", "collectives": ""}
    said = _difference([first, {**first, "graph": "h"}])
    assert said == "the graph is h on rank 1, and g on rank 0"


def test_a_store_that_is_gone_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        """The store of a rank that has ended while others waited."""

        def add(self, key: str, amount: int) -> int:
            return 1

        def set(self, key: str, value: str) -> None:
            pass

        def wait(self, keys: list[str], limit: timedelta) -> None:
            raise dist.DistNetworkError("Connection reset by peer")

        def check(self, keys: list[str]) -> bool:
            raise dist.DistNetworkError("Broken pipe")

    def gone(group: Any) -> Gone:
        return Gone()

    monkeypatch.setattr(agreement, "store_of", gone)
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    group: Any = dist.group.WORLD
    try:
        with pytest.raises(
            RankError, match="DFS815: ranks of the group 'tp' have lost"
        ):
            compare_statements("tp", group, STATED)
    finally:
        dist.destroy_process_group()
