"""Is every field of a trace spec what it must be?"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from dynaflow_dsl.trace.model import Entry, Persistent, TraceSpec, multiple


def wrong_field(spec: TraceSpec) -> str | None:
    """Which field of a spec is wrong, and what it must be; None if all are right.

    The spec is made by the user's code, so nothing of it is taken for granted.
    """
    return _wrong_table(spec) or _wrong_value(spec)


def _wrong_value(spec: TraceSpec) -> str | None:
    if not isinstance(spec.model, torch.nn.Module):
        return f"'model' is {_shown(spec.model)}; it must be a torch.nn.Module"
    for name in ("adapter", "context", "trial"):
        value = getattr(spec, name)
        if value is not None and not callable(value):
            return f"'{name}' is {_shown(value)}; it must be a function, or None"
    if not isinstance(spec.root, str):
        return f"'root' is {_shown(spec.root)}; it must be an attribute path"
    names = spec.disjoint
    if not isinstance(names, tuple | list) or not all(
        isinstance(n, str) for n in names
    ):
        return f"'disjoint' is {_shown(names)}; it must be a tuple of names"
    return _wrong_device(spec.device) or _wrong_dtype(spec)


def _wrong_device(device: object) -> str | None:
    try:
        known = isinstance(device, str) and bool(torch.device(device))
    except RuntimeError:
        known = False
    if known:
        return None
    return f"'device' is {device!r}; it must be the name of a device, such as 'cpu'"


def _wrong_dtype(spec: TraceSpec) -> str | None:
    if not isinstance(spec.dtype, torch.dtype):
        return (
            f"'dtype' is {_shown(spec.dtype)}; it must be a dtype such as torch.float32"
        )
    dtypes = {p.dtype for p in spec.model.parameters() if p.is_floating_point()}
    if dtypes and spec.dtype not in dtypes:
        found = " and ".join(sorted(map(str, dtypes)))
        return f"'dtype' is {spec.dtype}, but the model's parameters are {found}"
    return None


def _wrong_table(spec: TraceSpec) -> str | None:
    for name in ("entries", "dims", "dimensions", "persistent", "facts"):
        table = getattr(spec, name)
        if not isinstance(table, Mapping) or not all(isinstance(k, str) for k in table):
            return f"'{name}' is {_shown(table)}; it must be a mapping by name"
    if not spec.entries:
        return "'entries' is empty; it must hold at least one Entry"
    if problem := _wrong_dims("'dims'", spec.dims):
        return problem
    for key, entry in spec.entries.items():
        if not isinstance(entry, Entry) or not callable(entry.arguments):
            return f"'entries' has {_shown(entry)} for '{key}'; it must be an Entry"
        if problem := _wrong_dims(f"'dims' of '{key}'", entry.dims):
            return problem
        problem = _wrong_fixed(key, entry, spec) or _wrong_phases(key, entry, spec)
        if problem is not None:
            return problem
    for key, bounds in spec.dimensions.items():
        if not _are_bounds(bounds):
            return (
                f"'dimensions' has {_shown(bounds)} for '{key}'; it must be a pair of "
                "the lowest and the highest size, None for no highest"
            )
    return _wrong_persistent(spec) or _wrong_fact(spec)


def _wrong_dims(where: str, dims: object) -> str | None:
    if not isinstance(dims, Mapping):
        return f"{where} is {_shown(dims)}; it must be a mapping by name"
    for key, axes in dims.items():
        if not isinstance(axes, tuple | list) or not all(
            axis is None or isinstance(axis, str) for axis in axes
        ):
            return (
                f"{where} has {_shown(axes)} for '{key}'; it must be a tuple with a "
                "name or None for each axis"
            )
    return None


def _wrong_fixed(key: str, entry: Entry, spec: TraceSpec) -> str | None:
    if not isinstance(entry.fixed, Mapping):
        return f"'fixed' of '{key}' is {_shown(entry.fixed)}; it must be sizes by name"
    for name, size in entry.fixed.items():
        if not isinstance(name, str) or not name.isidentifier():
            return f"'fixed' of '{key}' has the name {name!r}; it must be an identifier"
        if type(size) is not int or size < 1:
            return f"'{name}' in 'fixed' of '{key}' is {size!r}; it must be positive"
        if name in spec.dimensions and not _is_another_entrys(name, key, spec):
            return (
                f"'{name}' is in 'fixed' of '{key}' and in 'dimensions'; a size is the "
                "same in every step, or it is not"
            )
    return None


def _is_another_entrys(name: str, key: str, spec: TraceSpec) -> bool:
    """Whether a dimension is one of other entries, and of none that this one has."""
    return name not in _named(spec.dims_of(key)) and any(
        name in _named(entry.dims) for entry in spec.entries.values()
    )


def _named(dims: Mapping[str, tuple[str | None, ...]]) -> set[str]:
    return {multiple(name)[1] for axes in dims.values() for name in axes if name}


def _wrong_phases(key: str, entry: Entry, spec: TraceSpec) -> str | None:
    if not isinstance(entry.phases, Mapping):
        return (
            f"'phases' of '{key}' is {_shown(entry.phases)}; it must be names by "
            'dimension, such as {"tokens": ("decode", "prefill")}'
        )
    taken = {*spec.dimensions, *entry.fixed}
    for dimension, names in entry.phases.items():
        if dimension not in spec.dimensions:
            return (
                f"'phases' of '{key}' cuts {_shown(dimension)}, and the dimensions are "
                f"{', '.join(spec.dimensions) or 'none'}"
            )
        if not isinstance(names, tuple | list) or len(names) < 2:
            return (
                f"'phases' of '{key}' has {_shown(names)} for '{dimension}'; it must "
                "be a tuple of two names or more"
            )
        for name in names:
            if not isinstance(name, str) or not name.isidentifier():
                return (
                    f"'phases' of '{key}' has the name {name!r}; it must be an "
                    "identifier"
                )
            if name in taken:
                return (
                    f"'phases' of '{key}' has the name '{name}', which is already a "
                    "size or a phase"
                )
            taken.add(name)
    return None


def _are_bounds(bounds: object) -> bool:
    match bounds:
        case (int() as low, None | int() as high):
            return not isinstance(low, bool) and not isinstance(high, bool)
    return False


def _wrong_persistent(spec: TraceSpec) -> str | None:
    for key, item in spec.persistent.items():
        if not isinstance(item, Persistent):
            return (
                f"'persistent' has {_shown(item)} for '{key}'; it must be Persistent()"
            )
        if item.capacity is not None and (
            type(item.capacity) is not int or item.capacity < 1
        ):
            return f"the capacity of '{key}' is {item.capacity!r}; it must be positive"
        if item.padding not in ("forbidden", "scratch"):
            return (
                f"the padding of '{key}' is {item.padding!r}; it must be 'forbidden' "
                "or 'scratch'"
            )
    return None


def _wrong_fact(spec: TraceSpec) -> str | None:
    for name, fact in spec.facts.items():
        if not isinstance(fact, bool | int | float | str):
            return (
                f"the fact '{name}' is {_shown(fact)}; facts are numbers, strings and "
                "truth values"
            )
        if isinstance(fact, float) and not math.isfinite(fact):
            return f"the fact '{name}' is {fact}; facts are finite"
    return None


def _shown(value: object) -> str:
    """A value as messages say it: what it is, not all that it holds."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"
