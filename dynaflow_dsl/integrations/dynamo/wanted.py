"""The dimensions that a schedule speaks of, and graphs that do not have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError, Label
from dynaflow_dsl.integrations.dynamo.model import Inputs
from dynaflow_dsl.integrations.dynamo.names import axes_text, similar
from dynaflow_dsl.resolve.model import Schedule, ScheduleFile
from dynaflow_dsl.runtime.model import Split


class NotSaid(DiagnosticError):
    """Inputs have an axis of a dimension, and `dims` does not say so.

    `axes` is what it has to say of inputs, as far as that is known.
    """

    def __init__(
        self,
        diagnostics: Iterable[Diagnostic],
        axes: Mapping[str, tuple[str | None, ...]] | None = None,
    ) -> None:
        super().__init__(diagnostics)
        self.axes = axes or {}


def dimensions_of(file: ScheduleFile) -> frozenset[str]:
    """The dimensions that a file's schedules split or capture."""
    found = {s.split.dimension for s in file.schedules if s.split is not None}
    found |= {each.dimension for s in file.schedules for each in s.captures}
    return frozenset(found)


def fills(schedule: Schedule, name: str, size: int) -> bool:
    """Whether so many rows of a dimension are one for every piece of a schedule."""
    split = schedule.split
    if split is None or split.dimension != name or split.phases:
        return True
    cut = Split(name, weights=split.weights, align=split.align)
    return cut.fills(size)


def no_dimension(
    file: ScheduleFile,
    name: str,
    inputs: Inputs,
    dims: Mapping[str, tuple[str | None, ...]],
) -> DiagnosticError:
    """A dimension of the schedule that no axis of a graph's inputs is.

    `dims` is what the caller says, also of inputs that are none of this graph.
    """
    named = sorted({axis for axes in dims.values() for axis in axes if axis})
    if named and name not in named:
        return _about_dimension(
            file,
            name,
            f"the schedule speaks of {name}, and 'dims' gives no axis this name",
            [*similar(name, named), f"the axes that it names: {', '.join(named)}"],
        )
    first = next((item for item in inputs.steps if item.tensor.ndim), None)
    helps = []
    if first is not None:
        axes = axes_text((name, *[None] * (first.tensor.ndim - 1)))
        helps.append(f'say where it is: options={{"dims": {{"{first.key}": {axes}}}}}')
        helps.append(
            "or mark its axes before the first call: "
            f"torch._dynamo.mark_dynamic({first.argument}, 0)"
        )
    elsewhere = [key for key, axes in dims.items() if name in axes]
    known = list(dict.fromkeys(item.key for item in inputs.steps))
    notes = []
    if elsewhere:
        notes.append(
            f"'dims' names it of {', '.join(elsewhere)}, and the inputs of this graph "
            f"are {', '.join(known) or 'none'}"
        )
    message = (
        f"no input of this graph has an axis {name}, and torch.compile fixed all sizes"
    )
    return NotSaid(_about_dimension(file, name, message, helps, notes).diagnostics)


def not_said(
    file: ScheduleFile,
    dims: Mapping[str, tuple[str | None, ...]],
    missing: Mapping[str, tuple[str | None, ...]],
) -> NotSaid:
    """Inputs with an axis of a dimension, of which `dims` does not say so.

    `missing` is what it has to say of them.
    """
    (key, axes), *_ = missing.items()
    said = dims.get(key, (None,) * len(axes))
    number = next(k for k, name in enumerate(axes) if name != said[k])
    name = str(axes[number])
    table = ", ".join(
        f'"{each}": {axes_text(found)}' for each, found in missing.items()
    )
    found = _about_dimension(
        file,
        name,
        f"axis {number} of '{key}' is {name} to the model's code, and 'dims' does not "
        "say so",
        [f'say it of each such input: options={{"dims": {{..., {table}}}}}'],
    )
    return NotSaid(found.diagnostics, missing)


def still_fixed(
    file: ScheduleFile,
    name: str,
    size: int,
    dims: Mapping[str, tuple[str | None, ...]],
) -> DiagnosticError:
    """A dimension that has one size, though Dynamo was asked to leave it open.

    Where `dims` says which axes it is, that may be what is wrong.
    """
    places = [
        f"axis {axes.index(name)} of '{key}'"
        for key, axes in dims.items()
        if name in axes
    ]
    listed = " and ".join(places)
    notes = [f"'dims' says that {listed} {_are(places)} {name}"] if places else []
    other = [f"or, if it is no {name}, name another axis in 'dims'"] if places else []
    return _about_dimension(
        file,
        name,
        f"{name} is fixed to {size} in this graph: the model's code needs it to be "
        f"{size}",
        [f"write the code for any {name} ('x.shape[0]' instead of a number)", *other],
        notes,
    )


def _are(places: list[str]) -> str:
    return "are" if len(places) > 1 else "is"


def _about_dimension(
    file: ScheduleFile,
    name: str,
    message: str,
    helps: Iterable[str],
    notes: Iterable[str] = (),
) -> DiagnosticError:
    place = None
    for schedule in file.schedules:
        if schedule.split is not None and schedule.split.dimension == name:
            place = Label(schedule.split.span, f"cuts {name}")
            break
    return DiagnosticError(
        [Diagnostic("DFS821", message, place, notes=tuple(notes), helps=tuple(helps))]
    )
