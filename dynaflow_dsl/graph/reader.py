"""Snapshots back to traced models, every field checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NoReturn

from dynaflow_dsl.diagnostics import Diagnostic, Result
from dynaflow_dsl.graph.fields import (
    WrongError,
    each_of,
    fields_of,
    names_of,
    repeated,
    scalars_of,
    string_of,
    strings_of,
)
from dynaflow_dsl.graph.model import (
    Argument,
    Graph,
    Input,
    Operation,
    Reference,
    Size,
    SourceLine,
    TensorType,
    TracedModel,
    Value,
)
from dynaflow_dsl.graph.operands import read_values
from dynaflow_dsl.graph.text import TextError, read_argument, read_type

FORMAT = 2
"""The format of snapshots that is written and read."""

_CODE = "DFS112"
# A snapshot of 64 layers has 2 million characters.
_LONGEST_TEXT = 200_000_000
# PyTorch's sizes have 64 bits.
_LARGEST_SIZE = 2**63 - 1
_OPERATOR = re.compile(r"\w+(\.\w+)+")
_KINDS = ("parameter", "buffer", "constant", "step", "persistent")
_MODEL_KEYS = {
    "format": int,
    "target": str,
    "arguments": dict,
    "model": str,
    "device": str,
    "dtype": str,
    "captured_by": str,
    "facts": dict,
    "fingerprint": dict,
    "graphs": list,
}
_GRAPH_KEYS = {
    "entry": str,
    "dimensions": list,
    "signature": list,
    "outputs": list,
    "modules": list,
    "inputs": list,
    "operations": list,
    "functions": dict,
    "code": dict,
}
_INPUT_KEYS = {"kind": str, "name": str, "value": list}
_FLAGS = {"scratch": bool, "disjoint": bool}
_INPUT_OPTIONS = {"argument": int, "data": object, "capacity": int, **_FLAGS}
_OPERATION_KEYS = {
    "name": str,
    "call": str,
    "arguments": list,
    "results": list,
    "module": str,
}
_OPERATION_OPTIONS = {
    "keywords": dict,
    "multiple": bool,
    "view": bool,
    "writes": list,
    "tags": list,
    "source": str,
    "functions": str,
    "marks": list,
}


def parse_snapshot(text: str, name: str) -> Result[TracedModel]:
    """The traced model in a snapshot; `name` is the file's, for messages.

    Any text gives a value or a DFS112 diagnostic, which names the place in the JSON.
    """
    try:
        if len(text) > _LONGEST_TEXT:
            raise WrongError(f"it has more than {_LONGEST_TEXT} characters")
        return Result(_model(json.loads(text, parse_constant=_no_constant)))
    except WrongError as wrong:
        problem = str(wrong)
    except json.JSONDecodeError as error:
        problem = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except RecursionError:
        problem = "its lists are nested too deeply"
    except ValueError as error:
        # Python refuses to read integers of more than 4300 digits.
        problem = str(error)
    return Result(
        None,
        (
            Diagnostic(
                _CODE,
                f"'{name}' is no snapshot that this version reads: {problem}",
                helps=("write it anew with 'dfsc trace'",),
            ),
        ),
    )


def _no_constant(name: str) -> NoReturn:
    raise WrongError(f"{name} is no JSON number")


def _model(data: object) -> TracedModel:
    fields = fields_of(data, _MODEL_KEYS)
    if fields["format"] != FORMAT:
        raise WrongError(f"its format is {fields['format']}, not {FORMAT}")
    graphs = each_of("graphs", fields["graphs"], _graph)
    if not graphs:
        raise WrongError("graphs: there is none")
    if repeated(graph.entry for graph in graphs) is not None:
        raise WrongError("graphs: two have one entry")
    return TracedModel(
        target=fields["target"],
        arguments=scalars_of("arguments", fields["arguments"]),
        model_class=fields["model"],
        device=fields["device"],
        dtype=fields["dtype"],
        captured_by=fields["captured_by"],
        facts=scalars_of("facts", fields["facts"]),
        fingerprint=tuple(
            (key, string_of(f"fingerprint.{key}", value))
            for key, value in fields["fingerprint"].items()
        ),
        graphs=graphs,
    )


class _Scope:
    """Values of one graph that have been read so far, and texts read before."""

    __slots__ = (
        "code",
        "count",
        "dimensions",
        "functions",
        "lines",
        "modules",
        "operations",
        "storages",
        "types",
    )

    def __init__(
        self,
        dimensions: frozenset[str],
        modules: frozenset[str],
        functions: Mapping[str, tuple[str, ...]],
        code: Mapping[str, str],
    ) -> None:
        self.dimensions = dimensions
        self.modules = modules
        self.functions = functions
        self.code = code
        self.storages: dict[str, int] = {}
        self.count = 0
        self.operations: set[str] = set()
        self.types: dict[str, TensorType] = {}
        self.lines: dict[str, SourceLine] = {}

    def type(self, text: str) -> TensorType:
        """A tensor type, its dimensions checked."""
        found = self.types.get(text)
        if found is None:
            found = self.types[text] = read_type(text)
            for size in (*found.shape, *found.strides):
                self.check_size(size)
                if size.factor < 0:
                    raise WrongError(f"{text!r} has a size below 0")
        return found

    def check_size(self, size: Size) -> None:
        """Every dimension of a size must be declared, and a factor fit torch's."""
        if abs(size.factor) > _LARGEST_SIZE:
            raise WrongError(f"the size {size} has more than 64 bits")
        for dimension in size.dimensions:
            if dimension not in self.dimensions:
                raise WrongError(f"the dimension {dimension} is not declared")

    def check(self, argument: Argument) -> None:
        """What an argument refers to must have been read."""
        if isinstance(argument, Reference):
            self.known(argument.name)
        elif isinstance(argument, Size):
            self.check_size(argument)
        elif isinstance(argument, tuple):
            for element in argument:
                self.check(element)

    def known(self, name: str) -> str:
        """The name of a value that has been read."""
        if name not in self.storages:
            raise WrongError(f"there is no value {name!r} at this place")
        return name

    def line(self, text: str) -> SourceLine:
        """A source line by `file:line`."""
        found = self.lines.get(text)
        if found is None:
            file, _, number = text.rpartition(":")
            if not file or not number.isdecimal() or text not in self.code:
                raise WrongError(f"the source line {text!r} is not in 'code'")
            found = self.lines[text] = SourceLine(file, int(number), self.code[text])
        return found


def _graph(data: object) -> Graph:
    optional = {"fixed": dict, "phases": dict, "context": bool}
    fields = fields_of(data, _GRAPH_KEYS, optional)
    dimensions = each_of("dimensions", fields["dimensions"], _dimension)
    code = {
        key: string_of(f"code.{key}", value) for key, value in fields["code"].items()
    }
    if (twice := repeated(name for name, _, _ in dimensions)) is not None:
        raise WrongError(f"dimensions: {twice} is there twice")
    modules = strings_of("modules", fields["modules"])
    if (twice := repeated(modules)) is not None:
        raise WrongError(f"modules: {twice!r} is there twice")
    scope = _Scope(
        frozenset(name for name, _, _ in dimensions),
        frozenset(modules),
        {k: names_of(f"functions.{k}", v) for k, v in fields["functions"].items()},
        code,
    )
    signature = each_of("signature", fields["signature"], _argument_name)
    if (twice := repeated(name for name, _ in signature)) is not None:
        raise WrongError(f"signature: {twice!r} is there twice")
    inputs = each_of("inputs", fields["inputs"], lambda item: _input(item, scope))
    _check_signature(signature, inputs)
    operations = each_of(
        "operations", fields["operations"], lambda item: _operation(item, scope)
    )
    outputs = strings_of("outputs", fields["outputs"])
    for output in outputs:
        scope.known(output)
    return Graph(
        entry=fields["entry"],
        inputs=inputs,
        operations=operations,
        outputs=outputs,
        dimensions=dimensions,
        signature=signature,
        modules=modules,
        fixed=tuple(
            _fixed(name, size, dimensions)
            for name, size in fields.get("fixed", {}).items()
        ),
        phases=_phases(fields.get("phases", {}), dimensions, fields.get("fixed", {})),
        context=fields.get("context", False),
    )


def _phases(
    data: Mapping[str, object],
    dimensions: tuple[tuple[str, int, int | None], ...],
    fixed: Mapping[str, object],
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    taken = {*(name for name, _, _ in dimensions), *fixed}
    found: list[tuple[str, tuple[str, ...]]] = []
    for dimension, listed in data.items():
        names = names_of(f"phases.{dimension}", listed)
        if dimension not in (name for name, _, _ in dimensions) or len(names) < 2:
            raise WrongError(f"phases: {dimension!r} is no dimension with phases")
        for name in names:
            if not name.isidentifier() or name in taken:
                raise WrongError(f"phases: {name!r} is no name for rows of {dimension}")
            taken.add(name)
        found.append((dimension, names))
    return tuple(found)


def _fixed(
    name: str, size: object, dimensions: tuple[tuple[str, int, int | None], ...]
) -> tuple[str, int]:
    if not name.isidentifier() or name in (known for known, _, _ in dimensions):
        raise WrongError(f"fixed: {name!r} is no name for a size of every step")
    if type(size) is not int or not 1 <= size <= _LARGEST_SIZE:
        raise WrongError(f"fixed: {name} is {size!r}, which is no size")
    return name, size


def _dimension(data: object) -> tuple[str, int, int | None]:
    match data:
        case [str(name), int(low), None | int() as high] if name.isidentifier():
            if not isinstance(low, bool) and not isinstance(high, bool):
                if not 1 <= low <= (low if high is None else high) <= _LARGEST_SIZE:
                    raise WrongError(f"{name} has no sizes from {low} to {high}")
                return name, low, high
    raise WrongError("it is not [name, lowest, highest]")


def _argument_name(data: object) -> tuple[str, int | None]:
    match data:
        case [str(name), None | int() as count] if not isinstance(count, bool):
            if count is None or 0 <= count <= 100_000:
                return name, count
    raise WrongError("it is not [name, number of tensors]")


def _input(data: object, scope: _Scope) -> Input:
    fields = fields_of(data, _INPUT_KEYS, _INPUT_OPTIONS)
    kind = fields["kind"]
    if kind not in _KINDS:
        raise WrongError(f"kind: {kind!r} is none of {', '.join(_KINDS)}")
    if ("argument" in fields) != (kind in ("step", "persistent")):
        raise WrongError("step and persistent inputs, and only they, have an argument")
    if ("data" in fields) != (kind == "constant"):
        raise WrongError("constants, and only they, have data")
    capacity, scratch = fields.get("capacity"), fields.get("scratch", False)
    disjoint = fields.get("disjoint", False)
    if kind != "persistent" and (capacity is not None or scratch):
        raise WrongError("only persistent inputs have a capacity or scratch rows")
    if disjoint and "argument" not in fields:
        raise WrongError("only arguments of a step are disjoint")
    if capacity is not None and not 1 <= capacity <= _LARGEST_SIZE:
        raise WrongError(f"there is no capacity of {capacity} rows")
    value = _value(fields["value"], scope)
    name = fields["name"]
    # An operation may have taken the name.
    suffix = value.name.removeprefix(name)
    if not name or not value.name.startswith(name) or suffix.replace("@input", ""):
        raise WrongError(f"its value is {value.name!r}, which is not named after it")
    constant = read_argument(fields["data"]) if kind == "constant" else None
    argument = fields.get("argument")
    return Input(name, kind, value, argument, constant, capacity, scratch, disjoint)


def _check_signature(
    signature: tuple[tuple[str, int | None], ...], inputs: tuple[Input, ...]
) -> None:
    expected = [
        (name if count is None else f"{name}.{index}", position)
        for position, (name, count) in enumerate(signature)
        for index in range(1 if count is None else count)
    ]
    given = [(i.name, i.argument) for i in inputs if i.argument is not None]
    if expected != given:
        raise WrongError("inputs: they are not the arguments that the signature lists")
    held = (item.name for item in inputs if item.argument is None)
    if (twice := repeated(held)) is not None:
        raise WrongError(f"inputs: {twice!r} is there twice")


def _operation(data: object, scope: _Scope) -> Operation:
    fields = fields_of(data, _OPERATION_KEYS, _OPERATION_OPTIONS)
    name = fields["name"]
    if name in scope.operations:
        raise WrongError(f"two operations have the name {name!r}")
    scope.operations.add(name)
    keywords: tuple[tuple[str, Argument], ...] = ()
    try:
        arguments = tuple([read_argument(item) for item in fields["arguments"]])
        if "keywords" in fields:
            given = fields["keywords"].items()
            keywords = tuple([(key, read_argument(item)) for key, item in given])
    except TextError as error:
        raise WrongError(str(error)) from None
    scope.check(arguments)
    for _, argument in keywords:
        scope.check(argument)
    if not _OPERATOR.fullmatch(fields["call"]):
        raise WrongError(f"{fields['call']!r} is no operator")
    if fields["module"] not in scope.modules:
        raise WrongError(f"{fields['module']!r} is none of 'modules'")
    functions = fields.get("functions")
    if functions is not None and functions not in scope.functions:
        raise WrongError(f"{functions!r} is none of 'functions'")
    writes = strings_of("writes", fields["writes"]) if "writes" in fields else ()
    source = fields.get("source")
    operation = Operation(
        name=name,
        operator=fields["call"],
        arguments=arguments,
        keywords=keywords,
        results=tuple(
            [
                None if item is None else _value(item, scope)
                for item in fields["results"]
            ]
        ),
        multiple=fields.get("multiple", False),
        writes=writes,
        view=fields.get("view", False),
        tags=strings_of("tags", fields["tags"]) if "tags" in fields else (),
        module=fields["module"],
        source=None if source is None else scope.line(source),
        functions=() if functions is None else scope.functions[functions],
        marks=names_of("marks", fields["marks"]) if "marks" in fields else (),
    )
    _check_memory(operation, scope)
    return operation


def _check_memory(operation: Operation, scope: _Scope) -> None:
    """What an operation writes, and what its views look into, it reads."""
    if not operation.writes and not operation.view:
        return
    read = read_values(operation)
    for written in operation.writes:
        if written not in read:
            raise WrongError(f"it writes {written!r}, which is none of its arguments")
    if operation.view:
        seen = {scope.storages[name] for name in read}
        made = {value.storage for value in operation.results if value is not None}
        if operation.writes or not made or not made <= seen:
            raise WrongError("it is a view, but not of one of its arguments")


def _value(data: object, scope: _Scope) -> Value:
    if not isinstance(data, list) or not 2 <= len(data) <= 3:
        raise WrongError("a value is not [name, type] or [name, type, shared with]")
    for item in data:
        if not isinstance(item, str):
            raise WrongError("a value is not a list of strings")
    name, text = data[0], data[1]
    if name in scope.storages:
        raise WrongError(f"two values have the name {name!r}")
    try:
        traced = scope.type(text)
    except TextError as error:
        raise WrongError(str(error)) from None
    if len(data) == 3:
        storage = scope.storages[scope.known(data[2])]
    else:
        storage = scope.count
        scope.count += 1
    scope.storages[name] = storage
    return Value(name, traced, storage)
