"""Kernels: callables of the user's that stand in for a part of a model."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Kernel:
    """A callable and the plain PyTorch that it stands for.

    Made with the decorator `kernel`; calling it calls `function`. `function` takes all
    arguments of `reference` by name, and perhaps more: options of the launch that a
    schedule gives in `via`. It returns what `reference` returns, new tensors that share
    no memory with its arguments, and works on the stream that is current.

    `mutates` names the arguments that it writes in place, which the reference writes
    too. None says that effects are not declared: such a kernel shares no window.
    `workspace` are the bytes that it allocates beside its results, and `communicator`
    the name of the process group that it uses, None without one.
    """

    function: Callable[..., Any]
    reference: Callable[..., Any]
    mutates: tuple[str, ...] | None = None
    workspace: int = 0
    communicator: str | None = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the kernel."""
        return self.function(*arguments, **named)


def kernel(
    *,
    reference: Callable[..., Any],
    mutates: tuple[str, ...] | None = None,
    workspace: int = 0,
    communicator: str | None = None,
) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a `Kernel` of a function; see there for the arguments.

    Parameters of `reference` are tensors unless their annotation is `float`, `int`,
    `bool` or `str`.
    """

    def made(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, reference, mutates, workspace, communicator)

    return made


def source_digest(made: Kernel) -> str:
    """12 hex digits of the files that a kernel and its reference are written in.

    Of a function without a file, the digits of nothing.
    """
    texts = []
    for function in (made.function, made.reference):
        try:
            file = inspect.getsourcefile(inspect.unwrap(function))
        except TypeError:
            file = None
        if file is not None and Path(file).is_file():
            texts.append(Path(file).read_bytes().replace(b"\r\n", b"\n"))
    digest = hashlib.sha256()
    for text in dict.fromkeys(texts):
        digest.update(f"{len(text)}:".encode() + text)
    return digest.hexdigest()[:12]
