"""How ranks that play a role reach each other's memory: asked once of each group."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed

from dynaflow_dsl.kernels.host import HostPeers
from dynaflow_dsl.kernels.peers import Peers, setting_up
from dynaflow_dsl.kernels.symmetric import SymmetricPeers
from dynaflow_dsl.runtime.groups import (
    is_known_to_torch,
    on_release,
    players,
    role_of,
)

Transport: TypeAlias = SymmetricPeers | HostPeers

# By role, or group of a stream, and device; None where ranks share no memory.
_FOUND: dict[tuple[str, torch.device], Transport | None] = {}

# Of groups that play no role any more, in whose memory somebody may still be at work.
_KEPT: list[Transport] = []


def peers_of(role: str, tensor: torch.Tensor) -> Peers | None:
    """The ranks that play `role`, or None where they cannot reach each other's memory.

    That is so on CPU, and for a group that torch.distributed has not made, such as a
    stand-in, in which nobody else is there.
    """
    found = transport_of(role, tensor)
    return found if isinstance(found, SymmetricPeers) else None


def transport_of(role: str, tensor: torch.Tensor) -> Peers | HostPeers | None:
    """As `peers_of`, and where they do not reach each other, what they share instead.

    `role` may be the group of a stream (`tp:comm`): what that has is apart, and made by
    the group of the role. The first call is a collective of it. Ranks of several
    machines share nothing. Raises RankError (DFS818) where it comes inside a capture.
    """
    group = players().get(role_of(role))
    if group is None or tensor.device.type != "cuda" or not is_known_to_torch(group):
        return None
    key = role, tensor.device
    if key not in _FOUND:
        with setting_up(role, tensor.device):
            _FOUND[key] = _choose(role_of(role), group, tensor.device)
    return _FOUND[key]


@on_release
def _forget(role: str) -> None:
    """Drop what belongs to a group that plays the role no longer.

    And what belonged to earlier ones, where nobody is at work in it any more.
    """
    _KEPT[:] = [one for one in _KEPT if not _closed(one)]
    for key in [key for key in _FOUND if role in (key[0], role_of(key[0]))]:
        found = _FOUND.pop(key)
        if found is None:
            continue
        if not _closed(found):
            _KEPT.append(found)


def _closed(found: Transport) -> bool:
    """Give its memory back, unless somebody may be at work in it."""
    try:
        if over := found.usage.is_over():
            found.close()
    except RuntimeError:  # the device has failed
        return False
    return over


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank is: which machine, which device, and what NCCL is told of it."""

    machine: str
    device: str
    apart: bool

    @classmethod
    def of(cls, device: torch.device) -> Seat:
        """The seat of this process."""
        return cls(_machine(), _name(device), os.environ.get("NCCL_P2P_DISABLE") == "1")


def kind_of(
    seats: list[Seat],
    reaches: Callable[[str], bool],
    everyone: Callable[[bool], list[bool]],
) -> type[Transport] | None:
    """What ranks in these seats share, alike on all of them.

    `reaches` says of a device whether that of this rank reaches its memory, and
    `everyone` what all ranks say of something.
    """
    if len({seat.machine for seat in seats}) > 1:
        return None
    apart = any(seat.apart for seat in seats)
    one_for_two = len({seat.device for seat in seats}) < len(seats)
    if apart or one_for_two:
        return HostPeers
    if all(everyone(all(reaches(seat.device) for seat in seats))):
        return SymmetricPeers
    return HostPeers


def _choose(
    role: str, group: torch.distributed.ProcessGroup, device: torch.device
) -> Transport | None:
    tell = partial(told_by_all, group)
    mine = Seat.of(device)
    kind = kind_of(tell(mine), partial(_reaches, device), tell)
    if kind is SymmetricPeers:
        return SymmetricPeers(role, device, tell)
    if kind is HostPeers:
        return HostPeers(role, device, group.rank(), group.size(), tell)
    return None


def told_by_all(group: torch.distributed.ProcessGroup, said: Any) -> list[Any]:
    """What each rank of a group says, in their order: a collective of the group."""
    found: list[Any] = [None] * group.size()
    torch.distributed.all_gather_object(found, said, group=group)
    return found


def _machine() -> str:
    """The name of this machine, or container, since it was started."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text() if boot.exists() else ''}"


def _name(device: torch.device) -> str:
    """The name that a device has in all processes."""
    return str(torch.cuda.get_device_properties(device).uuid)


def _reaches(mine: torch.device, name: str) -> bool:
    """Whether a device reaches the memory of another; of those that are not visible
    here nothing is known, and it is taken to."""
    index = mine.index if mine.index is not None else torch.cuda.current_device()
    for other in range(torch.cuda.device_count()):
        if _name(torch.device("cuda", other)) == name and other != index:
            return torch.cuda.can_device_access_peer(index, other)
    return True
