"""What became of the graphs that `torch.compile` handed over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from weakref import ref

import torch

from dynaflow_dsl.bind import Binding
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.graph.model import SourceLine

# How many graphs of a process are remembered.
_MOST_GRAPHS = 1000


@dataclass(frozen=True, slots=True)
class GraphReport:
    """One graph of a compiled function.

    `function` and `place` say which function it is of; `begins` that it goes on after
    a graph break, and `ends` in which one it ends. `parts` are those of the schedule
    that it holds, each with the modules it runs for. Where it is not scheduled,
    `module` is None and `reason` says why; `diagnostics` are the whole messages.
    """

    schedule: str
    function: str
    place: SourceLine | None
    begins: bool
    ends: str | None
    modules: tuple[str, ...]
    entry: str | None = None
    module: str | None = None
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    reused: bool = False
    reason: str | None = None
    diagnostics: tuple[Diagnostic, ...] = ()

    def __str__(self) -> str:
        where = f" ({self.place.file}:{self.place.line})" if self.place else ""
        after = ", after a graph break" if self.begins else ""
        lines = [f"{self.function}{where}{after}"]
        if self.module is not None:
            again = ", as before" if self.reused else ""
            lines.append(f"  entry {self.entry}: {self.module}{again}")
            for part, modules in self.parts:
                lines.append(f"    {part}: {_listed(modules)}")
        else:
            lines.append(f"  not scheduled: {self.reason}")
        if self.ends is not None:
            lines.append(f"  ends in a graph break: {self.ends}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Report:
    """Graphs in the order in which they were compiled, those that were compiled anew
    for other inputs among them."""

    graphs: tuple[GraphReport, ...]

    def __str__(self) -> str:
        if not self.graphs:
            return 'no graph was compiled with backend="dynaflow" yet'
        count = len(self.graphs)
        scheduled = sum(each.module is not None for each in self.graphs)
        head = f"{count} graph{'s' if count > 1 else ''}, {scheduled} scheduled"
        return "\n".join((head, *map(str, self.graphs)))


# Each with the model that it is of, as long as that is there.
_graphs: deque[tuple[ref[torch.nn.Module] | None, GraphReport]] = deque(
    maxlen=_MOST_GRAPHS
)


def report(model: torch.nn.Module | None = None) -> Report:
    """Which graph holds which part of a schedule, and why others are not scheduled.

    The graphs of `model`, which may be what `torch.compile` made of it; of all models
    of this process without one. Dynamo may run a model by a graph that it compiled for
    another one of the same class: that is in the other one's report.
    """
    if model is None:
        return Report(tuple(graph for _, graph in _graphs))
    own = getattr(model, "_orig_mod", model)
    return Report(
        tuple(graph for of, graph in _graphs if of is not None and of() is own)
    )


def forget() -> None:
    """Begin a new report."""
    _graphs.clear()


def remember(graph: GraphReport, model: torch.nn.Module | None) -> None:
    """Add a graph of a model to the report."""
    _graphs.append((None if model is None else ref(model), graph))


def parts_of(bindings: Iterable[Binding]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The parts of bound schedules, each with the modules that it runs for."""
    found: dict[str, dict[str, None]] = {}
    for binding in bindings:
        for section in binding.sections:
            for part in section.parts:
                modules = found.setdefault(part.name, {})
                modules.update(dict.fromkeys(each.path for each in section.iterations))
    return tuple((part, tuple(modules)) for part, modules in found.items())


def _listed(modules: tuple[str, ...]) -> str:
    if not any(modules):
        return "the model"
    if len(modules) > 3:
        return f"{modules[0]} to {modules[-1]}, {len(modules)} modules"
    return ", ".join(modules)
