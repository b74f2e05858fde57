"""Which process group plays a role, from binding to the end of the process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from dynaflow_dsl.runtime import RankError, groups

# Handlers run in reverse: the first one sees what the runtime's has left.
ENDING = """
import atexit

def last():
    print(sorted(groups._PLAYERS))

atexit.register(last)
from dynaflow_dsl.runtime import groups

groups.bind_group("tp", groups.stand_in_group(2, 0))
print(sorted(groups._PLAYERS))
"""


def test_a_role_is_bound_anew_and_released() -> None:
    groups.bind_group("a role", groups.stand_in_group(4, 3))
    assert groups.group_rank("a role") == 3
    groups.bind_stand_in("a role", 2, 1)
    assert groups.group_rank("a role") == 1
    groups.release_group("a role")
    groups.release_group("a role")
    with pytest.raises(LookupError, match="no process group plays the role 'a role'"):
        groups.group_rank("a role")


def test_no_group_outlives_the_process() -> None:
    """The threads of a gloo group that is kept until then abort it."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines() == ["['tp']", "[]"]


# One process is a group of gloo as well, with threads of its own.
MADE = """
import sys, tempfile
import torch
import torch.distributed as dist
from dynaflow_dsl.runtime import groups

def count():
    return len(dist.distributed_c10d._world.pg_map)

store = tempfile.mkdtemp() + "/store"
dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
world = dist.group.WORLD
groups.bind_group("tp", world)
groups.make_stream_groups(["tp", "tp:comm"])
made = groups._PLAYERS["tp:comm"], groups.host_group("tp", world)
for one in made:
    dist.all_reduce(torch.ones(4), group=one)
print(count())
if sys.argv[1] == "released":
    groups.release_group("tp")
if sys.argv[1] == "bound anew":
    groups.bind_group("tp", world)
    groups.make_stream_groups(["tp", "tp:comm"])
    dist.all_reduce(torch.ones(4), group=groups._PLAYERS["tp:comm"])
if sys.argv[1] == "all destroyed":
    dist.destroy_process_group()
print(count())
# Who keeps a group keeps its threads, and they may not outlive the interpreter.
del made, one, world
"""


@pytest.mark.parametrize(
    ("how", "left"),
    [("kept", 3), ("released", 1), ("bound anew", 2), ("all destroyed", 0)],
)
def test_groups_that_are_made_here_are_destroyed_here(how: str, left: int) -> None:
    """Those of the caller are not; and nothing is said when the process ends."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", MADE, how],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == ["3", str(left)]


def test_communicators_of_a_device_are_left_to_the_caller() -> None:
    """A captured graph may use them, and ranks wait for each other to end them."""

    class Communicators:
        def name(self) -> str:
            return "nccl"

    class Group:
        def _get_backend(self, device: torch.device) -> Communicators:
            return Communicators()

    assert groups._is_of_cuda(Group())  # type: ignore[arg-type]


def test_a_stream_has_a_group_of_its_own_of_the_same_ranks() -> None:
    groups.bind_group("a role", groups.stand_in_group(4, 3))
    groups.make_stream_groups(["a role", "a role:comm", "nobody:comm"])
    assert groups.group_rank("a role:comm") == 3
    assert "a role:comm" not in groups.players()
    made = groups._PLAYERS["a role:comm"]
    assert made is not groups._PLAYERS["a role"]
    groups.make_stream_groups(["a role:comm"])
    assert groups._PLAYERS["a role:comm"] is made
    # Another group has other ranks.
    groups.bind_group("a role", groups.stand_in_group(2, 0))
    with pytest.raises(LookupError, match="bind_group\\('a role', group\\)"):
        groups.group_rank("a role:comm")
    groups.release_group("a role")


def test_no_group_can_be_made_of_ranks_that_torch_does_not_know() -> None:
    class Own(dist.ProcessGroup):
        pass

    groups.bind_group("a role", Own(0, 2))
    with pytest.raises(RankError, match="DFS817") as caught:
        groups.make_stream_groups(["a role:comm"])
    assert "call bind_group('a role', group) with one that it has" in str(caught.value)
    assert "call bind_group('a role:comm', group)" in str(caught.value)
    # Who has one binds it.
    groups.bind_group("a role:comm", Own(0, 2))
    groups.make_stream_groups(["a role:comm"])
    groups.release_group("a role")
    assert "a role:comm" not in groups._PLAYERS


def test_groups_of_streams_are_made_again_when_torch_has_forgotten_them() -> None:
    core: Any = torch._C._distributed_c10d
    try:
        for _ in range(2):
            dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
            name = dist.group.WORLD.group_name
            groups.make_stream_groups([f"{name}:comm"])
            assert core._resolve_process_group(f"{name}:comm").size() == 2
            dist.destroy_process_group()
    finally:
        groups.release_group(name)
