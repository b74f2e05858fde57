"""Names for the sizes that Dynamo left open."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from dynaflow_dsl.integrations.dynamo.decisions import within_decisions
from dynaflow_dsl.integrations.dynamo.frames import hold_equal
from dynaflow_dsl.integrations.dynamo.model import Meaning, StepInput
from dynaflow_dsl.integrations.dynamo.names import (
    axes_text,
    refuse_option,
    similar,
)
from dynaflow_dsl.trace.failures import refuse


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Named axes of the inputs.

    `dims` and `bounds` are those of a TraceSpec; `fixed` are sizes of named axes that
    Dynamo fixed.
    """

    dims: Mapping[str, tuple[str | None, ...]]
    bounds: Mapping[str, tuple[int, int | None]]
    fixed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Said:
    """What the caller's `dims` say of a graph.

    `symbols` are Dynamo's symbols by the dimensions that they are, and `fixed` the
    sizes of named axes that are no symbols. `open_at` and `fixed_at` are the first
    places of each dimension, for messages.
    """

    symbols: Mapping[str, str]
    fixed: Mapping[str, int]
    open_at: Mapping[str, str]
    fixed_at: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of an input whose size is a symbol; `hint` is the size it has now."""

    item: StepInput
    number: int
    size: torch.SymInt

    @property
    def symbol(self) -> str:
        return str(self.size)

    @property
    def hint(self) -> int | None:
        hint = self.size.node.hint
        return int(hint) if hint is not None else None

    def __str__(self) -> str:
        return f"axis {self.number} of '{self.item.label}'"


def name_dimensions(
    steps: Sequence[StepInput], meaning: Meaning, wanted: Collection[str]
) -> Dimensions:
    """Names for all axes that Dynamo left open; raises DiagnosticError.

    Without `dims`, sizes that are equal in the call that is being compiled are one
    dimension, as Dynamo itself takes them to be where it makes sizes dynamic on its
    own; executors compare them in every step. If that gives one dimension and the
    schedule speaks of one (`wanted`), it is that one. Beside `dims`, open axes that
    nothing names are one dimension where their sizes are equal, for which the graph
    then holds.
    """
    axes = list(_open_axes(steps))
    named = said_of(steps, meaning)
    _check_open_everywhere(named)
    symbols = dict(named.symbols)
    if not meaning.dims:
        symbols = _by_size(axes, wanted)
    symbols |= _unnamed([axis for axis in axes if axis.symbol not in symbols])
    bounds = _bounds(axes, symbols, meaning)
    for name in meaning.dimensions:
        if name not in bounds and name not in named.fixed:
            refuse_option(
                f"the option 'dimensions' has bounds for {name}, and no input of this "
                "graph has such an axis",
                *similar(name, bounds),
                f"the dimensions of this graph: {', '.join(bounds) or 'none'}",
            )
    sizes = {axis.symbol: axis.size for axis in axes}
    bounds = within_decisions(sizes, symbols, bounds, meaning.dimensions)
    dims = {
        item.key: tuple(
            symbols[str(size)] if isinstance(size, torch.SymInt) else None
            for size in item.shape
        )
        for item in steps
    }
    return Dimensions(dims, bounds, named.fixed)


def _open_axes(steps: Sequence[StepInput]) -> Iterator[_Axis]:
    for item in steps:
        for number, size in enumerate(item.shape):
            if not isinstance(size, torch.SymInt):
                continue
            if not size.node.expr.is_Symbol:
                refuse(
                    f"axis {number} of '{item.label}' has the size {size}, and an "
                    "input's size is a dimension or a number"
                )
            yield _Axis(item, number, size)


def said_of(steps: Sequence[StepInput], meaning: Meaning) -> Said:
    """Names that the caller gives to symbols, and to sizes that are no symbols.

    Raises DiagnosticError for `dims` that do not fit the inputs.
    """
    known = list(dict.fromkeys(item.key for item in steps))
    for key in meaning.dims:
        if key not in known:
            refuse_option(
                f"the option 'dims' names '{key}', and the inputs of this graph are "
                f"{', '.join(known) or 'none'}",
                *similar(key, known),
            )
    symbols: dict[str, str] = {}
    fixed: dict[str, int] = {}
    open_at: dict[str, str] = {}
    fixed_at: dict[str, str] = {}
    for item in steps:
        named = meaning.dims.get(item.key)
        if named is None:
            continue
        if len(named) != item.tensor.ndim:
            axes = axes_text(_as_many(named, item.tensor.ndim))
            refuse_option(
                f"the option 'dims' gives '{item.key}' {len(named)} axes, and it has "
                f"{item.tensor.ndim}",
                f'a name or None for each axis: "{item.key}": {axes}',
            )
        for number, (name, size) in enumerate(zip(named, item.shape, strict=True)):
            if name is None:
                continue
            place = f"axis {number} of '{item.label}'"
            if not isinstance(size, torch.SymInt):
                if fixed.setdefault(name, size) != size:
                    refuse_option(
                        f"the option 'dims' calls {place} {name}: it is {size} there, "
                        f"and {fixed[name]} at {fixed_at[name]}",
                        "give another name to one of them, or None",
                    )
                fixed_at.setdefault(name, place)
                continue
            other = symbols.setdefault(str(size), name)
            if other != name:
                refuse(
                    f"'dims' calls {place} {name}, but to torch.compile it is the same "
                    f"size as {open_at[other]}, which is {other}",
                    helps=("compile with sizes that differ from each other",),
                )
            open_at.setdefault(name, place)
    return Said(symbols, fixed, open_at, fixed_at)


def _as_many(names: Sequence[str | None], count: int) -> list[str | None]:
    """Names for so many axes: those given, with None for more, without some for fewer.

    Of fewer axes None goes first, from the end.
    """
    kept = list(names)
    while len(kept) > count:
        nones = [k for k, name in enumerate(kept) if name is None]
        del kept[nones[-1] if nones else -1]
    return [*kept, *[None] * (count - len(kept))]


def _check_open_everywhere(said: Said) -> None:
    for name, size in said.fixed.items():
        if name in said.open_at:
            refuse(
                f"{name} is open at {said.open_at[name]} and fixed to {size} at "
                f"{said.fixed_at[name]}",
                helps=(
                    f"if {said.fixed_at[name]} is no {name}, name another axis in "
                    "'dims', or None",
                    f"write the code for any {name} ('x.shape[0]' instead of a number)",
                    "for a backend of your own, mark all of its axes: "
                    "torch._dynamo.mark_dynamic(tensor, axis)",
                ),
            )


def _by_size(axes: Sequence[_Axis], wanted: Collection[str]) -> dict[str, str]:
    """One dimension for each size that axes have now, where nobody names them."""
    groups = _of_one_size(axes)
    if len(wanted) == 1 and len(groups) > 1:
        (name,) = wanted
        found = "; ".join(
            f"{size}: {', '.join(map(str, group))}" for size, group in groups.items()
        )
        refuse(
            f"the schedule speaks of {name}, and this graph has {len(groups)} open "
            "sizes",
            notes=(f"they are {found}",),
            helps=(
                f'say which one it is: options={{"dims": '
                f'{{"{axes[0].item.key}": ("{name}", ...)}}}}',
            ),
        )
    symbols: dict[str, str] = {}
    for group in groups.values():
        first = group[0]
        own = f"{first.item.argument}_{first.number}"
        for axis in group:
            symbols[axis.symbol] = next(iter(wanted)) if len(wanted) == 1 else own
    return symbols


def _unnamed(axes: Sequence[_Axis]) -> dict[str, str]:
    """Names for axes that nobody names, and that have one size now: one dimension.

    The graph then holds for calls in which they are equal.
    """
    symbols: dict[str, str] = {}
    for first, *others in _of_one_size(axes).values():
        own = f"{first.item.argument}_{first.number}"
        for axis in (first, *others):
            symbols[axis.symbol] = own
        hold_equal(axis.size for axis in (first, *others))
    return symbols


def _of_one_size(axes: Iterable[_Axis]) -> dict[object, list[_Axis]]:
    """Axes by the size that they have now."""
    groups: dict[object, list[_Axis]] = {}
    for axis in axes:
        size: object = axis.symbol if axis.hint is None else axis.hint
        groups.setdefault(size, []).append(axis)
    return groups


def _bounds(
    axes: Sequence[_Axis], symbols: Mapping[str, str], meaning: Meaning
) -> dict[str, tuple[int, int | None]]:
    """The sizes for which Dynamo's graph holds, and within them those of the caller."""
    bounds: dict[str, tuple[int, int | None]] = {}
    for axis in axes:
        name = symbols[axis.symbol]
        found = [_range(axis.size)]
        if name in bounds:
            found.append(bounds[name])
        if name in meaning.dimensions:
            found.append(meaning.dimensions[name])
        highest = [high for _, high in found if high is not None]
        bounds[name] = (
            max(low for low, _ in found),
            min(highest) if highest else None,
        )
    return bounds


def _range(size: torch.SymInt) -> tuple[int, int | None]:
    node = size.node
    found = node.shape_env.bound_sympy(node.expr)
    low = int(found.lower) if found.lower.is_Integer else 0
    high = int(found.upper) if found.upper.is_Integer else None
    # Dynamo writes "no bound" as the largest size of a tensor.
    if high is not None and high >= 2**62:
        high = None
    return max(low, 1), high
