"""Runs graphs and bindings over texts instead of numbers, memory included.

A tensor is a piece of memory seen through views. Memory holds a text that says how its
content was computed, so that two runs agree only if they computed the same things.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from dynaflow_dsl.bind import Binding, BoundPart, Output, Place, Produced
from dynaflow_dsl.bind.model import GAP
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


@dataclass
class Held:
    """What the variables of a binding hold, by their numbers."""

    binding: Binding
    known: Environment
    variables: dict[int, Tensor] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in self.binding.inner:
            for i, instance in enumerate(part.instances):
                gap = i if part.name == GAP else 0
                for k, name in enumerate(instance.outputs):
                    key = Output(part.name, k, gap)
                    self.numbers[name] = self.binding.variables[key]

    def read(self, name: str) -> Tensor:
        """A value: through its variable where a part or a gap makes it."""
        number = self.numbers.get(name)
        return self.known[name] if number is None else self.variables[number]

    def call(self, part: BoundPart | None, iteration: int) -> list[Tensor]:
        """The results of a part, which are not bound yet."""
        if part is None:
            return []
        instance = part.instances[iteration]
        body = part.bodies[instance.body]
        assert len(set(body.inputs)) == len(body.inputs)
        local: Environment = {
            mine: self.read(name)
            for mine, name in zip(body.inputs, instance.inputs, strict=True)
        }
        weights = [self.known[name] for name in instance.parameters]
        local.update(zip(body.parameters, weights, strict=True))
        run(body.operations, local)
        return [local[name] for name in body.outputs]

    def bind(self, part: BoundPart | None, iteration: int, made: list[Tensor]) -> None:
        """Give the results of a part their names."""
        if part is None:
            return
        gap = iteration if part.name == GAP else 0
        names = part.instances[iteration].outputs
        for k, (name, tensor) in enumerate(zip(names, made, strict=True)):
            number = self.binding.variables.get(Output(part.name, k, gap))
            if number is not None:
                self.variables[number] = tensor
            else:
                self.known[name] = tensor


def run_binding(binding: Binding) -> list[str]:
    """Part by part: programs, wired by the variables that hold their inputs alone."""
    known = inputs(binding.graph)
    held = Held(binding, known)
    held.bind(binding.before, 0, held.call(binding.before, 0))
    for s, section in enumerate(binding.sections):
        for i in range(len(section.iterations)):
            if binding.gaps is not None and (s, i) in binding.gaps.places:
                n = binding.gaps.places.index(Place(s, i))
                held.bind(binding.gaps.part, n, held.call(binding.gaps.part, n))
            fresh = dict(held.variables)
            old = dict(held.variables)
            for part in section.parts:
                # What this iteration makes is seen where a role says so.
                held.variables = dict(fresh)
                for role, name in zip(
                    part.roles, part.instances[i].inputs, strict=True
                ):
                    if not isinstance(role, Produced) and name in held.numbers:
                        number = held.numbers[name]
                        if number in old:
                            held.variables[number] = old[number]
                made = held.call(part, i)
                held.variables = fresh
                held.bind(part, i, made)
                fresh = held.variables
    held.bind(binding.after, 0, held.call(binding.after, 0))
    results = [held.read(name).read() for name in binding.results]
    return results + [known[item.name].read() for item in binding.graph.inputs]
