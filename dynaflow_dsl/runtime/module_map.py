"""The map file beside a generated module: where its lines come from, and its model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynaflow_dsl.runtime.errors import LoadError

KNOWN_FORMATS = (1,)


@dataclass(frozen=True, slots=True)
class PlanLines:
    """Module lines `first` to `last` are one step of the schedule."""

    first: int
    last: int
    label: str
    layer: str | None
    line: int
    column: int
    text: str


@dataclass(frozen=True, slots=True)
class OperationLine:
    """A module line that is one operation of the traced graph."""

    line: int
    operation: str
    source: str | None


@dataclass(frozen=True, slots=True)
class LoopLines:
    """Module lines `first` to `last` call a function for each of `modules` in turn."""

    first: int
    last: int
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModuleMap:
    """What the map file says.

    `tensors` are dtype and shape of the model's tensors by path. `intact` is False when
    the module's text is not the one the map was written for: lines then mean nothing.
    `kernels` are digests of the kernels' sources, by their names in the module.
    `facts` are those that the schedules read; `given_facts` and `given_parameters` are
    what the command line said when it was made, of `target` with its arguments.
    `graphs` are digests by entry, `schedule` is that of the schedule file and `body`
    that of the module's text as it is. `ranks` are what ranks compare of graphs that
    have collectives, by entry: digests of operations and collectives.
    """

    name: str
    module: str
    source: str
    device: str
    dtype: str
    model_class: str
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]
    fingerprint: Mapping[str, str]
    lines: tuple[PlanLines, ...]
    operations: tuple[OperationLine, ...]
    intact: bool
    kernels: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    given_facts: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    given_parameters: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    target_arguments: Mapping[str, bool | int | float | str] = field(
        default_factory=dict
    )
    graphs: Mapping[str, str] = field(default_factory=dict)
    loops: tuple[LoopLines, ...] = ()
    schedule: str = ""
    body: str = ""
    ranks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def plan_lines(self, number: int) -> PlanLines | None:
        """The step of the schedule that a module line belongs to: the narrowest."""
        if not self.intact:
            return None
        found = [entry for entry in self.lines if entry.first <= number <= entry.last]
        return min(found, key=lambda entry: entry.last - entry.first, default=None)

    def operation(self, number: int) -> OperationLine | None:
        """The operation of a module line."""
        if not self.intact:
            return None
        found = (entry for entry in self.operations if entry.line == number)
        return next(found, None)

    def loop(self, number: int) -> LoopLines | None:
        """The loop over modules whose call a module line belongs to."""
        if not self.intact:
            return None
        found = (each for each in self.loops if each.first <= number <= each.last)
        return next(found, None)


def map_path(module: Path) -> Path:
    """Where the map of a generated module is."""
    return module.with_suffix(".map.json")


def read_map(module: Path) -> ModuleMap:
    """The map of the generated module in the file `module`.

    Raises LoadError: DFS803 when it is missing or broken, DFS505 for an unknown format.
    """
    path = map_path(module)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _broken(module, f"it cannot be read ({reason})") from error
    except (ValueError, RecursionError) as error:
        raise _broken(module, f"it is not JSON ({error})") from error
    if not isinstance(document, dict) or "format" not in document:
        raise _broken(module, "it has no `format`")
    if document["format"] not in KNOWN_FORMATS:
        raise LoadError(
            "DFS505",
            f"{module.name} has module format {document['format']!r}, and this version "
            f"of the runtime knows {', '.join(map(str, KNOWN_FORMATS))}: compile it "
            "again with the `dfsc` that is installed beside this runtime.",
        )
    try:
        return _read(document, module, path.name)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"an entry is missing or of another kind: {type(error).__name__}"
        raise _broken(module, f"{reason}: {error}") from error


def _read(document: Mapping[str, Any], module: Path, name: str) -> ModuleMap:
    model = document["model"]
    given = document.get("given", {})
    body = _text_digest(module)
    return ModuleMap(
        name=name,
        module=module.name,
        source=str(document["source"]),
        device=str(document["device"]),
        dtype=str(document["dtype"]),
        model_class=str(model["class"]),
        tensors={
            path: (str(dtype), tuple(int(size) for size in shape))
            for path, (dtype, shape) in model["tensors"].items()
        },
        fingerprint={key: str(value) for key, value in model["fingerprint"].items()},
        lines=tuple(
            PlanLines(
                first=int(entry["first"]),
                last=int(entry["last"]),
                label=str(entry["label"]),
                layer=None if entry.get("layer") is None else str(entry["layer"]),
                line=int(entry["line"]),
                column=int(entry["column"]),
                text=str(entry.get("text", "")),
            )
            for entry in document["lines"]
        ),
        operations=tuple(
            OperationLine(
                line=int(entry["line"]),
                operation=str(entry["operation"]),
                source=entry.get("source"),
            )
            for entry in document["operations"]
        ),
        intact=body == document["body"],
        kernels={
            name: str(entry["digest"])
            for name, entry in document.get("kernels", {}).items()
        },
        facts=_scalars(document.get("facts", {})),
        given_facts=_scalars(given.get("facts", {})),
        given_parameters={
            name: str(text) for name, text in given.get("parameters", {}).items()
        },
        target=str(document["target"]["name"]),
        target_arguments=_scalars(document["target"]["arguments"]),
        graphs={entry: str(digest) for entry, digest in document["graph"].items()},
        loops=tuple(
            LoopLines(
                int(entry["first"]),
                int(entry["last"]),
                tuple(map(str, entry["modules"])),
            )
            for entry in document.get("loops", ())
        ),
        schedule=str(document["schedule"]),
        body=body,
        ranks={
            entry: {name: str(digest) for name, digest in digests.items()}
            for entry, digests in document.get("ranks", {}).items()
        },
    )


def _scalars(values: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    for name, value in values.items():
        if not isinstance(value, bool | int | float | str):
            raise TypeError(f"{name} is a {type(value).__name__}")
    return dict(values)


def _text_digest(module: Path) -> str:
    """Of the text with plain newlines: version control may have changed them."""
    content = module.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return hashlib.sha256(content).hexdigest()


def _broken(module: Path, reason: str) -> LoadError:
    return LoadError(
        "DFS803",
        f"{module.name} needs the map file {map_path(module).name} beside it, and "
        f"{reason}: compile the schedule again, and keep the two files together.",
    )
