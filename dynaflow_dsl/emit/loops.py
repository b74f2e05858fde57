"""Modules inside a part that run in a loop: the loop's text, and its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.bind.inside import Run
from dynaflow_dsl.bind.model import Body, Carried, Outer
from dynaflow_dsl.emit.layout import Bracket, Expression, assigned, call, lay_out
from dynaflow_dsl.emit.phrases import which_option
from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.plan.model import Layer
from dynaflow_dsl.plan.names import identifier, role_name
from dynaflow_dsl.plan.variables import CARRIED_NAME

# More values than these to choose from, or longer ones, stand before the loop.
MOST_CHOICES = 2
LONGEST_CHOICE = 60


@dataclass(frozen=True, slots=True)
class InnerLoop:
    """A run of a function, with the functions of its programs.

    `field` is where the function's record has the modules' weights, one record for
    each; nothing where no module has any.
    """

    run: Run
    functions: tuple[str, ...]
    field: str

    @property
    def modules(self) -> tuple[str, ...]:
        """Their paths, in the order in which they run."""
        return tuple(each.path for each in self.run.iterations)


def numbered(paths: Sequence[str]) -> str:
    """`encoder.layers.0 to 11`, or all numbers where some are left out."""
    parent, _, first = paths[0].rpartition(".")
    numbers = [int(path.rpartition(".")[2]) for path in paths]
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        text = f"{first} to {numbers[-1]}"
    else:
        text = ", ".join(map(str, numbers))
    return f"{parent}.{text}" if parent else text


def parameter_names(run: Run, body: Body, known: Mapping[str, str]) -> list[str]:
    """What the functions of a run call their inputs, after those who make them.

    `known` spells what the caller's `body` is given.
    """
    made_by = _makers(body)
    return [
        CARRIED_NAME
        if isinstance(role, Carried)
        else identifier(known[value])
        if value in known
        else "constant"
        if value not in made_by
        else identifier(role_name(made_by[value]))
        for role, value in zip(
            run.part.roles, run.part.instances[0].inputs, strict=True
        )
    ]


def loop_lines(
    loop: InnerLoop, expressions: dict[str, str], local: Callable[[str], str]
) -> tuple[list[str], int]:
    """The loop, and at which of its lines the call of a module begins.

    `expressions` spell the values that the function knows; those that the loop leaves
    are added. `local` gives out names.
    """
    part = loop.run.part
    results = [local(wanted) for wanted in _wanted(part.bodies[0], part.roles)]
    lines: list[str] = []
    arguments: list[Expression] = [f"w.{loop.field}[i]" if loop.field else "w"]
    for role in part.roles:
        match role:
            case Carried(_, output, initial):
                lines.append(f"    {results[output]} = {expressions[initial]}")
                arguments.append(results[output])
            case Outer(values):
                spelled = [expressions[value] for value in values]
                arguments.append(_chosen(spelled, lines, local))
    functions = [loop.functions[each.body] for each in part.instances]
    head = _chosen(functions, lines, local)
    lines.append(f"    for i in range({len(part.instances)}):")
    calling = len(lines)
    lines += assigned(results, call(head, arguments), 8)
    pairs = zip(part.instances[-1].outputs, results, strict=True)
    expressions.update((value, name) for value, name in pairs if value)
    return lines, calling


def _wanted(body: Body, roles: Sequence[object]) -> list[str]:
    """Names for what a run gives: what one module hands to the next has its own."""
    carried = {role.output for role in roles if isinstance(role, Carried)}
    made_by = _makers(body)
    return [
        CARRIED_NAME if k in carried else identifier(role_name(made_by[value]))
        for k, value in enumerate(body.outputs)
    ]


def _makers(body: Body) -> dict[str, Operation]:
    return {
        value.name: operation
        for operation in body.operations
        for value in operation.results
        if value is not None
    }


def _chosen(
    options: Sequence[str], lines: list[str], local: Callable[[str], str]
) -> str:
    """One of several expressions, by the number of the module."""
    distinct = list(dict.fromkeys(options))
    if len(distinct) == 1:
        return distinct[0]
    which = [distinct.index(one) for one in options]
    index = which_option(which, Layer(0, in_loop=True))
    inline = f"({', '.join(distinct)})[{index}]"
    if len(distinct) <= MOST_CHOICES and len(inline) <= LONGEST_CHOICE:
        return inline
    name = local(f"{identifier(distinct[0].removeprefix('w.'))}_by_module")
    lines += lay_out(f"{name} = ", Bracket("", "(", tuple(options)), "", 4)
    return f"{name}[i]"
