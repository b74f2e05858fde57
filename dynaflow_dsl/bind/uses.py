"""What the parts of a binding use beside tensors, one step at a time.

A process group runs one collective after the other; a kernel may have a workspace, or
memory that its ranks write into each other's. Nothing in a graph's tensors says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from dynaflow_dsl.bind.model import Binding, Body, BoundKernel
from dynaflow_dsl.graph.model import Graph, Operation
from dynaflow_dsl.operations.effects import effects_of
from dynaflow_dsl.resolve.model import MAIN


class Resource(NamedTuple):
    """Something that one step may use at a time: `what` it is, and its name.

    With `by_stream` each stream has one, so that steps on two of them use two.
    """

    what: str
    name: str
    by_stream: bool = False

    def __str__(self) -> str:
        return f"the {self.what} '{self.name}'"


# Where in a step the host waits for the device: nowhere, while some of the step is left
# to do, or at its end.
HostWait: TypeAlias = Literal["", "inside", "until it is done"]

GROUP = "process group"
SHARED = "shared resource"
SYMMETRIC = "symmetric memory of the kernel"


def waits_on_host(operation: Operation) -> bool:
    """Whether the host waits for the device in an operation."""
    waits = "host" in operation.tags or any(
        effects.waits_on_host for effects in effects_of(operation.operator)
    )
    return waits and not _is_told_its_size(operation)


def _is_told_its_size(operation: Operation) -> bool:
    """Whether a `repeat_interleave` is given the number that it would ask for."""
    return "repeat_interleave" in operation.operator and any(
        name == "output_size" and value is not None
        for name, value in operation.keywords
    )


def host_waits(binding: Binding) -> Mapping[str, tuple[HostWait, ...]]:
    """By part, where the host waits in each of its programs; without those where it
    never does.

    What a kernel does instead is not known, and its part is left out.
    """
    kernels = {kernel.part for kernel in binding.kernels}
    found = {
        part.name: tuple(_host_wait(body) for body in part.bodies)
        for part in binding.everything
        if part.name not in kernels
    }
    return {name: waits for name, waits in found.items() if any(waits)}


def _host_wait(body: Body) -> HostWait:
    computed = [each for each in body.operations if not each.view]
    waiting = [each for each in computed if waits_on_host(each)]
    if not waiting:
        return ""
    # An exchange asks how much comes, and goes on.
    last = waiting[-1] is computed[-1] and not is_collective(waiting[-1])
    return "until it is done" if last else "inside"


def is_collective(operation: Operation) -> bool:
    """Whether the ranks of a group do an operation together."""
    return any(effects.collective for effects in effects_of(operation.operator))


def resources(operation: Operation) -> Iterator[Resource]:
    """What an operation takes for itself while it runs."""
    for effects in effects_of(operation.operator):
        if effects.collective and (group := group_of(operation)) is not None:
            yield Resource(GROUP, group)
        for name in effects.uses:
            yield Resource(SHARED, name)


def group_of(operation: Operation) -> str | None:
    """The role or name of a collective's group: its last text."""
    given = (*operation.arguments, *(value for _, value in operation.keywords))
    texts = [argument for argument in given if isinstance(argument, str)]
    return texts[-1] if texts else None


def groups(graph: Graph) -> tuple[str, ...]:
    """The process groups of a graph's collectives."""
    found = (group_of(each) for each in graph.operations if is_collective(each))
    return tuple(dict.fromkeys(group for group in found if group is not None))


def uses_of(binding: Binding) -> Mapping[str, tuple[tuple[Resource, ...], ...]]:
    """By part, what each of its programs uses; parts without any are left out.

    A part that runs through a kernel uses what the kernel says; of one that nobody has
    asked nothing is known.
    """
    kernels = {kernel.part: kernel for kernel in binding.kernels}
    through = {part.name for part in binding.schedule.parts if part.via is not None}
    found: dict[str, tuple[tuple[Resource, ...], ...]] = {}
    for part in binding.everything:
        if part.name in through - kernels.keys():
            continue
        kernel = kernels.get(part.name)
        bodies = tuple(_of_program(body, kernel) for body in part.bodies)
        if any(bodies):
            found[part.name] = bodies
    return found


def groups_of_kernel(
    kernel: BoundKernel, bodies: Sequence[Body], streams: Sequence[str]
) -> tuple[str, ...]:
    """The process groups that a kernel uses which stands for these programs.

    It runs on `streams`, each of which may have a group of its own.
    """
    used = (each for body in bodies for each in of_kernel(kernel, body))
    return tuple(
        dict.fromkeys(
            f"{each.name}:{stream}" if each.by_stream and stream != MAIN else each.name
            for each in used
            if each.what == GROUP
            for stream in streams
        )
    )


def _of_program(body: Body, kernel: BoundKernel | None) -> tuple[Resource, ...]:
    if kernel is None:
        return tuple(sorted({r for each in body.operations for r in resources(each)}))
    return tuple(sorted(set(of_kernel(kernel, body))))


def of_kernel(kernel: BoundKernel, body: Body) -> Iterator[Resource]:
    """What a kernel uses that stands for a program.

    One that says nothing of how it reaches other ranks, and stands for collectives,
    does so over their groups.
    """
    symmetric = kernel.via.kernel.symmetric_memory
    alone = kernel.by_stream
    if kernel.communicator is not None:
        yield Resource(GROUP, kernel.communicator, alone)
    elif not kernel.uses and not symmetric:
        for each in body.operations:
            if is_collective(each) and (group := group_of(each)) is not None:
                yield Resource(GROUP, group, alone)
    for name in kernel.uses:
        yield Resource(SHARED, name, alone)
    if symmetric:
        yield Resource(SYMMETRIC, kernel.via.kernel.name, alone)
