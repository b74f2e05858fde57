"""What to trace, and what its arguments mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch

Scalar: TypeAlias = bool | int | float | str

Trial: TypeAlias = Callable[
    [Mapping[str, Callable[..., Any]], int, int], tuple[torch.Tensor, torch.Tensor]
]


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to call the adapter, such as one decode step.

    `arguments(sizes)` returns fresh positional arguments of the adapter, tensors and
    lists of tensors, for given sizes of the named dimensions: distinct tensors on the
    target's device, random ones drawn from torch's global generator. `fixed` names
    sizes that are the same in every step of this entry, for the conditions of a
    `select`. `dims` goes before that of the spec, for arguments whose dimensions are
    others in this entry: a prompt has a length, and a decode step is one token long.

    `phases` says that rows of a dimension belong to phases, `{"tokens": ("decode",
    "prefill")}`: first all rows of one, then those of the next, any number of each. A
    step is then told how many there are, `step(..., phases={"decode": 3, "prefill":
    5})`, and `sizes` holds these numbers as well.
    """

    arguments: Callable[[Mapping[str, int]], tuple[Any, ...]]
    fixed: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dims: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)

    def make(self, sizes: Mapping[str, int]) -> tuple[Any, ...]:
        """Arguments for these sizes; phases that they leave out share the rows."""
        return self.arguments({**self.shares(sizes), **sizes})

    def shares(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Nearly equal numbers of rows for the phases of each dimension."""
        found: dict[str, int] = {}
        for dimension, names in self.phases.items():
            total, count = sizes[dimension], len(names)
            cuts = [total * k // count for k in range(count + 1)]
            found |= {name: cuts[k + 1] - cuts[k] for k, name in enumerate(names)}
        return found


@dataclass(frozen=True, slots=True)
class Persistent:
    """An input whose address is the same in every step, such as a KV cache.

    `capacity` is the number of rows that are allocated along the split dimension; None
    leaves it to whoever allocates them. `padding = "scratch"` allows rows between the
    step's size and the capacity to be overwritten, "forbidden" does not.
    """

    capacity: int | None = None
    padding: Literal["forbidden", "scratch"] = "forbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpec:
    """A model, how to call it, and what its arguments mean.

    `model` is the user's model, unedited and in evaluation mode; its tensors may be on
    the meta device, and are then traced as if they were on `device`. `adapter` makes a
    module with a flat signature from it (None: the model itself), and `root` is the
    attribute path of the model inside the adapter, which is taken off module paths.
    `entries` are the ways to call the adapter, by name. `dims` names the dimensions of
    arguments, `"input_ids": ("batch", None)`, or of every tensor of a list, `"keys.*"`;
    an axis may be a multiple, `"16 * batch"`. Arguments left out are static.
    `dimensions` holds the inclusive bounds of each of these names, None for no upper
    bound.
    `persistent` are arguments whose address never changes.
    `disjoint` names arguments without named dimensions (or lists of such) of which each
    row reads and writes places of its own, which another argument says: paged caches.
    Where an entry has phases, rows of one phase may meet there, those of two may not.
    `context(rows)` makes the context manager that is entered around each step of a
    piece, given its rows as a slice of the split dimension: an engine's operators read
    there what they are not given. It is called for each of these steps; a step that is
    not split enters none.
    `facts` are what schedules may require. `trial(steps, rows, seed)` runs several
    steps in which callables of `steps`, by entry, stand in for the adapter, and returns
    a tensor that they make and the one that the untouched model's own loop makes; the
    two must be equal.
    """

    model: torch.nn.Module
    entries: Mapping[str, Entry]
    adapter: Callable[[torch.nn.Module], torch.nn.Module] | None = None
    root: str = ""
    dims: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    dimensions: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    persistent: Mapping[str, Persistent] = field(default_factory=dict)
    disjoint: tuple[str, ...] = ()
    context: Callable[[slice], AbstractContextManager[Any]] | None = None
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    trial: Trial | None = None

    def dims_of(self, entry: str) -> dict[str, tuple[str | None, ...]]:
        """The names of the dimensions of each argument in an entry."""
        return {**self.dims, **self.entries[entry].dims}

    def adapted(self) -> torch.nn.Module:
        """The module that the entries' arguments are for."""
        return self.model if self.adapter is None else self.adapter(self.model)


def multiple(axis: str) -> tuple[int, str]:
    """The factor and the dimension of an axis: (16, "batch") for `16 * batch`."""
    factor, star, name = axis.partition("*")
    if star and factor.strip().isdigit():
        return int(factor), name.strip()
    return 1, axis
