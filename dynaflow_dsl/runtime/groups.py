"""Process groups by role: what a module's collectives call `"tp"` or `"ep"`.

A traced graph names a role, so that its text is the same on every rank and in every
run. Before the module is loaded, the process says which group plays it. In a module
each stream has a group of its own, of the same ranks: `tp` is that of main, and
`tp:comm` that of the stream `comm`, which is made here.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed

from dynaflow_dsl.runtime.errors import RankError

_STAND_IN = "dynaflow_stand_in"

# No stream has this name.
_HOST = "(host)"

# What torch says of a name that it has no group for.
_UNKNOWN = re.compile(r"resolve the process group registered under the name (\S+)")

# Torch's own table of groups by name holds no reference to them.
_PLAYERS: dict[str, torch.distributed.ProcessGroup] = {}

# Those of them that torch.distributed knew when they were bound.
_KNOWN: set[str] = set()

# Those of them that were made here, and nobody else destroys.
_MADE: dict[str, torch.distributed.ProcessGroup] = {}


def bind_group(role: str, group: torch.distributed.ProcessGroup) -> None:
    """Let `group` carry the collectives of `role` from now on, in this process.

    Every rank of the group does so before it loads a module; where nothing is compiled
    (`compile=False`), before its first step. Binding a role anew replaces
    the group: the next step of a module meets the other ranks there, and captures anew
    what was captured with the earlier one. Graphs that somebody else has captured keep
    that. The group is kept until the role is released or the process ends.
    """
    core: Any = torch._C._distributed_c10d
    release_group(role)
    core._register_process_group(role, group)
    _PLAYERS[role] = group
    if is_known_to_torch(group):
        _KNOWN.add(role)


_Forget = TypeVar("_Forget", bound=Callable[[str], None])

# What else is kept for the group of a role.
_WHEN_RELEASED: list[Callable[[str], None]] = []


def on_release(forget: _Forget) -> _Forget:
    """Have a function called with the name of a group that plays it no longer.

    It drops what it keeps for the group, and waits for nothing: ranks may be stuck.
    """
    _WHEN_RELEASED.append(forget)
    return forget


def release_group(role: str) -> None:
    """Let nobody play `role` any more, if somebody did, nor its part on streams."""
    for name in [name for name in _PLAYERS if name.partition(":")[0] == role]:
        _release(name)
    if role in _PLAYERS:  # that of one stream
        _release(role)


def _release(name: str) -> None:
    core: Any = torch._C._distributed_c10d
    for forget in _WHEN_RELEASED:
        forget(name)
    core._unregister_process_group(name)
    del _PLAYERS[name]
    _KNOWN.discard(name)
    if (made := _MADE.pop(name, None)) is not None:
        _destroy(made)


def _destroy(group: torch.distributed.ProcessGroup) -> None:
    """Give back what torch keeps for a group of `new_group`, its threads above all.

    That waits for no other rank with gloo. NCCL's communicators may be in captured
    graphs, and their ranks wait for each other: they end with the process, or when
    the caller destroys all groups.
    """
    if is_known_to_torch(group) and not _is_of_cuda(group):
        torch.distributed.destroy_process_group(group)


def _is_of_cuda(group: torch.distributed.ProcessGroup) -> bool:
    """Whether a group has communicators of a device, and not gloo's for it."""
    try:
        backend: Any = group._get_backend(torch.device("cuda"))
    except RuntimeError:
        return False
    return str(backend.name()) != "gloo"


@atexit.register
def _release_all() -> None:
    """Threads of a group abort the process if they are left when it ends (gloo)."""
    # Those made last first, and all before those that they were made of.
    for name in list(reversed(_PLAYERS)):
        _release(name)


def running_ranks() -> tuple[int, int]:
    """Which rank this process is of all that run together, and how many they are.

    (0, 1) where torch.distributed runs none. In a group that plays a role a rank may
    have another number; see `group_rank`.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def players() -> dict[str, torch.distributed.ProcessGroup]:
    """The group that plays each role in this process."""
    return {name: group for name, group in _PLAYERS.items() if ":" not in name}


def playing_or_named(
    roles: Iterable[str],
) -> dict[str, torch.distributed.ProcessGroup]:
    """By role, the group that plays it, or that torch knows by this name.

    Roles that have none are left out.
    """
    found = ((role, _PLAYERS.get(role) or _named_by_torch(role)) for role in roles)
    return {role: group for role, group in found if group is not None}


def has_others(role: str, group: torch.distributed.ProcessGroup) -> bool:
    """Whether other processes are in the group that plays a role."""
    if is_stand_in(role) or not is_known_to_torch(group) or group.size() == 1:
        return False
    return str(torch.distributed.get_backend(group)) != "fake"


def is_destroyed(role: str) -> bool:
    """Whether torch.distributed has destroyed the group that plays a role."""
    return role in _KNOWN and not is_known_to_torch(_PLAYERS[role])


def role_of(name: str) -> str:
    """The role of a group: `tp` of `tp:comm`."""
    return name.partition(":")[0]


def make_stream_groups(names: Iterable[str]) -> None:
    """Make the groups of streams among `names` that nobody plays yet.

    All ranks of a group do so with the same names in the same order; those of roles
    that nobody plays are left out. Raises RankError (DFS817) where the group of a role
    is none of torch.distributed's, so that none can be made of its ranks.
    """
    for name in names:
        role = role_of(name)
        parent = _PLAYERS.get(role) or _named_by_torch(role)
        if name in _PLAYERS and _named_by_torch(name) is None:
            # Torch has forgotten all groups since: `destroy_process_group`.
            _release(name)
        if name == role or name in _PLAYERS or parent is None:
            continue
        if is_stand_in(role):
            bind_group(name, stand_in_group(parent.size(), parent.rank()))
        else:
            _bind_made(name, _of_same_ranks(name, parent, None))


def _named_by_torch(name: str) -> torch.distributed.ProcessGroup | None:
    """The group that a model's own code uses by this name, if it is no role."""
    core: Any = torch._C._distributed_c10d
    try:
        found: torch.distributed.ProcessGroup = core._resolve_process_group(name)
    except RuntimeError:
        return None
    return found


def host_group(
    role: str, group: torch.distributed.ProcessGroup
) -> torch.distributed.ProcessGroup:
    """A group of gloo, of the ranks of `group`, for what their hosts tell each other.

    `group` plays `role`, or torch knows it by this name.

    It is made once, by all ranks together. Raises RankError (DFS817) as
    `make_stream_groups` does.
    """
    name = f"{role}:{_HOST}"
    if name in _PLAYERS and _named_by_torch(name) is None:
        # As in `make_stream_groups`.
        _release(name)
    if name not in _PLAYERS:
        _bind_made(name, _of_same_ranks(name, group, "gloo"))
    return _PLAYERS[name]


def timeout_of(group: torch.distributed.ProcessGroup) -> timedelta:
    """How long a collective of a group may take."""
    for device in ("cuda", "cpu"):
        try:
            options = group._get_backend(torch.device(device)).options
        except (RuntimeError, AttributeError):
            continue
        if options is not None:
            return timedelta(seconds=options._timeout.total_seconds())
    return torch.distributed.distributed_c10d.default_pg_timeout


def store_of(group: torch.distributed.ProcessGroup) -> Any:
    """The Store in which ranks of a group of torch.distributed can leave word.

    Raises RuntimeError where it has destroyed the group.
    """
    if not is_known_to_torch(group):
        raise RuntimeError("the process group has been destroyed")
    _, store = torch.distributed.distributed_c10d._world.pg_map[group]
    return store


def is_known_to_torch(group: torch.distributed.ProcessGroup) -> bool:
    """Whether torch.distributed has made a group, and not destroyed it since."""
    return group in torch.distributed.distributed_c10d._world.pg_map


def global_ranks(name: str) -> tuple[int, ...]:
    """The ranks of a group, or of the role of a stream's, as torch.distributed counts.

    Empty where it has not made the group, which may be a stand-in.
    """
    group = _PLAYERS.get(name) or _PLAYERS.get(role_of(name)) or _named_by_torch(name)
    if group is None or not is_known_to_torch(group):
        return ()
    return tuple(torch.distributed.get_process_group_ranks(group))


def _of_same_ranks(
    name: str, parent: torch.distributed.ProcessGroup, backend: str | None
) -> torch.distributed.ProcessGroup:
    if not is_known_to_torch(parent):
        raise RankError(
            "DFS817",
            f"the stream's group '{name}' is to be of the ranks that play "
            f"'{role_of(name)}', whose group torch.distributed has not made, or has "
            f"destroyed since: call bind_group('{role_of(name)}', group) with one that "
            f"it has made, or else call bind_group('{name}', group) with another group "
            "of these ranks.",
        )
    # Ranks outside of it have nothing to do, and may be anywhere.
    made: torch.distributed.ProcessGroup = torch.distributed.new_group(
        torch.distributed.get_process_group_ranks(parent),
        timeout=timeout_of(parent),
        backend=backend or torch.distributed.get_backend_config(parent),
        use_local_synchronization=True,
        group_desc=name,
    )
    return made


def _bind_made(name: str, group: torch.distributed.ProcessGroup) -> None:
    """Bind a group that was made here, and is destroyed when it is released."""
    bind_group(name, group)
    _MADE[name] = group


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
    role = role_of(role)
    return (
        f"no process group plays the role '{role}' in this process: call "
        f"dynaflow_dsl.runtime.bind_group('{role}', group) before the module is loaded"
    )
