"""The ranks that run a module together: they meet, and none waits silently."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata

import torch
import torch.distributed
from torch.distributed import ProcessGroup

from dynaflow_dsl.runtime.agreement import Steps, compare_statements
from dynaflow_dsl.runtime.errors import InputError, RankError, RuntimeFault
from dynaflow_dsl.runtime.groups import (
    has_others,
    host_group,
    is_known_to_torch,
    make_stream_groups,
    players,
    playing_or_named,
    role_of,
    timeout_of,
)
from dynaflow_dsl.runtime.module_map import ModuleMap
from dynaflow_dsl.runtime.progress import DeviceProgress
from dynaflow_dsl.runtime.stalls import StallWatch

_log = logging.getLogger("dynaflow_dsl.runtime")

# How process groups speak of ranks that are gone or late.
_OF_A_GROUP = re.compile(
    r"gloo|nccl|ucc_|ProcessGroup|Connection (closed|reset)|Broken pipe|"
    r"[Tt]imed? ?out|[Ss]ocket",
)


@dataclass(slots=True)
class Ranks:
    """What one module's executors do together with those of other ranks.

    `groups` are the names of all process groups of the module, in its order, and
    `statement` what this rank has loaded. With `always`, steps are compared each time
    they begin; else when this rank has not had such a step before, since asking the
    others keeps the host waiting. `watched` is a device that goes on by itself: steps
    that hang there are told of.
    """

    groups: tuple[str, ...]
    statement: Mapping[str, str]
    always: bool
    watched: torch.device | None = None
    stalls: StallWatch | None = None
    _met: dict[str, ProcessGroup] = field(default_factory=dict)
    _steps: dict[str, Steps] = field(default_factory=dict)
    _known: set[tuple[object, ...]] = field(default_factory=set)

    def know(self, steps: Sequence[str], sizes: Sequence[str]) -> None:
        """Names of steps that ranks may tell each other of, and of their sizes."""
        for step in steps:
            Steps.know(step, sizes)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles whose ranks run the module together."""
        return tuple(dict.fromkeys(map(role_of, self.groups)))

    def meet(self) -> None:
        """Compare what ranks have loaded, and make the groups of streams.

        Roles that nobody plays yet are left for the first step. A group that the
        model's own code names need not load on all ranks at a time: what such ranks
        have loaded is compared in the first step too. Raises RankError.
        """
        playing = players()
        self._met = playing_or_named(self.roles)
        self._known.clear()
        self._steps.clear()
        for role, group in self._met.items():
            if not has_others(role, group):
                continue
            statement: Mapping[str, str] | None = self.statement
            if role in playing:
                compare_statements(role, group, self.statement)
                statement = None
            control = host_group(role, group)
            self._steps[role] = Steps(role, group, control, statement)
        make_stream_groups(self.groups)
        if self.watched is not None and self._steps:
            shortest = min(timeout_of(self._met[role]) for role in self._steps)
            if self.stalls is None:
                self.stalls = _stall_watch(self.watched, self._others_said)
            if self.stalls is not None:
                self.stalls.watch(shortest)

    def before_step(self, step: str, sizes: Mapping[str, int]) -> None:
        """Compare the step that begins with those of other ranks. Raises RankError.

        `sizes` are those that have to be alike on all ranks.
        """
        if self._others_play():
            self.meet()
        self._check_groups("call bind_group({role!r}, group) with one that there is")
        key = step, *sizes.items()
        if self.always or key not in self._known:
            self._compare(step, sizes)
            self._known.add(key)
        else:
            self._go_on()
        if self.stalls is not None:
            self.stalls.begin(step)

    def _others_play(self) -> bool:
        """Whether a role has another group than when the ranks met."""
        playing = players()
        for role in self.roles:
            met, here = self._met.get(role), playing.get(role)
            if here is None and met is not None:
                here = playing_or_named([role]).get(role)
            if here is not met:
                return True
        return False

    def _check_groups(self, way_out: str) -> None:
        """Raise RankError (DFS817) where a group that ranks met in is destroyed."""
        for role in self._steps:
            if not is_known_to_torch(self._met[role]):
                raise RankError(
                    "DFS817",
                    f"the group that played '{role}' when the ranks met has been "
                    f"destroyed: {way_out.format(role=role)}.",
                )

    def _go_on(self) -> None:
        """Take back what others were told of a failure: this rank runs another step."""
        for steps in self._steps.values():
            steps.withdraw()

    def _compare(self, step: str, sizes: Mapping[str, int]) -> None:
        for role, steps in self._steps.items():
            try:
                steps.compare(step, sizes)
            except RuntimeError as error:  # no RankError is one
                raise RankError(
                    "DFS816",
                    f"rank {self._met[role].rank()} of the group '{role}' was called "
                    f"for {step}, and not all of the others were: {_first_line(error)}"
                    f"{steps.others_said()}.",
                ) from error

    def _others_said(self) -> str:
        return "".join(steps.others_said() for steps in self._steps.values())

    @contextmanager
    def replayed(self, step: str) -> Iterator[None]:
        """A step of captured graphs, which ranks have compared before.

        Raises RankError where these hold communicators that are destroyed.
        """
        self._check_groups(
            "captured steps have its communicators: call bind_group({role!r}, group) "
            "with one that there is, and load the module again"
        )
        self._go_on()
        if self.stalls is None:
            yield
            return
        self.stalls.begin(step)
        try:
            yield
            self.stalls.end()
        except BaseException:
            self.stalls.abandon()
            raise

    def failed(self, error: BaseException) -> None:
        """Let the others know that a step of this rank ends with an exception."""
        if self.stalls is not None:
            self.stalls.abandon()
        if isinstance(error, RankError) and error.code == "DFS815":
            return  # all ranks have it
        for role, steps in self._steps.items():
            if not is_known_to_torch(self._met[role]):
                continue  # nobody is waiting there
            steps.tell(_said_to_others(error))
            if isinstance(error, InputError) and self.always:
                steps.refuse()

    def failure(self, error: Exception, names: Sequence[str], step: str) -> Exception:
        """What an exception becomes that a step raised which uses these groups.

        One of a process group says at last which step it was; others stay as they are.
        """
        if isinstance(error, RuntimeFault) or not _is_of_a_group(error):
            return error
        (name, *_) = names
        role = role_of(name)
        group = self._met.get(role)
        where = f"rank {group.rank()} of " if group is not None else ""
        said = self._steps[role].others_said() if role in self._steps else ""
        return RankError(
            "DFS816",
            f"the collective of {step} has failed on {where}the group '{name}': "
            f"{_first_line(error)}. Another rank has stopped, is late, or is in "
            f"another step{said}.",
        )


def ranks_of(
    groups: Iterable[Mapping[str, Sequence[str]]],
    statement: Mapping[str, str],
    device: torch.device,
    *,
    always: bool,
) -> Ranks | None:
    """Those that run a module together, who have met; None without collectives.

    `groups` are those of its executors. Raises RankError.
    """
    names = dict.fromkeys(
        name for by_part in groups for listed in by_part.values() for name in listed
    )
    if not names:
        return None
    ranks = Ranks(
        tuple(names),
        statement,
        always=always or device.type == "cpu",
        watched=device if device.type == "cuda" else None,
    )
    ranks.meet()
    return ranks


def statement_of(
    module_map: ModuleMap, device: torch.device, *, sequential: bool
) -> Mapping[str, str]:
    """What ranks compare of a module that each has loaded."""
    facts = {**module_map.facts, **module_map.given_facts}
    said = {
        "module": module_map.module,
        "schedule": module_map.schedule,
        "graph": " ".join(module_map.graphs.values()),
        "operations": _joined(module_map, "operations"),
        "collectives": _joined(module_map, "collectives"),
        "module's text": module_map.body,
        "torch": torch.__version__,
        "runtime": _version(),
        "device type": device.type,
    }
    said |= {
        f"parameter {name}": text for name, text in module_map.given_parameters.items()
    }
    # Its own number is what a rank may differ in.
    said |= {
        f"fact {name}": str(value)
        for name, value in facts.items()
        if not name.endswith("_rank")
    }
    return said | {"DFSC_SEQUENTIAL": "1" if sequential else "0"}


def _joined(module_map: ModuleMap, what: str) -> str:
    """Digests of all entries; "" for a module that says nothing of them."""
    return " ".join(each[what] for each in module_map.ranks.values())


def _stall_watch(device: torch.device, said: Callable[[], str]) -> StallWatch | None:
    """What watches a device; None where its driver cannot say how far it has come."""
    try:
        # Named for measuring what it takes.
        collectives = os.environ.get("DFSC_PROGRESS") != "0"
        progress = DeviceProgress(device, collectives=collectives)
        return StallWatch(progress, said=said)
    except (OSError, RuntimeError, AttributeError) as error:
        _log.warning("steps that hang are left to the process groups: %s", error)
        return None


@cache
def _version() -> str:
    try:
        return metadata.version("dynaflow-dsl")
    except metadata.PackageNotFoundError:
        return "none"


def _is_of_a_group(error: Exception) -> bool:
    known = isinstance(error, torch.distributed.DistError)
    return known or (
        isinstance(error, RuntimeError) and _OF_A_GROUP.search(str(error)) is not None
    )


def _said_to_others(error: BaseException) -> str:
    match error:
        case RankError():  # which collective has failed; not why, and what others said
            return error.message.partition(": ")[0]
        case RuntimeFault():
            return error.message
    return f"{type(error).__name__}: {_first_line(error)}".removesuffix(": ")


def _first_line(error: BaseException) -> str:
    """What happened, without the place in gloo's source and its general advice."""
    line = str(error).strip().partition("\n")[0]
    line = re.sub(r"^\[\S+\.(cc|cpp|h):\d+\] ", "", line)
    return line.partition(" This is typically")[0].rstrip(".")
