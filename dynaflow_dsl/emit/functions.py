"""Every distinct part as a plain Python function of ATen calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from dynaflow_dsl.bind.fragments import DEVICE, symbols
from dynaflow_dsl.bind.model import Body
from dynaflow_dsl.emit.layout import (
    Bracket,
    Expression,
    assigned,
    call,
    docstring,
    lay_out,
    listed,
    string,
)
from dynaflow_dsl.emit.loops import InnerLoop, loop_lines, numbered
from dynaflow_dsl.graph.model import (
    Argument,
    Constant,
    Input,
    Operation,
    Reference,
    Size,
    TensorType,
)
from dynaflow_dsl.graph.operands import read_values
from dynaflow_dsl.plan.names import RESERVED, free_name, identifier, role_name

END_OF_SLICE = 2**63 - 1

# What a line of a function's docstring has room for.
_TEXT_WIDTH = 84


@dataclass(frozen=True, slots=True)
class LoopLines:
    """Lines `first` to `last`, counted from zero, run one module after another."""

    first: int
    last: int
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FunctionText:
    """A function and what each of its lines does.

    `operations` pairs a line of the text, counted from zero, with an operation's name.
    """

    name: str
    lines: tuple[str, ...]
    operations: tuple[tuple[int, Operation], ...]
    loops: tuple[LoopLines, ...] = ()


@dataclass(slots=True)
class _Writer:
    """Names and lines of one function while it is written."""

    body: Body
    types: Mapping[str, TensorType]
    expressions: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def local(self, wanted: str) -> str:
        """A local name that is not taken yet."""
        return free_name(wanted, self.taken)


def write_function(
    name: str,
    body: Body,
    inputs: Sequence[str],
    weights: Mapping[str, str],
    types: Mapping[str, TensorType],
    about: str,
    scope: str,
    inner: Sequence[InnerLoop] = (),
    notes: Sequence[str] = (),
) -> FunctionText:
    """The text of one program.

    `inputs` are the function's parameters after `w`, in interface order, `weights` maps
    the program's model tensors to fields of `w`, `about` is the first line of the
    docstring and `notes` more paragraphs of it, `scope` the module path that comments
    are relative to. `inner` are the loops that stand for some of the operations.
    """
    looped = {n for loop in inner for n in range(loop.run.start, loop.run.stop)}
    plain = [each for n, each in enumerate(body.operations) if n not in looped]
    writer = _Writer(body, types)
    writer.taken |= RESERVED | {d for t in types.values() for d in _dims(t)}
    writer.taken |= {function for loop in inner for function in loop.functions}
    writer.taken.update(inputs)
    writer.expressions.update(zip(body.inputs, inputs, strict=True))
    for value, field_name in weights.items():
        writer.expressions[value] = f"w.{field_name}"
    constants = _constants(body, plain, inner)
    for item in constants:
        writer.expressions[item.name] = writer.local("constant")
    lines = lay_out("def ", call(name, ["w", *inputs]), ":")
    statements: list[str] = []
    operations: list[tuple[int, Operation]] = []
    loops: list[LoopLines] = []
    starts = {loop.run.start: loop for loop in inner}
    group = ""
    line_ends = _line_ends(plain)
    for n, operation in enumerate(body.operations):
        if (loop := starts.get(n)) is not None:
            group = _below(numbered(loop.modules), scope)
            statements.append(f"    # {group}")
            loop_text, calling = loop_lines(loop, writer.expressions, writer.local)
            begin = len(statements)
            statements += loop_text
            end = len(statements) - 1
            loops.append(LoopLines(begin + calling, end, loop.modules))
        if n in looped:
            continue
        last_of_line = operation.name in line_ends
        child = _child(operation.module, scope)
        if child != group:
            statements.append(f"    # {child}")
            group = child
        operations.append((len(statements), operation))
        statements += _statement(operation, writer, last_of_line=last_of_line)
    results = [writer.expressions[value] for value in body.outputs]
    lines += docstring(_about(about, notes, body, inputs, types, results), 4)
    lines += _preamble(body, plain, constants, writer)
    offset = len(lines)
    lines += statements
    lines += _returned(results)
    return FunctionText(
        name,
        tuple(lines),
        tuple((offset + line, operation) for line, operation in operations),
        tuple(
            LoopLines(offset + each.first, offset + each.last, each.modules)
            for each in loops
        ),
    )


def _constants(
    body: Body, plain: Sequence[Operation], inner: Sequence[InnerLoop]
) -> tuple[Input, ...]:
    """The constants that are read outside of loops, or handed to them."""
    if not inner:
        return body.constants
    read = {name for operation in plain for name in read_values(operation)}
    for loop in inner:
        for instance in loop.run.part.instances:
            read.update(instance.inputs)
    return tuple(item for item in body.constants if item.name in read)


def _dims(type_: TensorType) -> Iterator[str]:
    for size in type_.shape:
        yield from size.dimensions


def _line_ends(operations: Sequence[Operation]) -> set[str]:
    """Names of operations that are the last which their source line runs here."""
    last = {each.source: each.name for each in operations if each.source is not None}
    return set(last.values())


def _child(module: str, scope: str) -> str:
    """The part of a module path that comments show: one level below the scope."""
    if scope and (module == scope or module.startswith(f"{scope}.")):
        below = module[len(scope) + 1 :].split(".")[0]
        return f".{below}" if below else "the layer itself"
    return ".".join(module.split(".")[:2]) or "the model itself"


def _below(path: str, scope: str) -> str:
    """A path as comments show it, whole: relative to the scope where it is inside."""
    return path[len(scope) :] if scope and path.startswith(f"{scope}.") else path


def _statement(
    operation: Operation, writer: _Writer, *, last_of_line: bool
) -> list[str]:
    arguments: list[Expression] = [
        _argument(argument, writer)
        for argument in _readable(operation.operator, operation.arguments)
    ]
    for key, value in operation.keywords:
        argument = _argument(value, writer)
        if isinstance(argument, Bracket):
            arguments.append(Bracket(f"{key}={argument.head}", "[", argument.items))
        else:
            arguments.append(f"{key}={argument}")
    expression = call(_operator(operation.operator), arguments)
    return assigned(_targets(operation, writer, last_of_line), expression, 4)


def _targets(operation: Operation, writer: _Writer, last_of_line: bool) -> list[str]:
    wanted = identifier(role_name(operation, last_of_line=last_of_line))
    names = []
    for k, value in enumerate(operation.results):
        if value is None:
            names.append("_")
            continue
        one_of_many = operation.multiple and len(operation.results) > 1
        name = writer.local(f"{wanted}_{k}" if one_of_many else wanted)
        writer.expressions[value.name] = name
        names.append(name)
    if all(name == "_" for name in names):
        return []
    return [f"({names[0]},)"] if operation.multiple and len(names) == 1 else names


def _operator(operator: str) -> str:
    return operator if operator.startswith("aten.") else f"torch.ops.{operator}"


def _readable(operator: str, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """`slice` to the end has no bound, whatever number the tracer wrote."""
    if operator == "aten.slice.Tensor" and arguments[3:4] == (END_OF_SLICE,):
        return (*arguments[:3], None, *arguments[4:])
    return arguments


def _argument(argument: Argument, writer: _Writer) -> Expression:
    match argument:
        case Reference(name):
            return writer.expressions[name]
        case Size():
            return str(argument)
        case Constant("device"):
            return "device"
        case Constant(_, name):
            return f"torch.{name}"
        case str():
            return string(argument)
        case float():
            return _number(argument)
        case tuple():
            return listed([_argument(item, writer) for item in argument])
        case _:
            return repr(argument)


def _data(data: object) -> Expression:
    """The numbers of a constant, nested as its axes."""
    match data:
        case tuple() | list():
            return listed([_data(item) for item in data])
        case float():
            return _number(data)
        case _:
            return repr(data)


def _number(value: float) -> str:
    if math.isnan(value):
        return 'float("nan")'
    if math.isinf(value):
        return 'float("inf")' if value > 0 else '-float("inf")'
    # The formatter takes the sign out of 1e+22.
    return repr(value).replace("e+", "e")


def _preamble(
    body: Body,
    operations: Sequence[Operation],
    constants: Sequence[Input],
    writer: _Writer,
) -> list[str]:
    """Sizes and the device, read from the first input that has them."""
    used = {
        name
        for operation in operations
        for argument in (*operation.arguments, *(v for _, v in operation.keywords))
        for name in symbols(argument)
    }
    lines = []
    for dimension in sorted(used - {DEVICE}):
        read = size_source(dimension, body, writer.expressions, writer.types)
        lines.append(f"    {dimension} = {read}")
    for item in constants:
        target = f"{writer.expressions[item.name]} = "
        made = call(
            "torch.tensor", [_data(item.data), f"dtype=torch.{item.value.type.dtype}"]
        )
        lines += lay_out(target, made, "", 4)
    if DEVICE in used:
        tensors = [
            name
            for name in (*body.inputs, *body.parameters)
            if name in writer.expressions
        ]
        lines.append(f"    device = {writer.expressions[tensors[0]]}.device")
    return lines


def size_source(
    dimension: str,
    body: Body,
    expressions: Mapping[str, str],
    types: Mapping[str, TensorType],
) -> str:
    """Where a function reads a dimension off its tensors, which have `expressions`."""
    multiples = []
    for value in (*body.inputs, *body.parameters):
        if value not in expressions:
            continue
        for axis, size in enumerate(types[value].shape):
            if size.dimensions == (dimension,):
                read = f"{expressions[value]}.shape[{axis}]"
                if size.factor == 1:
                    return read
                multiples.append(f"{read} // {size.factor}")
    return multiples[0]


def _about(
    about: str,
    notes: Sequence[str],
    body: Body,
    parameters: Sequence[str],
    types: Mapping[str, TensorType],
    results: Sequence[str],
) -> list[str]:
    written = {name for operation in body.operations for name in operation.writes}
    rows = [
        (name, f"{types[value]}, written" if value in written else str(types[value]))
        for name, value in zip(parameters, body.inputs, strict=True)
    ]
    one = len(results) == 1
    rows += [
        ("returns" if one else f"returns {name}", str(types[value]))
        for name, value in zip(results, body.outputs, strict=True)
    ]
    paragraphs = [about]
    for note in notes:
        paragraphs += ["", *wrap(note, _TEXT_WIDTH)]
    if not rows:
        return paragraphs
    width = max(len(name) for name, _ in rows)
    return [*paragraphs, "", *(f"{name:<{width}}  {type_}" for name, type_ in rows)]


def _returned(results: Sequence[str]) -> list[str]:
    match results:
        case []:
            return ["    return ()"]
        case [only]:
            return [f"    return {only}"]
        case _:
            line = f"    return {', '.join(results)}"
            if len(line) <= 88:
                return [line]
            return lay_out("return ", Bracket("", "(", tuple(results)), "", 4)
