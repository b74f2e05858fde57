"""Process groups by role: what a module's collectives call `"tp"` or `"ep"`.

A traced graph and the module made of it name a role, so that their text is the same on
every rank and in every run. Before the module is loaded, the process says which group
plays it.
"""

from __future__ import annotations

import atexit
import re
from typing import Any

import torch
import torch.distributed

_STAND_IN = "dynaflow_stand_in"

# What torch says of a name that it has no group for.
_UNKNOWN = re.compile(r"resolve the process group registered under the name (\S+)")

# Torch's own table of groups by name holds no reference to them.
_PLAYERS: dict[str, torch.distributed.ProcessGroup] = {}


def bind_group(role: str, group: torch.distributed.ProcessGroup) -> None:
    """Let `group` carry the collectives of `role` from now on, in this process.

    Every rank of the group does so before it loads a module; where nothing is compiled
    (`compile=False`), before its first step. Binding a role anew replaces
    the group; captured CUDA graphs keep the one that they were captured with. The group
    is kept until the role is released or the process ends.
    """
    core: Any = torch._C._distributed_c10d
    release_group(role)
    core._register_process_group(role, group)
    _PLAYERS[role] = group


def release_group(role: str) -> None:
    """Let nobody play `role` any more, if somebody did."""
    if role in _PLAYERS:
        core: Any = torch._C._distributed_c10d
        core._unregister_process_group(role)
        del _PLAYERS[role]


@atexit.register
def _release_all() -> None:
    """Threads of a group abort the process if they are left when it ends (gloo)."""
    for role in list(_PLAYERS):
        release_group(role)


def players() -> dict[str, torch.distributed.ProcessGroup]:
    """The group that plays each role in this process."""
    return dict(_PLAYERS)


def group_rank(role: str) -> int:
    """Rank of this process in the group that plays `role`, counted from 0.

    Raises LookupError where none does.
    """
    if (group := _PLAYERS.get(role)) is None:
        raise LookupError(_nobody_plays(role))
    return group.rank()


def unplayed_role(error: BaseException) -> str | None:
    """What to do about a role that nobody plays, if `error` is torch's word for that.

    Torch looks groups up by name inside its collectives, when a part is compiled or
    run, and knows nothing of roles.
    """
    match = _UNKNOWN.search(str(error))
    return _nobody_plays(match[1]) if match else None


def is_stand_in(role: str) -> bool:
    """Whether what plays `role` is a group of `stand_in_group`."""
    return role in _PLAYERS and _PLAYERS[role].group_desc == _STAND_IN


def bind_stand_in(role: str, size: int, rank: int) -> None:
    """Let a stand-in of this size play `role`, unless a real group does.

    A stand-in of another size, which an earlier target needed, is replaced.
    """
    if role in _PLAYERS:
        playing = _PLAYERS[role]
        if not is_stand_in(role) or (playing.size(), playing.rank()) == (size, rank):
            return
    bind_group(role, stand_in_group(size, rank))


def stand_in_group(size: int, rank: int) -> torch.distributed.ProcessGroup:
    """A group of `size` ranks in one process, in which nobody else is there.

    An all-reduce returns what this rank gives, an all-gather repeats it, and other
    ranks send no tokens. A step then runs, and scheduled and unscheduled steps can be
    compared, but its numbers are not those of the whole model. It is torch's fake
    backend, without the process-wide `init_process_group`.
    """
    core: Any = torch._C._distributed_c10d
    group = torch.distributed.ProcessGroup(core.HashStore(), rank, size)
    backend = core.FakeProcessGroup._create_internal(rank, size)
    kind = torch.distributed.ProcessGroup.BackendType.CUSTOM
    for device in ("cpu", "cuda"):
        group._register_backend(torch.device(device), kind, backend)
    group._set_default_backend(kind)
    group._set_group_desc(_STAND_IN)
    return group


def _nobody_plays(role: str) -> str:
    return (
        f"no process group plays the role '{role}' in this process: call "
        f"dynaflow_dsl.runtime.bind_group('{role}', group) before the module is loaded"
    )
