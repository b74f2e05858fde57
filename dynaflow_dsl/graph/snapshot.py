"""Traced models as JSON, one operation per line, so that a diff can be read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from dynaflow_dsl.graph.model import Graph, Input, Operation, TracedModel, Value
from dynaflow_dsl.graph.reader import FORMAT, parse_snapshot
from dynaflow_dsl.graph.text import write_argument, write_type

__all__ = ["FORMAT", "dump_snapshot", "looks_like_snapshot", "parse_snapshot"]

# How every snapshot begins, of whatever format.
_MARK = '{\n "format": '


def dump_snapshot(model: TracedModel) -> str:
    """The snapshot of a traced model: the same text for the same model, always.

    Storages are written by the first value that has them, so they come back numbered
    by first appearance, inputs first.
    """
    fields = {
        "format": FORMAT,
        "target": model.target,
        "arguments": dict(model.arguments),
        "model": model.model_class,
        "device": model.device,
        "dtype": model.dtype,
        "captured_by": model.captured_by,
        "facts": dict(model.facts),
        "fingerprint": dict(model.fingerprint),
    }
    lines = [f" {_json(name)}: {_json(value)}," for name, value in fields.items()]
    graphs = ",\n".join(map(_graph, model.graphs))
    return "\n".join(("{", *lines, ' "graphs": [', graphs, " ]", "}", ""))


def looks_like_snapshot(text: str) -> bool:
    """Whether a file may be replaced by a snapshot: it was one, perhaps a damaged one.

    A file that holds nothing may be replaced too.
    """
    if text.strip() in ("", "{}") or text.startswith(_MARK):
        return True
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {"format", "graphs"} <= content.keys()


def _graph(graph: Graph) -> str:
    owners: dict[int, str] = {}
    inputs = [_json(_input(item, owners)) for item in graph.inputs]
    stacks = _stacks(graph.operations)
    operations = [_json(_operation(item, owners, stacks)) for item in graph.operations]
    code = {
        f"{operation.source.file}:{operation.source.line}": operation.source.code
        for operation in graph.operations
        if operation.source
    }
    parts = [
        f'   "entry": {_json(graph.entry)}',
        f'   "dimensions": {_json([list(item) for item in graph.dimensions])}',
        *([f'   "fixed": {_json(dict(graph.fixed))}'] if graph.fixed else []),
        *([f'   "phases": {_phases(graph)}'] if graph.phases else []),
        *(['   "context": true'] if graph.context else []),
        f'   "signature": {_json([list(item) for item in graph.signature])}',
        f'   "outputs": {_json(list(graph.outputs))}',
        _block("modules", map(_json, graph.modules)),
        _block("inputs", inputs),
        _block("operations", operations),
        _block(
            "functions",
            (f"{_json(key)}: {_json(list(stack))}" for stack, key in stacks.items()),
            "{}",
        ),
        _block("code", (f"{_json(k)}: {_json(v)}" for k, v in code.items()), "{}"),
    ]
    return "  {\n" + ",\n".join(parts) + "\n  }"


def _stacks(operations: Iterable[Operation]) -> Mapping[tuple[str, ...], str]:
    """A short name for the functions of each operation, that of the innermost one.

    Names and not numbers, so that an operation more changes few other lines.
    """
    names: dict[str, tuple[str, ...]] = {}
    found: dict[tuple[str, ...], str] = {}
    for operation in operations:
        stack = operation.functions
        if stack and stack not in found:
            name = innermost = ".".join(stack[-1].split(".")[-2:])
            count = 1
            while name in names:
                count += 1
                name = f"{innermost}#{count}"
            names[name] = stack
            found[stack] = name
    return found


def _block(name: str, lines: Iterable[str], brackets: str = "[]") -> str:
    text = ",\n".join(f"    {line}" for line in lines)
    if not text:
        return f"   {_json(name)}: {brackets}"
    return f"   {_json(name)}: {brackets[0]}\n{text}\n   {brackets[1]}"


def _input(item: Input, owners: dict[int, str]) -> Mapping[str, object]:
    data: dict[str, object] = {"kind": item.kind, "name": item.name}
    data["value"] = _value(item.value, owners)
    if item.argument is not None:
        data["argument"] = item.argument
    if item.kind == "constant":
        data["data"] = write_argument(item.data)  # type: ignore[arg-type]
    if item.capacity is not None:
        data["capacity"] = item.capacity
    if item.scratch:
        data["scratch"] = True
    if item.disjoint:
        data["disjoint"] = True
    return data


def _phases(graph: Graph) -> str:
    return _json({dimension: list(names) for dimension, names in graph.phases})


def _operation(
    operation: Operation, owners: dict[int, str], stacks: Mapping[tuple[str, ...], str]
) -> Mapping[str, object]:
    data: dict[str, object] = {
        "name": operation.name,
        "call": operation.operator,
        "arguments": [write_argument(item) for item in operation.arguments],
    }
    if operation.keywords:
        data["keywords"] = {
            name: write_argument(item) for name, item in operation.keywords
        }
    data["results"] = [
        _value(result, owners) if result else None for result in operation.results
    ]
    for name in ("multiple", "view"):
        if getattr(operation, name):
            data[name] = True
    for name in ("writes", "tags"):
        if items := getattr(operation, name):
            data[name] = list(items)
    data["module"] = operation.module
    if operation.source:
        data["source"] = f"{operation.source.file}:{operation.source.line}"
    if operation.functions:
        data["functions"] = stacks[operation.functions]
    if operation.marks:
        data["marks"] = list(operation.marks)
    return data


def _value(value: Value, owners: dict[int, str]) -> list[str]:
    owner = owners.setdefault(value.storage, value.name)
    data = [value.name, write_type(value.type)]
    return data if owner == value.name else [*data, owner]


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False)
