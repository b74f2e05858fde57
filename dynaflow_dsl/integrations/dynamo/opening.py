"""Axes that Dynamo is asked to leave open, because `dims` names them.

Dynamo fixes every size of a first call. A backend sees that when the graph is done, and
can let Dynamo begin anew with more axes open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import torch

from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.integrations.dynamo.frames import (
    OpenAxis,
    begin_anew,
    close_axes,
    marks_of,
)
from dynaflow_dsl.integrations.dynamo.model import DynamoGraph, Inputs, StepInput
from dynaflow_dsl.integrations.dynamo.wanted import NotSaid

# An input by its label, and the number of one of its axes.
_Place = tuple[str, int]


@dataclass(slots=True)
class Opening:
    """What was asked of Dynamo for the frame that it compiles now.

    `named` are axes with a name, `unnamed` others of the same size: if the model's code
    ties a dimension to one of these, it can be open only together with it. `tried` are
    the dimensions for which that was found out. `learned` are names of axes of values
    that a graph before this one made. `guessed` are those of inputs that `dims` leaves
    out, by their sizes, until the graph turns out not to fit so: then they are
    `dropped`, and `mistaken` says why.
    `marked` are tensors of the caller whose marks are to be taken off.
    """

    named: set[_Place] = field(default_factory=set)
    unnamed: set[_Place] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)
    learned: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    guessed: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    dropped: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    mistaken: DiagnosticError | None = None
    asked: list[OpenAxis] = field(default_factory=list)
    marked: list[OpenAxis] = field(default_factory=list)
    refused: tuple[DiagnosticError, list[torch.Tensor]] | None = None

    def begin(self, graph: DynamoGraph) -> None:
        """Leave the caller's tensors as they were.

        Where they are not those of this graph, Dynamo never came back with the frame
        that was begun anew: it is done.
        """
        given = {id(example) for example in graph.examples}
        tensors = [each.tensor for each in self.asked]
        if self.refused is not None:
            tensors += self.refused[1]
        if not all(id(tensor) in given for tensor in tensors):
            self.forget()
        close_axes(self.marked)
        self.marked.clear()

    def forget(self) -> None:
        """The frame is done: the next one begins without open axes."""
        self.named.clear()
        self.unnamed.clear()
        self.tried.clear()
        self.learned.clear()
        self.guessed.clear()
        self.dropped.clear()
        self.mistaken = None
        self.asked.clear()
        self.refused = None

    def close(self, graph: DynamoGraph, error: DiagnosticError) -> None:
        """Leave a frame that the schedule does not fit to Dynamo as it would be.

        Open sizes make slower code of what Inductor compiles. Raises what Dynamo needs
        to begin anew where it was asked to leave some open.
        """
        asked = list(self.asked)
        self.forget()
        if asked:
            tensors = [one for one in graph.examples if isinstance(one, torch.Tensor)]
            self.refused = error, tensors
            self.marked += asked
            begin_anew((), self.marked)

    def guess(
        self,
        inputs: Inputs,
        dims: Mapping[str, tuple[str | None, ...]],
        wanted: Collection[str],
        sizes: Mapping[str, int],
    ) -> Mapping[str, tuple[str | None, ...]]:
        """Names for axes of inputs of which `dims` says nothing, by their sizes.

        An axis that has the size of a named dimension in the call that is being
        compiled is that dimension, unless the graph does not fit then; `sizes` are
        those of dimensions that no input of the graph has. Only of inputs that have one
        of the `wanted` dimensions, those of the schedule: others are rather weights of
        a kind. Of a call with a single row nobody can tell.
        """
        if self.mistaken is None and not self.guessed:
            known = _sizes(inputs, dims, sizes)
            found = _by_size(inputs, dims, known)
            single = any(known.get(name) == 1 for name in wanted)
            self.guessed.update(
                {
                    key: axes
                    for key, axes in found.items()
                    if {*axes} & {*wanted} or (single and any(axes))
                }
            )
        return self.guessed

    def drop_guess(
        self, graph: DynamoGraph, inputs: Inputs, error: DiagnosticError
    ) -> NoReturn:
        """Raise what Dynamo needs to begin anew without what was guessed.

        `error` is why the graph does not fit with it.
        """
        wrong = {
            (item.label, number)
            for item in inputs.steps
            for number, name in enumerate(self.guessed.get(item.key, ()))
            if name is not None
        }
        self.dropped.update(self.guessed)
        self.guessed.clear()
        self.mistaken = error
        self.named -= wrong
        self.unnamed.clear()
        self.tried.clear()
        closed = list(_axes(graph, inputs, wrong))
        self.asked = list(_axes(graph, inputs, self.named))
        self.marked += [*closed, *self.asked]
        begin_anew(self.asked, closed)

    def better(self, error: DiagnosticError) -> DiagnosticError:
        """The error that says what is wrong: the one with what was guessed, where the
        one without it is that `dims` does not say so.

        Where the model's code has other names for these axes, the guess was wrong, and
        so is what was found with it.
        """
        if self.mistaken is None or not isinstance(error, NotSaid):
            return error
        wrong = any(
            guessed is not None and name is not None and guessed != name
            for key, axes in error.axes.items()
            for guessed, name in zip(self.dropped.get(key, ()), axes, strict=False)
        )
        return error if wrong else self.mistaken

    def open_named(
        self,
        graph: DynamoGraph,
        inputs: Inputs,
        dims: Mapping[str, tuple[str | None, ...]],
        names: Collection[str],
    ) -> None:
        """Have all axes open that have one of these names and more than one row.

        Raises what Dynamo needs to begin anew where it fixed some that it was not asked
        for yet; those that it fixed all the same stay fixed.
        """
        found = {
            (item.label, number)
            for item, number, size in _fixed_axes(inputs)
            if size > 1 and _name(item, number, dims) in names
        }
        if found - self.named:
            self.named |= found
            self._begin_anew(graph, inputs)

    def open_unnamed(
        self,
        graph: DynamoGraph,
        inputs: Inputs,
        dims: Mapping[str, tuple[str | None, ...]],
        fixed: Mapping[str, int],
    ) -> None:
        """Find out whether dimensions are fixed by axes that nobody names.

        `fixed` are the dimensions that Dynamo fixed though it was asked not to. Raises
        what Dynamo needs to begin anew with all axes of their sizes open, and once more
        without them where that left a dimension as it was.
        """
        sizes = {size for name, size in fixed.items() if name not in self.tried}
        found = {
            (item.label, number)
            for item, number, size in _fixed_axes(inputs)
            if size in sizes and _name(item, number, dims) is None
        }
        self.tried |= fixed.keys()
        if found:
            self.unnamed |= found
            self._begin_anew(graph, inputs)
        if self.unnamed:
            self.unnamed.clear()
            self._begin_anew(graph, inputs)

    def learn(
        self,
        graph: DynamoGraph,
        inputs: Inputs,
        found: Mapping[str, tuple[str | None, ...]],
    ) -> NoReturn:
        """Take names of axes as if they stood in `dims`.

        Raises what Dynamo needs to begin anew with these open, and no others.
        """
        self.learned.update(found)
        self.unnamed.clear()
        self._begin_anew(graph, inputs)

    def _begin_anew(self, graph: DynamoGraph, inputs: Inputs) -> NoReturn:
        # Marks of the last time are off again, so all are set.
        self.asked = list(_axes(graph, inputs, self.named | self.unnamed))
        self.marked += self.asked
        begin_anew(self.marked)


def _axes(
    graph: DynamoGraph, inputs: Inputs, places: Collection[_Place]
) -> Iterator[OpenAxis]:
    for item in inputs.steps:
        tensor = graph.examples[item.position]
        if isinstance(tensor, torch.Tensor):
            known = marks_of(tensor)
            for number in range(item.tensor.ndim):
                if (item.label, number) in places:
                    yield OpenAxis(tensor, number, known)


def _sizes(
    inputs: Inputs,
    dims: Mapping[str, tuple[str | None, ...]],
    elsewhere: Mapping[str, int],
) -> dict[str, int]:
    """The sizes of named dimensions in the call that is being compiled."""
    sizes: dict[str, int] = {}
    for item in inputs.steps:
        for number, size in enumerate(item.sizes):
            name = _name(item, number, dims)
            if name is not None and size is not None:
                sizes.setdefault(name, size)
    return {**elsewhere, **sizes}


def _by_size(
    inputs: Inputs,
    dims: Mapping[str, tuple[str | None, ...]],
    known: Mapping[str, int],
) -> dict[str, tuple[str | None, ...]]:
    # A size of one is that of any axis.
    sizes = {name: size for name, size in known.items() if size > 1}
    found: dict[str, tuple[str | None, ...]] = {}
    for item in inputs.steps:
        if item.key in dims:
            continue
        axes: list[str | None] = []
        for size in item.sizes:
            fits = (n for n, each in sizes.items() if each == size and n not in axes)
            axes.append(next(fits, None))
        found.setdefault(item.key, tuple(axes))
    return found


def _fixed_axes(inputs: Inputs) -> Iterator[tuple[StepInput, int, int]]:
    for item in inputs.steps:
        for number, size in enumerate(item.shape):
            if not isinstance(size, torch.SymInt):
                yield item, number, size


def _name(
    item: StepInput, number: int, dims: Mapping[str, tuple[str | None, ...]]
) -> str | None:
    axes = dims.get(item.key, ())
    return axes[number] if number < len(axes) else None


def unsaid(
    steps: Iterable[StepInput],
    dims: Mapping[str, tuple[str | None, ...]],
    symbols: Mapping[str, str],
) -> dict[str, tuple[str | None, ...]]:
    """Axes that are a named dimension to the model's code, and not in `dims`.

    `symbols` are Dynamo's symbols of named dimensions. Gives what `dims` has to say of
    these inputs.
    """
    found: dict[str, tuple[str | None, ...]] = {}
    for item in steps:
        axes = tuple(
            symbols.get(str(size), _name(item, number, dims))
            if isinstance(size, torch.SymInt)
            else _name(item, number, dims)
            for number, size in enumerate(item.shape)
        )
        said = tuple(_name(item, number, dims) for number in range(len(axes)))
        if axes != said:
            found.setdefault(item.key, axes)
    return found
