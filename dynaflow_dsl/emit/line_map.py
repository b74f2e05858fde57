"""The map file: where each line of a module comes from, as data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction

from dynaflow_dsl.bind.agreement import RankDigests
from dynaflow_dsl.emit.functions import FunctionText
from dynaflow_dsl.emit.kernels import ImportedKernel
from dynaflow_dsl.emit.select import ChoiceText
from dynaflow_dsl.emit.steps import Line
from dynaflow_dsl.graph.model import TensorType, TracedModel
from dynaflow_dsl.resolve import Selection
from dynaflow_dsl.resolve.model import Schedule, ScheduleFile, Select, UsedFact, Value

# Ends a rendered line that has an origin, followed by the origin's number; taken out
# again before the text is written. No source text can hold it.
MARK = "\x00"


def unmark(text: str) -> tuple[str, dict[int, int]]:
    """The text without marks, and the number that each marked line (from one) had."""
    lines, found = [], {}
    for number, line in enumerate(text.split("\n"), start=1):
        body, mark, origin = line.partition(MARK)
        lines.append(body)
        if mark:
            found[number] = int(origin)
    return "\n".join(lines), found


def plan_lines(
    origins: Mapping[int, int], lines: Sequence[Line]
) -> list[dict[str, object]]:
    """Runs of module lines that issue one step."""
    entries: list[dict[str, object]] = []
    previous: tuple[int, Line] | None = None
    for number in sorted(origins):
        line = lines[origins[number]]
        assert line.span is not None
        together = (
            previous is not None
            and previous[0] == number - 1
            and previous[1].span == line.span
            and previous[1].label == line.label
        )
        if together:
            entries[-1]["last"] = number
        else:
            entries.append(
                {
                    "first": number,
                    "last": number,
                    "label": line.label,
                    "layer": line.layer,
                    "line": line.span.line,
                    "column": line.span.column,
                    "text": line.span.text.split("\n")[0],
                }
            )
        previous = (number, line)
    return entries


def operation_lines(
    starts: Mapping[str, int], functions: Sequence[FunctionText]
) -> list[dict[str, object]]:
    """One entry per operation of a function; `starts` are the headers' lines."""
    return [
        {
            "line": starts[function.name] + offset,
            "function": function.name,
            "operation": operation.name,
            "module": operation.module,
            "source": str(operation.source) if operation.source else None,
        }
        for function in functions
        for offset, operation in function.operations
    ]


def loop_lines(
    starts: Mapping[str, int], functions: Sequence[FunctionText]
) -> list[dict[str, object]]:
    """One entry per call that stands for several modules, one after another."""
    return [
        {
            "first": starts[function.name] + loop.first,
            "last": starts[function.name] + loop.last,
            "function": function.name,
            "modules": list(loop.modules),
        }
        for function in functions
        for loop in function.loops
    ]


def write_map(
    *,
    module: str,
    text: str,
    source: str,
    file: ScheduleFile,
    facts: Sequence[UsedFact],
    selection: Selection | None,
    choices: Sequence[ChoiceText],
    kernels: Sequence[ImportedKernel],
    graphs: Mapping[str, str],
    ranks: Mapping[str, RankDigests],
    model: TracedModel,
    lines: list[dict[str, object]],
    operations: list[dict[str, object]],
    loops: list[dict[str, object]],
    tensors: Mapping[str, TensorType],
    format_number: int,
) -> str:
    """The JSON text; one entry per line in the long lists, so that diffs stay small.

    `ranks` are what ranks compare of graphs with collectives, by entry.
    `facts` are those that the schedules require something of. `given` repeats what the
    command line said of parameters, facts and arguments of the file's model, so that a
    check can say it again; values that the file or the model has by itself are not in
    there, since they may change.
    """
    document: dict[str, object] = {
        "format": format_number,
        "module": f"{module}.py",
        "source": source,
        "schedule": file.digest,
        "graph": dict(graphs),
        "body": hashlib.sha256(text.encode()).hexdigest(),
        "target": {"name": model.target, "arguments": dict(model.arguments)},
        "parameters": {
            declared.name: {
                each.name: _json(each.value) for each in declared.parameters
            }
            for declared in _declared(file)
            if declared.parameters
        },
        "facts": {fact.name: fact.value for fact in facts},
        "given": {
            "parameters": dict(file.given),
            "facts": {fact.name: fact.value for fact in facts if fact.given},
            **_given_arguments(file, model),
        },
        "device": model.device,
        "dtype": model.dtype,
        "model": {
            "class": model.model_class,
            "fingerprint": dict(model.fingerprint),
            "tensors": {
                path: [type_.dtype, [size.factor for size in type_.shape]]
                for path, type_ in sorted(tensors.items())
            },
        },
        "lines": lines,
        "operations": operations,
    }
    if loops:
        document["loops"] = loops
    if ranks:
        document["ranks"] = {entry: each._asdict() for entry, each in ranks.items()}
    if kernels:
        document["kernels"] = {
            each.name: {
                "target": each.kernel.target,
                "symmetric_memory": each.kernel.symmetric_memory,
                "trusted": each.kernel.trusted,
                "parts": list(each.parts),
                "digest": each.digest,
            }
            for each in kernels
        }
    if selection is not None:
        document["select"] = _select(selection, choices)
    return _readable(document, 0) + "\n"


def _given_arguments(file: ScheduleFile, model: TracedModel) -> dict[str, object]:
    """The arguments that the file's model has and its line does not give it."""
    if file.model is None or file.model.target != model.target:
        return {}
    said = dict(file.model.arguments)
    given = {
        name: value
        for name, value in model.arguments
        if name not in said or said[name] != value
    }
    return {"arguments": given} if given else {}


def _declared(file: ScheduleFile) -> list[Schedule | Select]:
    return [*([file.select] if file.select is not None else []), *file.schedules]


def _select(selection: Selection, choices: Sequence[ChoiceText]) -> dict[str, object]:
    """The lines of a select, and which of them each entry's function holds."""
    select = selection.select
    return {
        "name": select.name,
        "lines": [
            {
                "line": line.span.line,
                "column": line.span.column,
                "text": " ".join(line.span.text.split()),
                "schedule": line.schedule,
            }
            for line in select.lines
        ],
        "entries": {
            each.entry: {
                "function": choice.name,
                "lines": [chosen.line for chosen in each.lines],
            }
            for each, choice in zip(selection.entries, choices, strict=True)
        },
    }


def _json(value: Value) -> object:
    match value:
        case Fraction():
            return float(value)
        case tuple():
            return [_json(item) for item in value]
    return value


def _readable(value: object, depth: int) -> str:
    """Objects and lists of objects over lines; what holds only plain values on one."""
    margin = " " * (depth + 1)
    if isinstance(value, dict) and value and not _is_plain(value):
        rows = [
            f"{margin}{json.dumps(key)}: {_readable(item, depth + 1)}"
            for key, item in value.items()
        ]
        return "{\n" + ",\n".join(rows) + "\n" + " " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        rows = [f"{margin}{_readable(item, depth + 1)}" for item in value]
        return "[\n" + ",\n".join(rows) + "\n" + " " * depth + "]"
    return json.dumps(value, ensure_ascii=False)


def _is_plain(value: dict[str, object]) -> bool:
    return not any(isinstance(item, dict | list) for item in value.values())
