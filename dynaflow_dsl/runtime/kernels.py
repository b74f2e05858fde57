"""Kernels: callables of the user's that stand in for a part of a model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from dynaflow_dsl.runtime.distances import (
    INFINITE,
    TOLERANCES,
    distance,
    usual_magnitude,
)
from dynaflow_dsl.runtime.errors import RuntimeFault


@dataclass(frozen=True, slots=True)
class Kernel:
    """A callable and the plain PyTorch that it stands for.

    Made with the decorator `kernel`; calling it calls `function`. `function` takes all
    arguments of `reference` by name, and perhaps more: options of the launch that a
    schedule gives in `via`. It returns what `reference` returns, new tensors that share
    no memory with its arguments, and works on the stream that is current.

    `reference` is None for a kernel that schedules declare `trusted`: its parameters
    then have the names that the part's function gives its tensors.

    `mutates` names the arguments that it writes in place, which the reference writes
    too. None says that effects are not declared: such a kernel shares no window.
    `workspace` are the bytes that it allocates beside its results, and `communicator`
    the name of the process group that it uses, None without one. `uses` names what else
    its calls share and one of them may use at a time, such as a workspace that is kept:
    kernels that name the same thing never run at once. With `by_stream` it has all of
    this once for each stream, so that its calls on two of them may run at once.
    `declared` are the name and the file of the module that says so.
    """

    function: Callable[..., Any]
    reference: Callable[..., Any] | None
    mutates: tuple[str, ...] | None = None
    workspace: int = 0
    communicator: str | None = None
    uses: tuple[str, ...] = ()
    by_stream: bool = False
    declared: tuple[str, str] | None = field(default=None, compare=False)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the kernel."""
        return self.function(*arguments, **named)


def kernel(
    *,
    reference: Callable[..., Any] | None = None,
    mutates: tuple[str, ...] | None = None,
    workspace: int = 0,
    communicator: str | None = None,
    uses: tuple[str, ...] = (),
    by_stream: bool = False,
) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a `Kernel` of a function; see there for the arguments.

    Parameters of `reference` are tensors unless their annotation is `float`, `int`,
    `bool` or `str`.
    """
    caller = sys._getframe(1)
    declared = str(caller.f_globals.get("__name__", "")), caller.f_code.co_filename

    def made(function: Callable[..., Any]) -> Kernel:
        return Kernel(
            function,
            reference,
            mutates,
            workspace,
            communicator,
            uses,
            by_stream,
            declared,
        )

    return made


@dataclass(slots=True)
class ComparedOnce:
    """A trusted kernel, whose first call is compared with the part's text.

    `kernel` and `text` take the same tensors. Calling it raises RuntimeFault (DFS806)
    where results or written arguments differ, or results share memory with arguments.
    """

    name: str
    kernel: Callable[..., Any]
    text: Callable[..., Any]
    compared: bool = False

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """Run the kernel."""
        if self.compared:
            return self.kernel(*arguments)
        copies = [one.clone() for one in arguments]
        expected = _listed(self.text(*copies))
        made = self.kernel(*arguments)
        given = [*_listed(made), *arguments]
        difference = _first_difference(given, [*expected, *copies], len(expected))
        if difference is not None:
            raise RuntimeFault(
                "DFS806",
                f"the trusted kernel `{self.name}` does not give what the part that "
                f"runs through it gives: {difference}.",
            )
        self.compared = True
        return made


def _listed(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _first_difference(
    made: list[torch.Tensor], expected: list[torch.Tensor], results: int
) -> str | None:
    if len(made) != len(expected):
        return f"{len(made) - len(expected) + results} results instead of {results}"
    around = usual_magnitude(expected)
    memory = {one.untyped_storage().data_ptr() for one in made[results:]}
    for k, (one, other) in enumerate(zip(made, expected, strict=True)):
        what = f"result {k}" if k < results else f"argument {k - results}"
        if (one.shape, one.stride(), one.dtype) != (
            other.shape,
            other.stride(),
            other.dtype,
        ):
            return f"{what} has another shape, dtype or other strides"
        if k < results and one.untyped_storage().data_ptr() in memory:
            return f"{what} shares memory with an argument"
        found = distance(one, other, around)
        if found.relative > TOLERANCES.get(one.dtype, 0.0):
            return f"{what} differs" + (f" by {found}" if found != INFINITE else "")
    return None
