"""Find, call and check the function that makes a trace spec."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Unpack, get_args, get_origin, get_type_hints, is_typeddict

from dynaflow_dsl.diagnostics import Diagnostic, Label, Result
from dynaflow_dsl.runtime.model_code import is_own_code
from dynaflow_dsl.source import Span
from dynaflow_dsl.trace.fields import wrong_field
from dynaflow_dsl.trace.lines import line_of_traceback
from dynaflow_dsl.trace.model import Scalar, TraceSpec

_CODE = "DFS110"
# How the names of modules begin that were made of files.
LOADED_FROM_FILE = "_dynaflow_target_"
# How much of a library's message, and of a module's names, is shown.
_MOST_LINES = 10
_MOST_NAMES = 20
_FORM = 'Write "package.module:function" or "path/file.py:function".'


def load_target(
    target: str,
    arguments: Mapping[str, Scalar],
    span: Span | None,
    given: Mapping[str, str] = MappingProxyType({}),
) -> Result[TraceSpec]:
    """Import the function that `target` names and call it with keyword arguments.

    `target` is `package.module:function` or `path/file.py:function`, a path relative to
    the current folder. Whatever goes wrong, in the user's code too, is a DFS110
    diagnostic at `span`; what is wrong with an argument that is in `given` is none of
    that place's, and says instead where the argument stands.
    """
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name.isidentifier():
        return _failed(span, f"'{target}' names no trace target", helps=(_FORM,))
    module = _import(target, place, span)
    if isinstance(module, Diagnostic):
        return Result(None, (module,))
    function = getattr(module, name, None)
    if not callable(function):
        return _failed(
            span,
            f"'{place}' has no function '{name}'",
            notes=(_listed(_functions(module)),),
            helps=(
                *_did_you_mean(name, _functions(module)),
                *_beside_the_schedule(place, span),
            ),
        )
    if wrong := _check_arguments(function, target, arguments, span, given):
        return Result(None, (wrong,))
    try:
        spec = function(**arguments)
    except (Exception, SystemExit) as error:
        raised = _raised(f"'{target}'", error, span)
        notes = (*raised.notes, *given.values())
        return Result(None, (replace(raised, notes=notes),))
    if not isinstance(spec, TraceSpec):
        return _failed(
            span,
            f"'{target}' returned {_article(type(spec).__name__)}, not a TraceSpec",
        )
    return _checked(target, spec, span)


def _import(target: str, place: str, span: Span | None) -> ModuleType | Diagnostic:
    try:
        if place.endswith(".py"):
            return _import_file(place)
        return importlib.import_module(place)
    except FileNotFoundError as error:
        if place.endswith(".py") and not Path(place).is_file():
            helps = _beside_the_schedule(place, span)
            return _diagnostic(span, f"there is no file '{place}'", helps=helps)
        return _raised(f"importing '{place}'", error, span)
    except ModuleNotFoundError as error:
        if error.name and f"{place}.".startswith(f"{error.name}."):
            helps = (_FORM,) if "/" in target or "\\" in target else ()
            return _diagnostic(
                span, f"there is no module '{error.name}' to import", helps=helps
            )
        return _raised(f"importing '{place}'", error, span)
    except (Exception, SystemExit) as error:
        return _raised(f"importing '{place}'", error, span)


def _beside_the_schedule(place: str, span: Span | None) -> tuple[str, ...]:
    """Help where a file that was meant from the schedule's folder lies there."""
    if span is None or not place.endswith(".py"):
        return ()
    folder = Path(span.source.name).parent
    other = folder / place
    if not other.is_file() or other.resolve() == Path(place).resolve():
        return ()
    return (
        f"paths of targets are from the current folder: run dfsc in {folder}, or "
        f"write '{other.as_posix()}'",
    )


def _import_file(place: str) -> ModuleType:
    path = Path(place).resolve()
    # Two files of one name are two modules.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    name = f"{LOADED_FROM_FILE}{digest}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None or not path.is_file():
        raise FileNotFoundError(place)
    module = importlib.util.module_from_spec(found)
    # Classes look their module up by name while it is still being made.
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _check_arguments(
    function: Callable[..., object],
    target: str,
    arguments: Mapping[str, Scalar],
    span: Span | None,
    given: Mapping[str, str],
) -> Diagnostic | None:
    try:
        parameters = _parameters(function)
    except (NameError, TypeError, ValueError):
        return None
    keywords = (
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    names = [item.name for item in parameters if item.kind in keywords]
    open_ended = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters)
    for name in arguments:
        if name not in names and not open_ended:
            known = ", ".join(names) or "none"
            where, notes = _place(name, span, given)
            return _diagnostic(
                where,
                f"'{target}' has no argument '{name}'",
                notes=(*notes, f"its arguments: {known}"),
                helps=_did_you_mean(name, names),
            )
    for item in parameters:
        if item.name in arguments:
            wanted = _scalar_type(item.annotation)
            value = arguments[item.name]
            if wanted is not None and not _fits(value, wanted):
                where, notes = _place(item.name, span, given)
                return _diagnostic(
                    where,
                    f"the argument '{item.name}' of '{target}' is "
                    f"{_article(wanted.__name__)}, but got {value!r}",
                    notes=notes,
                )
        elif item.kind in keywords and item.default is inspect.Parameter.empty:
            return _diagnostic(span, f"'{target}' needs the argument '{item.name}'")
    return None


def _place(
    name: str, span: Span | None, given: Mapping[str, str]
) -> tuple[Span | None, tuple[str, ...]]:
    """Where an argument stands: at the span, or as the note says."""
    return (None, (given[name],)) if name in given else (span, ())


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """The parameters of a function; `**options: Unpack[Options]` are its keys."""
    found: list[inspect.Parameter] = []
    for item in inspect.signature(function).parameters.values():
        hint = None
        if item.kind is inspect.Parameter.VAR_KEYWORD:
            hint = get_type_hints(function).get(item.name)
        options = get_args(hint)[0] if get_origin(hint) is Unpack else None
        if options is None or not is_typeddict(options):
            found.append(item)
            continue
        for name, kind in get_type_hints(options).items():
            missing = inspect.Parameter.empty
            found.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=missing if name in options.__required_keys__ else None,
                    annotation=kind,
                )
            )
    return found


def _scalar_type(annotation: object) -> type | None:
    """The scalar type that an annotation is, by itself or by name."""
    scalars: dict[object, type] = {"bool": bool, "int": int, "float": float, "str": str}
    if isinstance(annotation, str):
        return scalars.get(annotation)
    return next((kind for kind in scalars.values() if annotation is kind), None)


def _fits(value: Scalar, wanted: type) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is wanted


def _checked(target: str, spec: TraceSpec, span: Span | None) -> Result[TraceSpec]:
    problem = wrong_field(spec)
    if problem is not None:
        return _failed(span, f"the TraceSpec of '{target}' is wrong: {problem}")
    return Result(spec)


def _functions(module: ModuleType) -> list[str]:
    """The functions of a module's own that may be targets.

    Those of a family are methods of an object, and belong to no module.
    """
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            inspect.ismethod(value)
            or (inspect.isfunction(value) and value.__module__ == module.__name__)
        )
    ]


def _listed(functions: list[str]) -> str:
    shown = ", ".join(functions[:_MOST_NAMES]) or "none"
    more = len(functions) - _MOST_NAMES
    return f"its functions: {shown}" + (f", and {more} more" if more > 0 else "")


def _raised(what: str, error: BaseException, span: Span | None) -> Diagnostic:
    """What an exception in the user's code says, and its line.

    Beside the innermost line stands that of the user's own files, where it is another.
    """
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = ": ".join((type(error).__name__, *lines[:1]))
    notes = lines[1:_MOST_LINES]
    if (more := len(lines) - _MOST_LINES) > 0:
        notes.append(f"and {more} more {'line' if more == 1 else 'lines'}")
    if isinstance(error, SyntaxError) and error.filename:
        notes.append(f"at {Path(error.filename).name}:{error.lineno}")
    elif line := line_of_traceback(error.__traceback__):
        notes.append(f"at {line}")
        own = line_of_traceback(error.__traceback__, is_own_code)
        if own is not None and own != line:
            notes.append(f"called from {own}")
    return _diagnostic(span, f"{what} raised {said}", tuple(notes))


def _did_you_mean(name: str, known: list[str]) -> tuple[str, ...]:
    close = get_close_matches(name, known, 1)
    return (f"did you mean '{close[0]}'?",) if close else ()


def _article(name: str) -> str:
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def _failed(
    span: Span | None,
    message: str,
    notes: tuple[str, ...] = (),
    helps: tuple[str, ...] = (),
) -> Result[TraceSpec]:
    return Result(None, (_diagnostic(span, message, notes, helps),))


def _diagnostic(
    span: Span | None,
    message: str,
    notes: tuple[str, ...] = (),
    helps: tuple[str, ...] = (),
) -> Diagnostic:
    primary = Label(span) if span else None
    return Diagnostic(_CODE, message, primary, notes=notes, helps=helps)
