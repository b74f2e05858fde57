"""Runs graphs and bindings over texts instead of numbers, memory included.

A tensor is a piece of memory seen through views. Memory holds a text that says how its
content was computed, so that two runs agree only if they computed the same things.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from dynaflow_dsl.bind import Binding, BoundPart, Carried, Outer, Produced
from dynaflow_dsl.graph.model import Graph, Operation, Reference
from dynaflow_dsl.graph.operands import read_values


@dataclass(eq=False)
class Memory:
    content: str


@dataclass(frozen=True)
class Tensor:
    memory: Memory
    views: tuple[str, ...] = ()

    def read(self) -> str:
        text = " of ".join((*reversed(self.views), self.memory.content))
        return text if len(text) < 200 else sha256(text.encode()).hexdigest()


Environment = dict[str, Tensor]


def inputs(graph: Graph) -> Environment:
    """Fresh inputs."""
    return {item.name: Tensor(Memory(item.name)) for item in graph.inputs}


def run(operations: Iterable[Operation], known: Environment) -> None:
    """Run operations in order; results are added to `known`."""

    def text_of(argument: object) -> str:
        match argument:
            case Reference(name):
                return known[name].read()
            case tuple():
                return f"[{', '.join(map(text_of, argument))}]"
            case _:
                return str(argument)

    for operation in operations:
        arguments = [*operation.arguments, *(item for _, item in operation.keywords)]
        text = f"{operation.operator}({', '.join(map(text_of, arguments))})"
        if operation.writes:
            target = known[operation.writes[0]]
            place = "/".join(target.views)
            target.memory.content = f"[{target.memory.content} with {place} {text}]"
        for k, value in enumerate(operation.results):
            if value is None:
                continue
            if operation.view:
                base = known[read_values(operation)[0]]
                literals = ", ".join(map(text_of, arguments[1:]))
                views = (*base.views, f"{operation.operator}({literals}).{k}")
                known[value.name] = Tensor(base.memory, views)
            else:
                known[value.name] = Tensor(Memory(f"{text}.{k}"))


def outcome(graph: Graph, known: Environment, results: Sequence[str]) -> list[str]:
    """What the results are, and what the inputs' memory holds in the end."""
    made = [known[name].read() for name in results]
    return made + [known[item.name].read() for item in graph.inputs]


def run_graph(graph: Graph) -> list[str]:
    """The graph in its own order."""
    known = inputs(graph)
    run(graph.operations, known)
    return outcome(graph, known, graph.outputs)


def run_binding(binding: Binding) -> list[str]:
    """Part by part: programs, wired by the roles of their inputs alone."""
    known = inputs(binding.graph)
    made: dict[tuple[str, int], Tensor] = {}
    _call(binding.before, 0, known, made)
    for i in range(len(binding.iterations)):
        previous = dict(made)
        for part in binding.parts:
            _call(part, i, known, made, previous)
    _call(binding.after, 0, known, made)
    return outcome(binding.graph, known, binding.results)


def _call(
    part: BoundPart | None,
    iteration: int,
    known: Environment,
    made: dict[tuple[str, int], Tensor],
    previous: Mapping[tuple[str, int], Tensor] | None = None,
) -> None:
    if part is None:
        return
    instance = part.instances[iteration]
    body = part.bodies[instance.body]
    given: list[Tensor] = []
    for role in part.roles:
        match role:
            case Outer(values):
                given.append(known[values[iteration]])
            case Produced(maker, output):
                given.append(made[(maker, output)])
            case Carried(maker, output, initial):
                first = iteration == 0 or previous is None
                given.append(known[initial] if first else previous[(maker, output)])
    assert len(set(body.inputs)) == len(body.inputs)
    local: Environment = dict(zip(body.inputs, given, strict=True))
    weights = [known[name] for name in instance.parameters]
    local.update(zip(body.parameters, weights, strict=True))
    run(body.operations, local)
    for k, (mine, name) in enumerate(zip(body.outputs, instance.outputs, strict=True)):
        made[(part.name, k)] = local[mine]
        if name:
            known[name] = local[mine]
