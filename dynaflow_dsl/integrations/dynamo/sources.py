"""Names that Dynamo gives to what a graph reads, such as `L['self'].layers.0.weight`.

A name says how its value is reached from the local (`L`) and global (`G`) variables of
the compiled function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

_STEP = re.compile(
    r"\.(?P<attribute>\w+)"
    r"|\[(?P<quote>['\"])(?P<key>.*?)(?P=quote)\]"
    r"|\[(?P<index>\d+)\]"
)


_TABLES = ("_modules", "_parameters", "_buffers")


@dataclass(frozen=True, slots=True)
class Attribute:
    """A step from a value to its attribute; a number is a module in a list."""

    name: str


# An attribute, the key of a dictionary, or the index of a sequence.
Step: TypeAlias = "Attribute | str | int"


def steps_of(source: str) -> tuple[Step, ...] | None:
    """The steps of a name after its `L` or `G`; None for names that do more."""
    if source[:1] not in ("L", "G"):
        return None
    steps: list[Step] = []
    position = 1
    while position < len(source):
        match = _STEP.match(source, position)
        if match is None:
            return None
        if match["attribute"] is not None:
            steps.append(Attribute(match["attribute"]))
        elif match["index"] is not None:
            steps.append(int(match["index"]))
        else:
            steps.append(match["key"])
        position = match.end()
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class Scope:
    """The variables that names begin with; `local` is in the order of the function's.

    `positional` and `keywords` are the variables that hold arguments without names of
    their own, `*args` and `**kwargs` of a wrapper; `parameters` are those of the
    function it wraps, of which the first of `args` is the first. Frameworks that keep a
    graph and run it later know its model as `self`: `Scope.of(model)`.
    """

    local: Mapping[str, object]
    globals: Mapping[str, object] = field(default_factory=dict)
    positional: str | None = None
    keywords: str | None = None
    parameters: tuple[str, ...] = ()

    @staticmethod
    def of(model: torch.nn.Module) -> Scope:
        """The scope of the model's own `forward`."""
        return Scope({"self": model})

    def argument(self, source: str | None) -> tuple[Step, ...]:
        """The steps of a name, beginning with the argument's name as a caller knows it;
        none for a name that cannot be followed."""
        steps = (steps_of(source) if source else None) or ()
        match steps:
            case (str(name), int(index), *rest) if name == self.positional:
                if index < len(self.parameters):
                    return (self.parameters[index], *rest)
            case (str(name), str(key), *rest) if name == self.keywords:
                return (key, *rest)
        return steps

    def sizes_of(self, dims: Mapping[str, Sequence[str | None]]) -> dict[str, int]:
        """Sizes of named axes of the tensors that a caller gives for parameters."""
        found: dict[str, int] = {}
        for name, axes in dims.items():
            given = self._given(name)
            if isinstance(given, torch.Tensor) and given.ndim == len(axes):
                for axis, size in zip(axes, given.shape, strict=True):
                    if axis is not None and isinstance(size, int):
                        found.setdefault(axis, size)
        return found

    def is_left_out(self, name: str) -> bool:
        """Whether an argument is right to be no input of this call's graph.

        It is a parameter of the function, or leads through one, without a value in this
        call. Or the graph does not read its tensor, or knows it by the name of another
        argument that has the same one.
        """
        return any(
            _leads_to_a_tensor_or_nothing(self._given(parameter), rest)
            for parameter in (*self.local, *self.parameters)
            if (rest := _rest(name, parameter)) is not None
        )

    def _given(self, parameter: str) -> object | None:
        """What a caller gives for a parameter; None where it is left out."""
        if parameter in self.parameters:
            given: Any = self.local.get(self.positional or "", ())
            named: Any = self.local.get(self.keywords or "", {})
            number = self.parameters.index(parameter)
            found: object = (
                given[number] if number < len(given) else named.get(parameter)
            )
            return found
        return self.local.get(parameter)

    def value(self, source: str | None) -> object | None:
        """What a name stands for; None where it cannot be followed."""
        steps = steps_of(source) if source else None
        return self.follow(source[0], steps) if source and steps is not None else None

    def follow(self, letter: str, steps: Sequence[Step]) -> object | None:
        """What is reached by steps from local (`L`) or global variables, or None."""
        value: Any = self.local if letter == "L" else self.globals
        try:
            for step in steps:
                value = _follow(value, step)
        except (AttributeError, IndexError, KeyError, TypeError):
            return None
        return value  # type: ignore[no-any-return]


def without_tables(names: Iterable[str]) -> list[str]:
    """Names of steps without a module's tables: Dynamo goes through them in some names
    and not in others."""
    return [name for name in names if name not in _TABLES]


def outermost_module(scope: Scope, source: str | None) -> torch.nn.Module | None:
    """The first module that a name leads through."""
    steps = (steps_of(source) if source else None) or ()
    for count in range(1, len(steps) + 1):
        value = scope.follow((source or "L")[0], steps[:count])
        if isinstance(value, torch.nn.Module):
            return value
    return None


def _follow(value: Any, step: Step) -> Any:
    match step:
        case Attribute(name):
            modules = vars(value).get("_modules") or {}
            return modules[name] if name in modules else getattr(value, name)
        case _:
            return value[step]


def _rest(name: str, beginning: str) -> str | None:
    """What follows of a name after its beginning, None for a name of something else."""
    if name == beginning:
        return ""
    after = name.removeprefix(f"{beginning}_")
    return after if after != name else None


def _leads_to_a_tensor_or_nothing(value: object, rest: str) -> bool:
    """Whether a name that leads on from a value by its attributes and keys ends at a
    tensor, or at something that has no tensors now."""
    if value is None or (isinstance(value, list | tuple | dict) and not value):
        return True
    if isinstance(value, torch.Tensor) or not rest:
        return isinstance(value, torch.Tensor) and not rest
    if isinstance(value, Mapping):
        inside = dict(value)
    elif isinstance(value, list | tuple):
        fields = getattr(value, "_fields", range(len(value)))
        inside = dict(zip(fields, value, strict=True))
    else:
        inside = getattr(value, "__dict__", {})
    return any(
        _leads_to_a_tensor_or_nothing(each, after)
        for key, each in inside.items()
        if (after := _rest(rest, str(key))) is not None
    )


class Owner:
    """Where modules and tensors lie in a model, by identity.

    Dynamo names them as seen from the compiled function, which may be that of one
    layer; a schedule names them as seen from the model.
    """

    __slots__ = ("_modules", "_places", "_tensors", "model")

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self._modules = {id(module): path for path, module in model.named_modules()}
        self._places = dict(model.named_modules(remove_duplicate=False))
        tensors = [
            *model.named_parameters(remove_duplicate=False),
            *model.named_buffers(remove_duplicate=False),
        ]
        self._tensors = {id(tensor): path for path, tensor in reversed(tensors)}

    def module(self, value: object) -> str | None:
        """The path of a module, None where it is none of this model."""
        return self._modules.get(id(value))

    def module_at(self, scope: Scope, source: str) -> str | None:
        """The path of the module that a name leads to, as far as the name tells it.

        One module may be registered at several places: the name says at which it was
        called, as seen from the first of the model's modules on its way.
        """
        found = self.module(scope.value(source))
        steps = steps_of(source) or ()
        if found is None:
            return None
        for count in range(1, len(steps)):
            home = self.module(scope.follow(source[0], steps[:count]))
            if home is None:
                continue
            rest = [str(getattr(step, "name", step)) for step in steps[count:]]
            path = ".".join([*([home] if home else []), *without_tables(rest)])
            if path in self._places and self._places[path] is self._places[found]:
                return path
            break
        return found

    def tensor(self, value: object) -> str | None:
        """The path of a parameter or buffer, None where it is none of this model."""
        return self._tensors.get(id(value))
