"""`[tool.dfsc]` in pyproject.toml: what a project says once for every command.

    [tool.dfsc]
    schedules = ["schedules"]      # files and folders that commands take by default
    output = "executors"           # folder of the modules
    output-format = "full"

    [tool.dfsc.files."schedules/halves.dfs"]
    model = "targets.py:stack"     # as --model
    arguments = { layers = 4 }     # as -M
    parameters = { ways = 3 }      # as -P
    facts = { tp_size = 2 }        # as -F

Paths are relative to the folder of the pyproject.toml. The command line goes before all
of it.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from dynaflow_dsl.cli.files import read_text, relative
from dynaflow_dsl.cli.options import Given, write_scalar
from dynaflow_dsl.cli.report import FORMS
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError, Label
from dynaflow_dsl.diagnostics.render import Form
from dynaflow_dsl.resolve.model import Scalar
from dynaflow_dsl.source import Source, Span

NAME = "pyproject.toml"

KEYS = ("schedules", "output", "output-format", "files")
FILE_KEYS = ("model", "arguments", "parameters", "facts")


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What a project says of one schedule file."""

    model: str | None = None
    arguments: Mapping[str, Scalar] = field(default_factory=dict)
    given: Given = field(default_factory=Given)


@dataclass(frozen=True, slots=True)
class Project:
    """The settings of a project; without a `[tool.dfsc]` all of them are empty.

    Paths are absolute. `schedules` is None when the project lists none.
    """

    folder: Path | None = None
    schedules: tuple[Path, ...] | None = None
    output: Path | None = None
    output_format: Form | None = None
    files: Mapping[Path, FileSettings] = field(default_factory=dict)

    def settings(self, schedule: str) -> FileSettings:
        """What the project says of a schedule file; nothing by default."""
        try:
            path = Path(schedule).resolve()
        except (OSError, RuntimeError, ValueError):
            # Links in a circle, or a name that no file can have.
            return FileSettings()
        return self.files.get(path, FileSettings())


def find_project(start: Path) -> Project:
    """The settings that hold in a folder: those of the nearest pyproject.toml above it
    with a `[tool.dfsc]`, within the repository.

    Raises DiagnosticError (DFS130) for settings that mean nothing.
    """
    folder = start.resolve()
    for parent in (folder, *folder.parents):
        text = read_text(parent / NAME) if (parent / NAME).is_file() else None
        if text is not None:
            found = read_project(text, parent)
            if found is not None:
                return found
        if (parent / ".git").exists():
            break
    return Project()


def read_project(text: str, folder: Path) -> Project | None:
    """The settings in the text of a pyproject.toml; None when it has none for dfsc."""
    source = Source(relative(folder / NAME), text)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DiagnosticError([_no_toml(source, error)]) from error
    tools = document.get("tool", {})
    if not isinstance(tools, dict) or "dfsc" not in tools:
        return None
    reader = _Reader(source, folder)
    project = reader.project(tools["dfsc"])
    if reader.found:
        raise DiagnosticError(reader.found)
    return project


class _Reader:
    """Reads the tables; what is wrong with them goes into `found`."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.source = source
        self.folder = folder
        self.found: list[Diagnostic] = []

    def project(self, table: object) -> Project:
        known = self._table(table, ("tool", "dfsc"), KEYS)
        schedules = known.get("schedules")
        output = self._text(known, "output", ("tool", "dfsc"))
        form = self._text(known, "output-format", ("tool", "dfsc"))
        if form is not None and form not in FORMS:
            self._wrong(
                ("tool", "dfsc", "output-format"),
                f"there is no output format '{form}'",
                _near(form, FORMS),
            )
        return Project(
            self.folder,
            None if schedules is None else self._schedules(schedules),
            None if output is None else self.folder / output,
            cast(Form | None, form),
            self._files(known.get("files", {})),
        )

    def _schedules(self, value: object) -> tuple[Path, ...]:
        place = ("tool", "dfsc", "schedules")
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(
            isinstance(item, str) for item in listed
        ):
            self._wrong(place, f"this must be a list of paths, not {_kind(value)}")
            return ()
        for item in listed:
            if not (self.folder / item).exists():
                self._wrong(place, f"there is no file or folder '{item}'", part=item)
        return tuple(self.folder / item for item in listed)

    def _files(self, value: object) -> dict[Path, FileSettings]:
        place = ("tool", "dfsc", "files")
        if not isinstance(value, dict):
            self._wrong(place, f"this must be a table, not {_kind(value)}")
            return {}
        files = {}
        for name, table in value.items():
            here = (*place, name)
            path = self.folder / name
            if not path.is_file():
                others = [
                    file.relative_to(self.folder).as_posix()
                    for file in sorted(path.parent.glob("*.dfs"))
                ]
                self._wrong(
                    here, f"there is no schedule file '{name}'", _near(name, others)
                )
            known = self._table(table, here, FILE_KEYS)
            facts = self._scalars(known, "facts", here)
            files[path.resolve()] = FileSettings(
                self._text(known, "model", here),
                self._scalars(known, "arguments", here),
                Given(self._parameters(known, here), facts),
            )
        return files

    def _table(
        self, value: object, place: Sequence[str], keys: Sequence[str]
    ) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self._wrong(place, f"this must be a table, not {_kind(value)}")
            return {}
        for key in value:
            if key not in keys:
                name = ".".join(place[1:2])
                helps = _near(key, keys)
                self._wrong((*place, key), f"{name} has no setting '{key}'", helps)
        return value

    def _text(
        self, table: Mapping[str, Any], key: str, place: Sequence[str]
    ) -> str | None:
        value = table.get(key)
        if value is None or isinstance(value, str):
            return value
        self._wrong((*place, key), f"'{key}' must be a text, not {_kind(value)}")
        return None

    def _scalars(
        self, table: Mapping[str, Any], key: str, place: Sequence[str]
    ) -> dict[str, Scalar]:
        kept: dict[str, Scalar] = {}
        for name, value in self._pairs(table, key, place):
            if isinstance(value, bool | int | float | str):
                kept[name] = value
            else:
                wanted = "a number, a text, true or false"
                self._wrong((*place, key, name), f"'{name}' must be {wanted}")
        return kept

    def _parameters(
        self, table: Mapping[str, Any], place: Sequence[str]
    ) -> dict[str, str]:
        """Parameters in the words of a command line, as `-P` takes them."""
        kept = {}
        for name, value in self._pairs(table, "parameters", place):
            listed = value if isinstance(value, list) else [value]
            words = [
                write_scalar(item)
                for item in listed
                if isinstance(item, bool | int | float | str)
            ]
            if not words or len(words) < len(listed):
                wanted = "a number, a text, true, false or a list of them"
                here = (*place, "parameters", name)
                self._wrong(here, f"'{name}' must be {wanted}")
            elif isinstance(value, list):
                kept[name] = f"[{', '.join(words)}]"
            else:
                kept[name] = words[0]
        return kept

    def _pairs(
        self, table: Mapping[str, Any], key: str, place: Sequence[str]
    ) -> Iterable[tuple[str, object]]:
        value = table.get(key, {})
        if isinstance(value, dict):
            return value.items()
        self._wrong((*place, key), f"'{key}' must be a table, not {_kind(value)}")
        return ()

    def _wrong(
        self,
        place: Sequence[str],
        message: str,
        helps: tuple[str, ...] = (),
        part: str | None = None,
    ) -> None:
        span = _find(self.source, place, part)
        self.found.append(
            Diagnostic("DFS130", message, Label(span, "here"), helps=helps)
        )


def _near(word: str, known: Iterable[str]) -> tuple[str, ...]:
    choices = tuple(known)
    close = difflib.get_close_matches(word, choices, n=1)
    if close:
        return (f"did you mean '{close[0]}'?",)
    return (f"known here: {', '.join(choices[:5])}",) if choices else ()


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "a table"
    return f"a {type(value).__name__}"


def _no_toml(source: Source, error: tomllib.TOMLDecodeError) -> Diagnostic:
    text, _, place = str(error).partition(" (at ")
    label = None
    if match := re.search(r"line (\d+), column (\d+)", place):
        line, column = int(match[1]), int(match[2])
        start = min(source.line_starts[line - 1] + column - 1, len(source.text))
        label = Label(Span(source, start, start), "here")
    message = f"{source.name} is no TOML: {text[:1].lower()}{text[1:]}"
    return Diagnostic("DFS130", message, label)


def _find(source: Source, place: Sequence[str], part: str | None) -> Span:
    """Where a key stands in the text: in the table of the longest header above it.

    TOML has no places in its values; a key that is written in an unusual way is looked
    for by its last name alone.
    """
    table = 0
    for match in re.finditer(r"^\[([^\[\]\n]+)\]", source.text, re.MULTILINE):
        names = tuple(_names(match[1]))
        if names == tuple(place):
            return Span(source, match.start(1), match.end(1))
        if names and names == tuple(place[: len(names)]) and len(names) > 1:
            table = match.start()
    word = re.escape(place[-1])
    key = re.compile(rf"""(?<![\w"'-])["']?({word})["']?[ \t]*(?:[.=\]])""")
    found = key.search(source.text, table)
    if found is None:
        line, _ = source.position(table)
        return Span(source, table, table + len(source.line(line)))
    start, end = found.span(1)
    if part is not None and (at := source.text.find(part, end)) >= 0:
        start, end = at, at + len(part)
    return Span(source, start, end)


def _names(header: str) -> Iterable[str]:
    for match in re.finditer(r""""([^"]*)"|'([^']*)'|([\w-]+)""", header):
        yield next(group for group in match.groups() if group is not None)
