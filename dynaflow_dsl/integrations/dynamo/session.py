"""One model under one schedule: the graphs that Dynamo hands over, one by one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.files import relative, schedule_name
from dynaflow_dsl.cli.modules import ModuleFiles
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError, Severity
from dynaflow_dsl.graph.digest import graph_digest
from dynaflow_dsl.integrations.dynamo.calls import Bindings, GraphCall
from dynaflow_dsl.integrations.dynamo.checks import check_autocast, check_gradients
from dynaflow_dsl.integrations.dynamo.dimensions import (
    Dimensions,
    name_dimensions,
    said_of,
)
from dynaflow_dsl.integrations.dynamo.fitting import others_may_fit, says_nothing_of
from dynaflow_dsl.integrations.dynamo.frames import BeginAnew, hold_equal
from dynaflow_dsl.integrations.dynamo.inputs import read_inputs
from dynaflow_dsl.integrations.dynamo.model import DynamoGraph, Inputs, Meaning
from dynaflow_dsl.integrations.dynamo.modules import (
    GraphModuleFile,
    compile_graph,
)
from dynaflow_dsl.integrations.dynamo.names import in_options
from dynaflow_dsl.integrations.dynamo.opening import Opening, unsaid
from dynaflow_dsl.integrations.dynamo.options import Options
from dynaflow_dsl.integrations.dynamo.places import module_files, take_place
from dynaflow_dsl.integrations.dynamo.report import parts_of
from dynaflow_dsl.integrations.dynamo.retrace import retrace
from dynaflow_dsl.integrations.dynamo.wanted import (
    dimensions_of,
    fills,
    no_dimension,
    not_said,
    still_fixed,
)
from dynaflow_dsl.integrations.dynamo.weights import structure_of
from dynaflow_dsl.integrations.schedules import check_runs_one
from dynaflow_dsl.resolve.model import ScheduleFile

_log = logging.getLogger("dynaflow_dsl")

# The code of parts and selectors without operations.
NOTHING_MATCHED = "DFS201"

# The name of a graph that nothing else names.
ENTRY = "forward"


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A graph that runs as its schedule says."""

    call: GraphCall
    entry: str
    module: str
    parts: tuple[tuple[str, tuple[str, ...]], ...]
    reused: bool


@dataclass(frozen=True, slots=True)
class Unscheduled:
    """A graph of which the schedule says nothing, and why.

    `diagnostics` are the whole messages, where it holds parts and not all of them.
    """

    reason: str
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class _Made:
    entry: str
    digest: str
    files: ModuleFiles
    parts: tuple[tuple[str, tuple[str, ...]], ...]
    bindings: Bindings

    @property
    def module(self) -> str:
        """The module's file, for reports."""
        return relative(self.files.module)


@dataclass(slots=True, eq=False)
class Session:
    """What is known of a model's graphs under one set of options.

    `dims` are the names of axes in earlier graphs, which hold for later ones: a batch
    of one row is fixed to Dynamo, and still the batch. `sizes` are those of named
    dimensions in the call whose graphs are being compiled. `opening` is what Dynamo was
    asked to leave open.
    """

    options: Options
    file: ScheduleFile
    made: list[_Made] = field(default_factory=list)
    dims: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    opening: Opening = field(default_factory=Opening)

    def schedule(
        self,
        graph: DynamoGraph,
        modules: Iterable[str],
        *,
        whole: bool,
        resumed: bool = False,
    ) -> Scheduled | Unscheduled:
        """The executor of a graph in which `modules` run; `whole` says that it is all
        of the model, and `resumed` that it goes on with values of an earlier one.

        Raises DiagnosticError for a graph that the schedule does not fit, and what
        Dynamo needs to begin the frame anew with more of its axes open.
        """
        self.opening.begin(graph)
        try:
            if self.opening.refused is not None:
                raise self.opening.refused[0]
            found = self._begun(graph, modules, whole=whole, resumed=resumed)
        except BeginAnew:
            raise
        except DiagnosticError as error:
            if self.opening.guessed:
                self.opening.drop_guess(graph, read_inputs(graph), error)
            error = self.opening.better(error)
            if not self.options.strict and self.opening.refused is None:
                self.opening.close(graph, error)
            self.opening.forget()
            raise error from None
        except BaseException:
            self.opening.forget()
            raise
        self.opening.forget()
        return found

    def _begun(
        self,
        graph: DynamoGraph,
        modules: Iterable[str],
        *,
        whole: bool,
        resumed: bool,
    ) -> Scheduled | Unscheduled:
        self._look_at_call(graph, resumed=resumed)
        # A whole model without any part is at odds with its schedule, unless another
        # way through the model has been found to fit.
        if not whole or self.made:
            reason = says_nothing_of(self.file, modules, graph.model)
            if reason is not None:
                return Unscheduled(reason)
        check_gradients(graph.examples)
        check_autocast(graph.examples)
        inputs = read_inputs(graph)
        wanted = dimensions_of(self.file)
        meaning = self._meaning(graph, inputs, wanted, whole=whole)
        reason = self._single_row(inputs, meaning, wanted)
        if reason is not None:
            return Unscheduled(reason)
        self._open(graph, inputs, meaning, wanted, resumed=resumed)
        dimensions = name_dimensions(inputs.steps, meaning, wanted)
        for name in sorted(wanted):
            reason = self._fixed(name, inputs, dimensions)
            if reason is not None:
                return Unscheduled(reason)
        try:
            scheduled = self._scheduled(graph, meaning, wanted, whole=whole)
            self._hold_guess(inputs, meaning)
            return scheduled
        except DiagnosticError as error:
            found = [e for e in error.diagnostics if e.severity is Severity.ERROR]
            codes = {each.code for each in found}
            if whole or codes != {NOTHING_MATCHED}:
                raise
            if not others_may_fit(self.file, modules, graph.model):
                raise
            reason = f"it holds a layer in part: {found[0].message}"
            return Unscheduled(reason, tuple(found))

    def _scheduled(
        self,
        graph: DynamoGraph,
        meaning: Meaning,
        wanted: frozenset[str],
        *,
        whole: bool,
    ) -> Scheduled:
        retraced = retrace(graph, meaning, self._entry, wanted, whole).unwrap()
        (traced,) = retraced.traced.graphs
        self.dims.update(
            {key: axes for key, axes in retraced.dimensions.dims.items() if any(axes)}
        )
        digest = graph_digest(traced)
        for made in self.made:
            if made.digest == digest:
                call = GraphCall(retraced.interface, made.bindings)
                return Scheduled(call, made.entry, made.module, made.parts, True)
        entry = _free(traced.entry, [made.entry for made in self.made])
        renamed = replace(retraced.traced, graphs=(replace(traced, entry=entry),))
        files = self._files(entry)
        compiled = compile_graph(
            self.file,
            replace(retraced, traced=renamed),
            files.module.stem,
            tuple(self.options.entries),
        )
        take_place(files, self._files(ENTRY), compiled, self.options.write, self._other)
        module = GraphModuleFile.of(
            files,
            structure_of(retraced.spec.model),
            _device(graph.examples, retraced.spec.device),
        )
        bindings = Bindings(module.binds(self.options.load))
        parts = parts_of(compiled.bindings)
        place = ModuleFiles.of(files.module.parent.absolute(), files.module.stem)
        made = _Made(entry, digest, place, parts, bindings)
        self.made.append(made)
        call = GraphCall(retraced.interface, bindings)
        return Scheduled(call, entry, made.module, parts, False)

    def _meaning(
        self,
        graph: DynamoGraph,
        inputs: Inputs,
        wanted: frozenset[str],
        *,
        whole: bool,
    ) -> Meaning:
        """What the caller says, and what earlier graphs of the model showed."""
        given = self.options.meaning
        if self.made or not whole:
            # Later graphs, and those around a break, may have fewer inputs.
            given = given.of(inputs.steps)
        else:
            given = given.without(graph.scope.is_left_out, inputs.steps)
        dims = given.dims
        if not self.options.meaning.dims:
            ndim = {item.key: item.tensor.ndim for item in inputs.steps}
            dims = {
                k: axes for k, axes in self.dims.items() if ndim.get(k) == len(axes)
            }
        else:
            guessed = self.opening.guess(inputs, dims, wanted, self.sizes)
            dims = {**dims, **guessed}
        return replace(given, dims={**dims, **self.opening.learned})

    def _look_at_call(self, graph: DynamoGraph, *, resumed: bool) -> None:
        """Note the sizes of a call, for graphs that go on with it after a break.

        Functions that it calls may be compiled in between, and know none.
        """
        found = graph.scope.sizes_of(self.options.meaning.dims)
        if found:
            self.sizes = {**self.sizes, **found} if resumed else found

    def _hold_guess(self, inputs: Inputs, meaning: Meaning) -> None:
        """Let the graph hold only for calls of which what was guessed is right."""
        for key, guessed in self.opening.guessed.items():
            for name in filter(None, guessed):
                sizes = [
                    size
                    for item in inputs.steps
                    for named, size in zip(
                        meaning.dims.get(item.key, ()), item.shape, strict=False
                    )
                    if named == name
                ]
                hold_equal(sizes)
                _log.info(
                    "'%s' is taken to have the axis %s, by its size: 'dims' says "
                    "nothing of it",
                    key,
                    name,
                )

    def _entry(self, fixed: Mapping[str, int]) -> str:
        for name, sizes in self.options.entries.items():
            if all(fixed.get(key) == size for key, size in sizes.items()):
                return name
        return ENTRY

    def _open(
        self,
        graph: DynamoGraph,
        inputs: Inputs,
        meaning: Meaning,
        wanted: frozenset[str],
        *,
        resumed: bool,
    ) -> None:
        """Have all dimensions open that the caller names or the schedule speaks of.

        One stays fixed where the model's code fixes it, or where it has the size that
        an entry is named by. Raises DiagnosticError (DFS821) where an axis that nobody
        named fixes it, and what Dynamo needs to begin the frame anew. Of values that an
        earlier graph made the caller knows nothing: axes that are a dimension count as
        named.
        """
        said = said_of(inputs.steps, meaning)
        names = self._named(said.fixed) | wanted
        self.opening.open_named(graph, inputs, meaning.dims, names)
        missing = unsaid(inputs.steps, meaning.dims, said.symbols)
        if self.opening.unnamed and missing:
            if resumed:
                self.opening.learn(graph, inputs, missing)
            raise not_said(self.file, meaning.dims, missing)
        fixed = {n: size for n, size in said.fixed.items() if n in names and size > 1}
        self.opening.open_unnamed(graph, inputs, meaning.dims, fixed)

    def _named(self, fixed: Mapping[str, int]) -> frozenset[str]:
        """The dimensions that the caller names, but those that name an entry now."""
        entries = self.options.entries.values()
        return frozenset(
            name
            for axes in self.options.meaning.dims.values()
            for name in axes
            if name is not None
            and not any(name in e and e[name] == fixed.get(name) for e in entries)
        )

    def _fixed(self, name: str, inputs: Inputs, dimensions: Dimensions) -> str | None:
        """Why a graph has too few rows of a dimension to be split, None if it has not.

        Raises DiagnosticError where it has enough, and only so many.
        """
        if name in dimensions.bounds:
            return None
        size = dimensions.fixed.get(name)
        if size is None:
            raise no_dimension(self.file, name, inputs, self.options.meaning.dims)
        if size > 1:
            dims = self.options.meaning.dims
            raise still_fixed(self.file, name, size, dims)
        return self._too_few(name, size)

    def _single_row(
        self, inputs: Inputs, meaning: Meaning, wanted: frozenset[str]
    ) -> str | None:
        """Why one row of a dimension is too few, None if it is not.

        Dynamo fixes a size of one for good, so that nothing has to be known of other
        axes to leave such a graph to Inductor.
        """
        fixed = said_of(inputs.steps, meaning).fixed
        found = (self._too_few(n, 1) for n in sorted(wanted) if fixed.get(n) == 1)
        return next((reason for reason in found if reason is not None), None)

    def _too_few(self, name: str, size: int) -> str | None:
        if any(fills(schedule, name, size) for schedule in self.file.schedules):
            return None
        return f"{name} is {size} in it, too few for the pieces of the split"

    def _files(self, entry: str) -> ModuleFiles:
        suffix = "" if entry == ENTRY else f"_{entry}"
        name = pipeline.module_name(self.file, pipeline.main_path(self.file))
        return module_files(self.options.module, name, suffix)

    def _other(self, module: Path) -> torch.nn.Module | None:
        """The model of another session that runs the module of a file."""
        for model, sessions in _sessions.items():
            if self not in sessions and any(
                made.files.module == module for each in sessions for made in each.made
            ):
                return model
        return None


_sessions: WeakKeyDictionary[torch.nn.Module, list[Session]] = WeakKeyDictionary()


def session(model: torch.nn.Module, options: Options) -> Session:
    """The session of a model; raises DiagnosticError for a schedule that has errors.

    A file that changed since is another schedule.
    """
    path = schedule_name(options.schedule)
    read = pipeline.read_schedule(path, options.parameters, in_options)
    file = read.unwrap()
    check_runs_one(file, path, "DFS821")
    for known in _sessions.setdefault(model, []):
        if known.options == options and known.file.digest == file.digest:
            return known
    made = Session(options, file)
    _sessions[model].append(made)
    return made


def _device(examples: Iterable[Any], kind: str) -> torch.device:
    """The device of the call that is being compiled."""
    for example in examples:
        if isinstance(example, torch.Tensor) and example.device.type == kind:
            return example.device
    return torch.device(kind)


def _free(name: str, taken: list[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
