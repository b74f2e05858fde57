"""What `torch.compile(..., backend="dynaflow", options={...})` takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias, cast

from dynaflow_dsl.cli.options import write_scalar
from dynaflow_dsl.integrations.dynamo.model import Meaning
from dynaflow_dsl.integrations.dynamo.modules import LoadOptions
from dynaflow_dsl.integrations.dynamo.names import refuse_option, similar
from dynaflow_dsl.trace.model import Persistent

Write: TypeAlias = Literal["missing", "always", "never"]
_WRITE = ("missing", "always", "never")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a backend.

    `schedule` is a `.dfs` file. `module` is the file or folder of what is generated,
    None for the project's folder; `write` says when it is written. `entries` names
    graphs by their fixed sizes. Without `strict`, what cannot be scheduled is compiled
    by Inductor, with a warning.
    """

    schedule: str
    module: Path | None = None
    write: Write = "missing"
    parameters: Mapping[str, str] = field(default_factory=dict)
    meaning: Meaning = field(default_factory=Meaning)
    entries: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    strict: bool = True
    load: LoadOptions = field(default_factory=LoadOptions)


def read_options(options: object) -> Options:
    """Check what a caller gives; raises DiagnosticError (DFS820)."""
    if not isinstance(options, Mapping) or "schedule" not in options:
        refuse_option(
            'the backend "dynaflow" needs a schedule',
            'torch.compile(model, backend="dynaflow", '
            'options={"schedule": "halves.dfs"})',
        )
    for name in options:
        if name not in _READERS:
            own = _OF_COMPILE.get(str(name))
            refuse_option(
                f'the backend "dynaflow" has no option {name!r}',
                *(similar(name, _READERS) if own is None else (own,)),
                f"its options: {', '.join(_READERS)}",
            )
    read = {name: _READERS[name](name, value) for name, value in options.items()}
    _check_entries(read.get("entries", {}), read.get("dims", {}))
    return Options(
        schedule=read["schedule"],
        module=read.get("module"),
        write=read.get("write", "missing"),
        parameters=read.get("parameters", {}),
        meaning=Meaning(
            dims=read.get("dims", {}),
            dimensions=read.get("dimensions", {}),
            persistent=read.get("persistent", {}),
            disjoint=read.get("disjoint", ()),
            facts=read.get("facts", {}),
        ),
        entries=read.get("entries", {}),
        strict=read.get("strict", True),
        load=LoadOptions(
            compile=read.get("compile", True),
            cache=read.get("cache"),
            capture=read.get("capture", True),
        ),
    )


def _path(name: str, value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        _wrong(name, value, "the path of a file")
    return os.fspath(value)


def _module(name: str, value: object) -> Path:
    path = Path(_path(name, value))
    if path.suffix not in ("", ".py") and not path.is_dir():
        _wrong(name, value, "a file that ends in .py, or a folder")
    return path


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        _wrong(name, value, "True or False")
    return value


def _when(name: str, value: object) -> str:
    if value not in _WRITE:
        _wrong(name, value, "one of " + ", ".join(map(repr, _WRITE)))
    return str(value)


def _scalars(name: str, value: object) -> dict[str, Any]:
    table = _table(name, value)
    for key, each in table.items():
        if not isinstance(each, bool | int | float | str):
            _wrong(f"{name}[{key!r}]", each, "a number, a string or a truth value")
    return table


def _parameters(name: str, value: object) -> dict[str, str]:
    return {key: write_scalar(each) for key, each in _scalars(name, value).items()}


def _axes(name: str, value: object) -> dict[str, tuple[str | None, ...]]:
    table = _table(name, value)
    for key, axes in table.items():
        if not isinstance(axes, tuple | list) or not all(
            axis is None or (isinstance(axis, str) and axis.isidentifier())
            for axis in axes
        ):
            helps = _other("dimensions", "bounds of a dimension", _is_bounds(axes))
            wanted = 'names of axes, such as ("batch", None)'
            _wrong(f"{name}[{key!r}]", axes, wanted, *helps)
    return {key: tuple(axes) for key, axes in table.items()}


def _bounds(name: str, value: object) -> dict[str, tuple[int, int | None]]:
    table = _table(name, value)
    for key, bounds in table.items():
        if not _is_bounds(bounds):
            named = isinstance(bounds, tuple | list) and any(
                isinstance(each, str) for each in bounds
            )
            helps = _other("dims", "names of an input's axes", named)
            wanted = "the lowest and the highest size, or None"
            _wrong(f"{name}[{key!r}]", bounds, wanted, *helps)
    return {key: (low, high) for key, (low, high) in table.items()}


def _is_bounds(value: object) -> bool:
    match value:
        case [int(low), int() | None as high]:
            return type(low) is int and type(high) is not bool
    return False


def _other(option: str, what: str, meant: bool) -> tuple[str, ...]:
    """The option that somebody meant who gave another one its values."""
    return (f"{what} are given by the option {option!r}",) if meant else ()


def _persistent(name: str, value: object) -> dict[str, Persistent]:
    """A list of names, or what each of them is, as for a TraceSpec."""
    if isinstance(value, list | tuple):
        return {key: Persistent() for key in _names(name, value)}
    table = _table(name, value)
    for key, each in table.items():
        if not isinstance(each, Persistent):
            _wrong(f"{name}[{key!r}]", each, "a dynaflow_dsl.trace.Persistent")
    return table


def _names(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(each, str) for each in value
    ):
        _wrong(name, value, "a list of names")
    return tuple(cast("list[str]", value))


def _entries(name: str, value: object) -> dict[str, dict[str, int]]:
    table = _table(name, value)
    for key, sizes in table.items():
        if not key.isidentifier():
            _wrong(name, key, "a table by names that are identifiers")
        for size in _table(f"{name}[{key!r}]", sizes).values():
            if type(size) is not int:
                _wrong(f"{name}[{key!r}]", size, "sizes by name")
    return table


def _check_entries(
    entries: Mapping[str, Mapping[str, int]],
    dims: Mapping[str, tuple[str | None, ...]],
) -> None:
    """Refuse sizes of axes that nobody names: no graph would have them."""
    known = sorted({name for axes in dims.values() for name in axes if name})
    for entry, sizes in entries.items():
        for name in sizes:
            if name not in known:
                refuse_option(
                    f"the option 'entries' has a size of {name} for {entry!r}, and "
                    "'dims' names no such axis",
                    *similar(name, known),
                    f"the axes that it names: {', '.join(known) or 'none'}",
                )


def _table(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        _wrong(name, value, "a dictionary by name")
    return dict(value)


# What `torch.compile` takes beside its options, or Inductor among them.
_OF_COMPILE = {
    "backend": "it is an argument of torch.compile itself",
    "dynamic": "it is an argument of torch.compile itself",
    "fullgraph": "it is an argument of torch.compile itself",
    "max_autotune": "options of Inductor are set in torch._inductor.config",
    "mode": "there are no modes: a schedule says what is captured",
    "triton.cudagraphs": "a schedule says what is captured: capture batch at [8]",
}

_READERS: Mapping[str, Callable[[str, object], Any]] = {
    "schedule": _path,
    "module": _module,
    "write": _when,
    "parameters": _parameters,
    "facts": _scalars,
    "dims": _axes,
    "dimensions": _bounds,
    "persistent": _persistent,
    "disjoint": _names,
    "entries": _entries,
    "strict": _flag,
    "compile": _flag,
    "cache": _path,
    "capture": _flag,
}


def _wrong(name: str, value: object, wanted: str, *helps: str) -> NoReturn:
    refuse_option(f"the option {name!r} is {value!r}; it must be {wanted}", *helps)
