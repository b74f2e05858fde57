"""Replaces the `forward` of one model, and puts it back."""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

import torch

from dynaflow_dsl.integrations.errors import ScheduleError
from dynaflow_dsl.integrations.making import MadeModule
from dynaflow_dsl.runtime.weights import model_tensors


@dataclass(frozen=True, slots=True)
class CallReport:
    """What became of the calls of a scheduled model so far.

    `module` is the file of the module that runs, None for one in memory. `steps` counts
    the steps of each entry, `own` the calls that the model's own forward took, by
    reason.
    """

    module: str | None
    steps: dict[str, int] = field(default_factory=dict)
    own: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """One line for each kind of call."""
        lines = [f"module: {self.module or 'in memory'}"]
        lines += [f"{count} steps of {entry}" for entry, count in self.steps.items()]
        lines += [
            f"{count} calls by the model's own forward: {reason}"
            for reason, count in self.own.items()
        ]
        return "\n".join(lines)


class ScheduledForward:
    """Stands in an instance's place of `forward`: runs steps where they fit.

    A subclass says in `run` what a call becomes; it calls `self.own` for what no step
    takes. Copies of the model, and what is unpickled of it, run by themselves.
    """

    def __init__(self, model: torch.nn.Module, made: MadeModule, strict: bool) -> None:
        self.model = model
        self.made = made
        self.strict = strict
        self.parameters = inspect.signature(type(model).forward).parameters
        self._names = tuple(self.parameters)[1:]
        self._own = MethodType(type(model).forward, model)
        self._steps: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._weights = _addresses(model)
        self._libraries = {type(model).__module__.partition(".")[0], "transformers"}
        # Libraries read the signature of `model.forward`.
        self.__signature__ = inspect.signature(self._own)
        self.__name__ = "forward"
        self.__doc__ = type(model).forward.__doc__

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
                stacklevel=4,
            )
        self._reasons[reason] += 1
        return self._own(**given)

    def count(self, entry: str) -> None:
        """Note one step of an entry."""
        self._steps[entry] += 1

    def report(self) -> CallReport:
        """What became of the calls so far."""
        file = self.made.file
        return CallReport(
            None if file is None else file.as_posix(),
            dict(self._steps),
            dict(self._reasons),
        )

    def changed(self) -> str | None:
        """What is no longer as it was when the model was scheduled; None if all is.

        Steps read the tensors that the model had then, and call no hook of a module.
        """
        now = _addresses(self.model)
        for path, address in self._weights.items():
            if now.get(path) != address:
                return (
                    f"`{path}` was moved or replaced since the model was scheduled; "
                    "schedule it again"
                )
        for path, module in self.model.named_modules():
            if path and _has_hooks(module, self._libraries):
                return f"`{path}` has hooks, which steps do not call"
        return None

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
    """Let an instance run by `forward` until `detach`."""
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


def attached(model: torch.nn.Module) -> ScheduledForward:
    """The forward of a scheduled model. Raises ScheduleError (DFS830) for others."""
    forward = vars(model).get("forward")
    if not isinstance(forward, ScheduledForward):
        raise ScheduleError(
            "DFS830", f"this {type(model).__name__} is not scheduled."
        )
    return forward


def detach(model: torch.nn.Module) -> None:
    """Let a scheduled model run by itself again. Raises ScheduleError (DFS830)."""
    attached(model)
    del vars(model)["forward"]


def _is_own(forward: object, model: torch.nn.Module) -> bool:
    """Whether it is what a copy of a scheduled model has."""
    return isinstance(forward, MethodType) and forward == _own_forward(model)


def _own_forward(model: torch.nn.Module) -> Callable[..., Any]:
    return MethodType(type(model).forward, model)


def _addresses(model: torch.nn.Module) -> dict[str, tuple[int, torch.dtype]]:
    return {
        path: (tensor.data_ptr(), tensor.dtype)
        for path, tensor in model_tensors(model).items()
    }


def _has_hooks(module: torch.nn.Module, libraries: set[str]) -> bool:
    """Whether somebody but its library hooked into a module.

    Libraries leave hooks that do nothing unless hidden states are asked for, and such
    calls are no steps.
    """
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(
        (getattr(hook, "__module__", "") or "").partition(".")[0] not in libraries
        for hook in hooks
    )
