"""Running code that is not ours: what it raises is said in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from dynaflow_dsl.cli.defects import said_by
from dynaflow_dsl.cli.files import relative
from dynaflow_dsl.cli.report import Reporter
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn an exception of the target's code into a finding about the target.

    Raises DiagnosticError: DFS110, or the code of a fault of a step.
    """
    from dynaflow_dsl.runtime import RuntimeFault

    try:
        yield
    except RuntimeFault as fault:
        raise DiagnosticError([_found(fault)]) from fault
    except (Exception, SystemExit) as error:
        message = f"{what} raised {said_by(error)}"
        raise DiagnosticError([Diagnostic("DFS110", message)]) from error


@contextmanager
def faults_shown(reporter: Reporter) -> Iterator[None]:
    """Show a fault of a step, or of loading one, and go on below."""
    from dynaflow_dsl.runtime import RuntimeFault

    try:
        yield
    except RuntimeFault as fault:
        reporter.show([_found(fault)])


def _found(fault: Any) -> Diagnostic:
    """A fault with what was noted on it: the step, and its place in the file."""
    notes = tuple(getattr(fault, "__notes__", ()))
    return Diagnostic(fault.code, fault.message, notes=notes)


def import_module_file(path: Path) -> ModuleType:
    """The module in a file, whatever was made of it.

    Raises DiagnosticError (DFS804) when it cannot be imported or is no executor.
    """
    name = relative(path)
    found = spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        raise _not_importable(f"{name} is not a Python module")
    module = module_from_spec(found)
    # Importing may leave a folder of compiled Python beside the module: not for a look.
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _not_importable(f"importing {name} raised {said_by(error)}") from error
    finally:
        sys.dont_write_bytecode = kept
    if not callable(getattr(module, "load", None)):
        raise _not_importable(f"{name} has no function `load`")
    return module


def _not_importable(message: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic("DFS804", message)])
