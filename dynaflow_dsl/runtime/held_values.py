"""What a model's modules and their code hold beside tensors, modules and plain text.

Padding of a convolution is a tuple, an activation a function, a configuration often an
object; a method may have values in its closure, and a global may have been set. All of
them decide what is traced. Of modules of installed packages only what is plain counts:
they keep records of their own in dictionaries and objects.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial, partialmethod
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    SimpleNamespace,
)
from typing import Any

import torch

from dynaflow_dsl.runtime.model_code import is_own_code

SCALARS = (bool, int, float, str, type(None))

# Text that another process, device or machine writes differently.
OF_THE_MACHINE = re.compile(r"0x[0-9a-fA-F]+|^(cpu|cuda|meta|mps|xpu)(:\d+)?$|^[/~]")

# Methods that only set attributes.
_MAKING = ("__init__", "__setattr__")

# More of a kind is data and no setting.
_MOST = 1000

# What `transformers` calls hooks that write outputs down, or ask for gradients.
_IDLE_HOOKS = (
    ".output_capturing_hook",
    ".make_inputs_require_grads",
    ".make_inputs_require_grad",
)

# What every module has.
_OF_MODULES = frozenset(vars(torch.nn.Module()))

_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


@dataclass(frozen=True, slots=True)
class Held:
    """Descriptions by where they are held, and the user's functions and classes that
    were found so."""

    values: tuple[tuple[str, str, object], ...]
    code: tuple[Any, ...]


def held_values(
    model: torch.nn.Module, left_out: frozenset[str], not_of_objects: frozenset[str]
) -> Held:
    """What is held in a model.

    `left_out` are attributes of modules that are none of the model, and
    `not_of_objects` such attributes of objects that modules hold.
    """
    reader = _Reader(not_of_objects)
    found: list[tuple[str, str, object]] = []
    kinds = {each for module in model.modules() for each in type(module).__mro__}
    # The names in the methods of the user's classes.
    ours = {kind: _names_in(kind) for kind in kinds if is_own(kind)}
    for path, module in sorted(model.named_modules(remove_duplicate=False)):
        named = ours.get(type(module))
        for name, value in _attributes(module, left_out, named):
            found += reader.entry(path, name, value, own=named is not None)
        for which in ("_forward_pre_hooks", "_forward_hooks"):
            if hooks := hooks_of(module, which):
                found += reader.entry(path, which, hooks, own=True)
    for kind in sorted(ours, key=lambda one: one.__qualname__):
        for name, value in sorted(vars(kind).items()):
            if name in _MAKING:  # what comes of it is there
                continue
            where = f"class {kind.__qualname__}"
            for function in functions_of(value):
                found += reader.entry(where, name, function, own=True)
            public = not name.startswith("_") or name in ours[kind]
            if public and not name.startswith("__") and not functions_of(value):
                found += reader.entry(where, name, value, own=True)
    return Held(tuple(found), tuple(reader.code.values()))


def hooks_of(module: torch.nn.Module, which: str) -> list[Any]:
    """Hooks of a module that may change what it computes."""
    return [hook for hook in getattr(module, which).values() if not _is_idle(hook)]


def _is_idle(hook: object) -> bool:
    """Whether `transformers` leaves a hook behind that computes nothing.

    Those for hidden states stay once somebody has asked for them, those of training
    when it is over. Others of it, for ranks, do compute.
    """
    if not isinstance(hook, FunctionType):
        return False
    # By where it is written: `functools.wraps` gives a function the name of another.
    home = str(hook.__globals__.get("__name__"))
    name = hook.__code__.co_qualname
    return home.partition(".")[0] == "transformers" and name.endswith(_IDLE_HOOKS)


def described(function: object) -> object:
    """A function by its name, with its closure and defaults; None of what is none."""
    return _Reader(frozenset(), with_globals=False).described(function, own=True)


def _attributes(
    module: torch.nn.Module, left_out: frozenset[str], named: frozenset[str] | None
) -> Iterator[tuple[str, object]]:
    """Attributes that say what a module computes; `named` as its class names them.

    That is None for a class of an installed package.
    """
    for name, value in sorted(vars(module).items()):
        if name in left_out or name in _OF_MODULES or name.startswith("__"):
            continue
        if name.startswith("_"):
            # Counters and records are no part of the model.
            wanted = named is not None and name in named
        else:
            # Plain ones are the model's state already.
            wanted = type(value) not in SCALARS
        if wanted and (named is not None or isinstance(value, _OF_LIBRARIES)):
            yield name, value


def _fields_of(value: object) -> dict[str, object]:
    """What an object of the user's has, as it says or as it is written."""
    if callable(getattr(type(value), "to_dict", None)):
        try:
            return dict(value.to_dict())  # type: ignore[attr-defined]
        except Exception:  # the user's code
            pass
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if isinstance(vars(kind).get(name), MemberDescriptorType):
                with suppress(AttributeError):
                    found[name] = vars(kind)[name].__get__(value)
    return found


def _is_container(value: object) -> bool:
    return isinstance(value, list | dict | set)


def _is_of_a_rank(name: str) -> bool:
    """Whether this says which rank a process is: one module is for all of them."""
    return name.lower().removeprefix("global ").split("_")[-1] == "rank"


_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, partial, *_OPERATORS)
_OF_LIBRARIES = (tuple, list, torch.dtype, *_FUNCTIONS)


def is_own(kind: type) -> bool:
    """Whether a class is the user's own code."""
    file = file_of(kind)
    return file is not None and is_own_code(file)


def file_of(kind: type) -> str | None:
    """The file of a class; None of those that were written in none."""
    try:
        return inspect.getsourcefile(kind)
    except (TypeError, OSError):
        return None


def functions_of(value: object) -> list[FunctionType]:
    """The functions of what a class has as an attribute."""
    match value:
        case FunctionType():
            return [value]
        case staticmethod() | classmethod():
            return functions_of(value.__func__)
        case property():
            given = (value.fget, value.fset)
            return [one for each in given for one in functions_of(each)]
        case cached_property() | partialmethod():
            return functions_of(value.func)
    return []


def _names_in(kind: type) -> frozenset[str]:
    """The names in the user's methods of a class, but in what only sets attributes."""
    found: set[str] = set()
    for each in filter(is_own, kind.__mro__):
        for name, value in vars(each).items():
            if name not in _MAKING:
                for function in functions_of(value):
                    for code in _codes(function.__code__):
                        found.update(code.co_names)
    return frozenset(found)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


@dataclass(slots=True)
class _Reader:
    """Describes values, each object once; `code` is the user's that it came upon."""

    not_of_objects: frozenset[str]
    with_globals: bool = True
    code: dict[int, Any] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)

    def entry(
        self, path: str, name: str, value: object, *, own: bool
    ) -> list[tuple[str, str, object]]:
        """An entry for what can be described, else none."""
        said = self.described(value, own=own)
        return [] if said is None else [(path, name, said)]

    def described(self, value: object, *, own: bool) -> object:
        """A value as lists and texts, None where nothing can be said of it."""
        if type(value) in SCALARS:
            of_machine = isinstance(value, str) and OF_THE_MACHINE.search(value)
            return "text" if of_machine else repr(value)
        if isinstance(value, Enum):
            return f"{type(value).__qualname__}.{value.name}"
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return str(value)
        if isinstance(value, _OPERATORS):
            return str(value)
        # What holds itself, or is being described further out.
        if id(value) in self._open:
            return "again"
        self._open.add(id(value))
        try:
            return self._composed(value, own=own)
        finally:
            self._open.discard(id(value))

    def _composed(self, value: object, *, own: bool) -> object:
        match value:
            case tuple() | list():
                return self._listed(value, own=own) if len(value) <= _MOST else None
            case set() | frozenset():
                texts = sorted(str(each) for each in self._listed(value, own=own))
                return ["set", *texts] if len(value) <= _MOST else None
            case MethodType():
                return self.described(value.__func__, own=own)
            case partial():
                given = [value.func, list(value.args), value.keywords]
                return ["partial", *self._listed(given, own=True)]
            case FunctionType():
                return self._function(value)
            case BuiltinFunctionType():
                return value.__qualname__
            case type():
                if is_own(value):
                    self.code[id(value)] = value
                return value.__qualname__
            case dict() if own and len(value) <= _MOST:
                return self._fields(value, frozenset())
            case SimpleNamespace() if own:
                return self._fields(vars(value), self.not_of_objects)
        if not own or isinstance(value, torch.nn.Module | torch.Tensor):
            return None
        if not is_own(type(value)):
            return None
        self.code[id(type(value))] = type(value)
        fields = self._fields(_fields_of(value), self.not_of_objects)
        return [type(value).__qualname__, fields]

    def _listed(self, values: Iterable[object], *, own: bool) -> list[object]:
        return [self.described(each, own=own) for each in values]

    def _fields(
        self, fields: Mapping[Any, object], left_out: frozenset[str]
    ) -> list[tuple[str, object]]:
        found: list[tuple[str, object]] = []
        for key, value in fields.items():
            name = key if isinstance(key, str) else repr(self.described(key, own=False))
            if name.startswith("__") or name in left_out or _is_of_a_rank(name):
                continue
            said = self.described(value, own=True)
            if said is not None:
                found.append((name, said))
        return sorted(found, key=lambda each: each[0])

    def _function(self, function: FunctionType) -> object:
        """A function by its name, and of the user's what it finds outside of it."""
        code = function.__code__
        if not is_own_code(code.co_filename):
            return function.__qualname__
        self.code[id(function)] = function
        around: dict[str, object] = {}
        # What the function writes itself is a record, as containers around it are.
        records = {
            one.argval
            for each in _codes(code)
            for one in dis.get_instructions(each)
            if one.opname in ("STORE_DEREF", "STORE_GLOBAL")
        }
        for name, cell in zip(
            code.co_freevars, function.__closure__ or (), strict=True
        ):
            with suppress(ValueError):  # not set yet
                if name not in records and not _is_container(cell.cell_contents):
                    around[name] = cell.cell_contents
        for each in _codes(code) if self.with_globals else ():
            for name in each.co_names:
                # Classes, modules and objects are what code that is followed says.
                value = function.__globals__.get(name, function.__globals__)
                plain = type(value) in (*SCALARS, tuple) and not name.startswith("_")
                if (plain or isinstance(value, _FUNCTIONS)) and name not in records:
                    around.setdefault(f"global {name}", value)
        defaults = [
            *(function.__defaults__ or ()),
            *(v for _, v in sorted((function.__kwdefaults__ or {}).items())),
        ]
        return [
            code.co_qualname,
            self._fields(around, frozenset()),
            self._listed((v for v in defaults if not _is_container(v)), own=True),
        ]
