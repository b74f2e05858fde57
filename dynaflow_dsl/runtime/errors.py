"""What the runtime refuses, as exceptions with a code."""

from __future__ import annotations


class RuntimeFault(Exception):
    """A refusal of the runtime: a code such as `DFS802` and one readable paragraph."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(code, message)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class LoadError(RuntimeFault):
    """A generated module cannot be loaded with this model or on this device.

    DFS801: the model is not the one that the module was made for. DFS803: the map file
    beside the module is missing or broken. DFS505: the module's format is unknown.
    DFS804: the module is not of the shape that the runtime expects. DFS805: a part
    cannot be compiled for every size of its inputs. DFS807: a stream has an option
    that the device or this PyTorch cannot do. DFS808: times of steps cannot be taken.
    DFS809: facts that the module was made with are others here. DFS811: pieces run in a
    context, and `load` was given none.
    """


class InputError(RuntimeFault):
    """DFS802: what a step was called with is not what it was made for."""


class CheckError(RuntimeFault):
    """DFS810: a step that was loaded with `DFSC_CHECK=1` broke one of its rules."""


class RankError(RuntimeFault):
    """Ranks of a process group do not do the same.

    DFS815: they have loaded other modules, or were called with other sizes. DFS816: a
    collective has failed, or another rank did not come. DFS817: a stream needs a
    process group of its own, and none can be made; or a group has been destroyed.
    DFS818: a kernel needs memory that ranks share, and it cannot be made.
    """
