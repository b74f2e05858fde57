"""Collectives of a module name the communicator of their stream."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dynaflow_dsl.bind.communicators import communicator
from tests.bind.graphs import graph
from tests.emit.formatting import formatted
from tests.end_to_end.building import build
from tests.runtime import small_ranks

ROLE = small_ranks.ROLE

ONE_PIECE = """dfs 1

schedule one:
    each layer in .layers.*:
        part all = .

        order:
            all
"""


def text_of(schedule: str, folder: Path) -> str:
    text = build(small_ranks.target(), schedule, folder).compiled.text
    assert formatted(text) == text
    return text


def named(text: str) -> set[str]:
    """What the collectives of the parts' functions name."""
    return set(re.findall(r'"sum", "([^"]+)"', text.replace("\n", " ")))


def test_a_stream_has_one_of_its_own(tmp_path: Path) -> None:
    text = text_of(small_ranks.HALVES, tmp_path)
    assert named(text) == {f"{ROLE}:comm"}
    assert f'groups = {{"reduce": ("{ROLE}:comm",)}}' in text
    assert 'alike = ("batch",)' in text


def test_main_has_that_of_the_role(tmp_path: Path) -> None:
    text = text_of(ONE_PIECE, tmp_path)
    assert named(text) == {ROLE}
    assert f'groups = {{"all": ("{ROLE}",)}}' in text


def test_pieces_on_several_streams_share_one(tmp_path: Path) -> None:
    schedule = small_ranks.HALVES.replace(
        "    stream comm\n", "    stream left\n    stream right\n"
    ).replace("reduce on comm", "reduce on [left, right]")
    # Neither runs beside the other: that is proved of the role.
    schedule = re.sub(
        r"stagger half.*",
        "order:\n            compute[*]\n            reduce[0]\n"
        "            reduce[1] after reduce[0]\n",
        schedule,
        flags=re.DOTALL,
    )
    assert named(text_of(schedule, tmp_path)) == {f"{ROLE}:left+right"}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("_c10d_functional.all_reduce.default(x, sum, tp)", "tp:comm"),
        ("dynaflow.dispatch.default(x, ep)", "ep:comm"),
        # What a plug-in's operator calls its group, it looks up itself.
        ("c10d.allreduce_.default(x, tp)", "tp"),
        ("relu(x)", None),
    ],
)
def test_only_groups_that_torch_looks_up_are_renamed(
    operation: str, expected: str | None
) -> None:
    (made,) = graph(f"input x\ny = {operation}\nreturn y\n").operations
    assert communicator(made, ("comm",)) == expected
