"""Replaces the `forward` of one model, and puts it back."""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, TypeVar

import torch

from dynaflow_dsl.integrations.errors import ScheduleError, without_frames
from dynaflow_dsl.integrations.making import MadeModule, Step
from dynaflow_dsl.integrations.watching import Watch

Model = TypeVar("Model", bound=torch.nn.Module)


@dataclass(frozen=True, slots=True)
class CallReport:
    """What became of the calls of a scheduled model so far.

    `modules` are the files of the modules that run, "in memory" for one without a file.
    `steps` counts the steps of each entry, and `unsplit` those among them that ran
    without the split of their schedule, as for too few rows. `own` counts the calls
    that the model's own forward took, by reason.
    """

    modules: tuple[str, ...]
    steps: dict[str, int] = field(default_factory=dict)
    unsplit: dict[str, int] = field(default_factory=dict)
    own: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """One line for each kind of call."""
        lines = [f"module: {module}" for module in self.modules]
        for entry, count in self.steps.items():
            whole = self.unsplit.get(entry, 0)
            without = f", {whole} of them unsplit" if whole else ""
            lines.append(f"{count} steps of {entry}{without}")
        lines += [
            f"{count} calls by the model's own forward: {reason}"
            for reason, count in self.own.items()
        ]
        return "\n".join(lines)


class ScheduledForward:
    """Stands in an instance's place of `forward`: runs steps where they fit.

    A subclass says in `run` what a call becomes; it calls `self.own` for what no step
    takes. `watch` says whether the model is still the one that was scheduled. Copies of
    the model, and what is unpickled of it, run by themselves.
    """

    def __init__(self, model: torch.nn.Module, strict: bool) -> None:
        self.model = model
        self.modules: list[MadeModule] = []
        self.strict = strict
        self.parameters = inspect.signature(type(model).forward).parameters
        self._names = tuple(self.parameters)[1:]
        self._own = MethodType(type(model).forward, model)
        self._steps: Counter[str] = Counter()
        self._unsplit: Counter[str] = Counter()
        # By entry and the shape of the first input.
        self._known_unsplit: dict[tuple[str, torch.Size], bool] = {}
        self._reasons: Counter[str] = Counter()
        self.watch = Watch(model, _package(model), "transformers")
        # Libraries read the signature of `model.forward`.
        self.__signature__ = inspect.signature(self._own)
        self.__name__ = "forward"
        self.__doc__ = type(model).forward.__doc__

    @without_frames
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The model's forward, with its arguments and results."""
        if torch.compiler.is_compiling():
            return self._own(*arguments, **named)
        if len(arguments) > len(self._names):
            return self._own(*arguments, **named)  # says what is wrong
        given = {**dict(zip(self._names, arguments, strict=False)), **named}
        if len(given) < len(arguments) + len(named):
            return self._own(*arguments, **named)
        reason = self._not_now()
        if reason is not None:
            return self.own(reason, given)
        return self.run(given)

    def run(self, given: dict[str, Any]) -> Any:
        """What a call with these arguments, by name, returns."""
        raise NotImplementedError

    def own(self, reason: str, given: dict[str, Any], *, expected: bool = False) -> Any:
        """Run the model's own forward, and say why, once for each reason.

        Nothing is said where it is `expected`: the schedule is not for such calls.
        Raises ScheduleError (DFS831) instead, where the caller asked for that.
        """
        if self.strict and not expected:
            raise ScheduleError(
                "DFS831",
                f"this call of {type(self.model).__name__} cannot run scheduled: "
                f"{reason}.",
            )
        if not expected and reason not in self._reasons:
            warnings.warn(
                f"{type(self.model).__name__} runs unscheduled here: {reason}",
                RuntimeWarning,
                stacklevel=5,
            )
        self._reasons[reason] += 1
        return self._own(**given)

    def step(self, entry: str, run: Step, *arguments: Any, **named: Any) -> Any:
        """Run one step of an entry, and note it."""
        result = run(*arguments, **named)
        first = arguments[0] if arguments else next(iter(named.values()))
        key = entry, first.shape
        if key not in self._known_unsplit:
            self._known_unsplit[key] = run.runs_unsplit(*arguments, **named)
        self._steps[entry] += 1
        self._unsplit[entry] += self._known_unsplit[key]
        return result

    def report(self) -> CallReport:
        """What became of the calls so far."""
        files = [made.file for made in self.modules]
        return CallReport(
            tuple("in memory" if file is None else file.as_posix() for file in files),
            dict(self._steps),
            dict(+self._unsplit),
            dict(self._reasons),
        )

    def _not_now(self) -> str | None:
        """Why no call can be a step at the moment; None when one can."""
        if self.model.training:
            return "the model is in training mode"
        if torch.is_grad_enabled() and any(
            parameter.requires_grad for parameter in self.model.parameters()
        ):
            return "gradients are wanted, and steps have none"
        if torch.is_autocast_enabled(self._device_type()):
            return "autocast is on"
        return None

    def _device_type(self) -> str:
        first = next(self.model.parameters(), None)
        return "cpu" if first is None else first.device.type

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy's weights are not those that the module was loaded with.
        return _own_forward, (self.model,)


def attach(model: torch.nn.Module, forward: ScheduledForward) -> None:
    """Let an instance run by `forward` until it is unscheduled."""
    vars(model)["forward"] = forward


def check_free(model: torch.nn.Module) -> None:
    """Raise ScheduleError (DFS830) for a model whose `forward` is not its class's."""
    forward = vars(model).get("forward")
    if isinstance(forward, ScheduledForward):
        raise ScheduleError(
            "DFS830",
            f"this {type(model).__name__} is scheduled already: call `unschedule` "
            "first.",
        )
    if forward is not None and not _is_own(forward, model):
        raise ScheduleError(
            "DFS830",
            f"something else has replaced the `forward` of this {type(model).__name__}"
            ": schedule the model before that, or without it.",
        )
    vars(model).pop("forward", None)


def unschedule(model: Model) -> Model:
    """Let a scheduled model run by itself again, as if nothing had been.

    Raises ScheduleError (DFS830) for a model that is not scheduled.
    """
    _attached(model)
    del vars(model)["forward"]
    return model


@contextmanager
def until_left(model: Model) -> Iterator[Model]:
    """Unschedules a scheduled model when the `with` statement is left."""
    forward = _attached(model)
    try:
        yield model
    finally:
        if vars(model).get("forward") is forward:
            unschedule(model)


def report(model: torch.nn.Module) -> CallReport:
    """What became of the calls of a scheduled model so far.

    Raises ScheduleError (DFS830) for a model that is not scheduled.
    """
    return _attached(model).report()


def _attached(model: torch.nn.Module) -> ScheduledForward:
    forward = vars(model).get("forward")
    if not isinstance(forward, ScheduledForward):
        raise ScheduleError("DFS830", f"this {type(model).__name__} is not scheduled.")
    return forward


def _is_own(forward: object, model: torch.nn.Module) -> bool:
    """Whether it is what a copy of a scheduled model has."""
    return isinstance(forward, MethodType) and forward == _own_forward(model)


def _own_forward(model: torch.nn.Module) -> Callable[..., Any]:
    return MethodType(type(model).forward, model)


def _package(model: torch.nn.Module) -> str:
    return type(model).__module__.partition(".")[0]
