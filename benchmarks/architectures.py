"""The row check on the architectures of transformers, held against the models.

    python -m benchmarks.architectures --output benchmarks/results/architectures.json

For each class of `benchmarks.architecture_table` a tiny random model is traced as a
whole with a symbolic batch, and every operation is checked for a split of the batch.
Two oracles that use neither the graph nor a rule then judge the verdict: the model
itself is run on pieces of a batch and on the whole of it, and with one row poisoned.
`benchmarks.architecture_document` writes the table.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.architecture_model import WORDS, Architecture
from benchmarks.architecture_table import ARCHITECTURES
from dynaflow_dsl.graph.rowwise import check_rows
from dynaflow_dsl.measurement import machine
from dynaflow_dsl.trace import Entry, TraceSpec, trace

BATCH = 5
PIECES = ((2, 3), (1, 4), (1, 1, 1, 2))
POISONED = 2

Tensors = tuple[torch.Tensor, ...]


class Called(torch.nn.Module):
    """A model with plain tensors as arguments and results.

    `names` are the arguments; a method of the model other than `forward` is called
    where one is named.
    """

    def __init__(self, model: torch.nn.Module, names: Sequence[str], call: str) -> None:
        super().__init__()
        self.model = model
        self.names, self.call = tuple(names), call

    def forward(self, *given: torch.Tensor) -> Any:
        """All tensors that the model returns."""
        keywords = dict(zip(self.names, given, strict=True))
        if self.call:
            keywords = {
                name: value
                for name, value in keywords.items()
                if name in inspect.signature(getattr(self.model, self.call)).parameters
            }
        function = getattr(self.model, self.call) if self.call else self.model
        found = tuple(_tensors(function(**keywords)))
        return found[0] if len(found) == 1 else found


def _tensors(result: object) -> Iterator[torch.Tensor]:
    """All tensors that hold numbers in what a model returns, each once."""
    match result:
        case torch.Tensor():
            yield result
        case Mapping():
            for value in result.values():
                yield from _tensors(value)
        case list() | tuple():
            for value in result:
                yield from _tensors(value)
        case _:
            pass


def build(architecture: Architecture) -> torch.nn.Module:
    """A random model in evaluation mode, always the same."""
    sizes = dict(architecture.sizes)
    experts = sizes.pop("_experts_implementation", None)
    config_class = (
        getattr(transformers, architecture.config)
        if architecture.config
        else getattr(transformers, architecture.model).config_class
    )
    config = config_class(**sizes)
    for name, value in (("use_cache", False), ("return_dict", True)):
        if hasattr(config, name):
            setattr(config, name, value)
    options = {} if experts is None else {"experts_implementation": experts}
    torch.manual_seed(0)
    model_class = getattr(transformers, architecture.model)
    model = model_class._from_config(config, **options).eval()
    assert isinstance(model, torch.nn.Module)
    # Fresh weights are so small, or zero, that rows hardly differ.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.requires_grad_(False)


def arguments(architecture: Architecture, batch: int) -> Tensors:
    """Random inputs of so many rows."""
    return tuple(
        _argument(kind, (batch, *shape))
        for kind, *shape in architecture.inputs.values()
    )


def _argument(kind: str, shape: tuple[int, ...]) -> torch.Tensor:
    match kind:
        case "token":
            return torch.randint(6, min(WORDS, 30), shape)
        case "mask":
            mask = torch.ones(shape, dtype=torch.int64)
            # Padding at the end, another length in every row.
            for row in range(shape[0]):
                mask[row, shape[1] - row % (shape[1] - 1) :] = 0
            return mask
        case "box":
            low = torch.randint(0, 20, (*shape[:-1], 2))
            return torch.cat([low, low + torch.randint(1, 20, low.shape)], -1)
        case _:
            return torch.randn(shape)


def adapter_of(architecture: Architecture) -> type[Called]:
    """`Called` with the architecture's arguments in its signature."""
    names = ("self", *architecture.inputs)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD

    class Adapter(Called):
        def forward(self, *given: torch.Tensor) -> Any:
            return super().forward(*given)

    Adapter.forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in names]
    )
    return Adapter


def target(architecture: Architecture, model: torch.nn.Module) -> TraceSpec:
    """The whole model as a trace target with a batch of any size."""
    names = tuple(architecture.inputs)
    adapter = adapter_of(architecture)
    return TraceSpec(
        model=model,
        adapter=lambda model: adapter(model, names, architecture.call),
        root="model",
        entries={"run": Entry(lambda sizes: arguments(architecture, sizes["batch"]))},
        dims={
            name: ("batch", *(None for _ in architecture.inputs[name][1:]))
            for name in names
        },
        dimensions={"batch": (1, None)},
    )


@dataclass(frozen=True, slots=True)
class Refused:
    """One refusal: the operation, its reason, and the line of the model."""

    operator: str
    reason: str
    line: str
    module: str


@dataclass(frozen=True, slots=True)
class Row:
    """What was found of one architecture.

    `verdict` is "accepted", "refused" or "not traced". `pieces` says how results of
    pieces differ from those of the whole, `leak` which poison reaches other rows; ""
    where nothing shows.
    """

    name: str
    group: str
    verdict: str
    operations: int
    operators: int
    refused: tuple[Refused, ...]
    reason: str
    pieces: str
    leak: str


def examine(architecture: Architecture) -> Row:
    """Trace one architecture, check its rows, and judge the verdict by running it."""
    model = build(architecture)
    spec = target(architecture, model)
    reason, operations = "", 0
    refused: tuple[Refused, ...] = ()
    operators: set[str] = set()
    result = trace(spec, "benchmarks", {})
    if result.value is None:
        verdict = "not traced"
        reason = _said(result.diagnostics)
    else:
        graph = result.value.graphs[0]
        operations = len(graph.operations)
        operators = {item.operator for item in graph.operations}
        by_name = {item.name: item for item in graph.operations}
        check = check_rows(graph, "batch", list(by_name))
        found = []
        for refusal in check.refusals:
            operation = by_name[refusal.operation]
            line = str(operation.source) if operation.source else ""
            found.append(
                Refused(operation.operator, refusal.reason, line, operation.module)
            )
        refused = tuple(found)
        verdict = "refused" if refused else "accepted"
    return Row(
        architecture.name,
        architecture.group,
        verdict,
        operations,
        len(operators),
        refused,
        reason,
        *judge(architecture, model),
    )


def _said(diagnostics: Sequence[Any]) -> str:
    return "; ".join(" ".join((item.message, *item.notes)) for item in diagnostics)


@torch.no_grad()
def judge(architecture: Architecture, model: torch.nn.Module) -> tuple[str, str]:
    """What running the model in pieces, and with one poisoned row, shows."""
    called = Called(model, tuple(architecture.inputs), architecture.call)
    torch.manual_seed(1)
    given = arguments(architecture, BATCH)
    try:
        whole = _run(called, given)
    except Exception as error:
        return f"does not run: {type(error).__name__}: {error}"[:200], ""
    return _pieces_differ(called, given, whole), _leak(
        architecture, called, given, whole
    )


def _run(called: Called, given: Tensors) -> Tensors:
    # Some models write into what they are given.
    result = called(*(tensor.clone() for tensor in given))
    return result if isinstance(result, tuple) else (result,)


def _pieces_differ(called: Called, given: Tensors, whole: Tensors) -> str:
    for sizes in PIECES:
        parts = []
        for piece in zip(
            *(torch.split(tensor, list(sizes)) for tensor in given), strict=True
        ):
            try:
                parts.append(_run(called, piece))
            except Exception as error:
                return f"{sizes}: {type(error).__name__}: {error}"[:200]
        for k, expected in enumerate(whole):
            pieces = [part[k] for part in parts]
            axes = [
                axis
                for axis, size in enumerate(expected.shape)
                if any(size != piece.shape[axis] for piece in pieces)
            ]
            if len(axes) > 1:
                return f"{sizes}: result {k} grows along two axes"
            if axes:
                total = sum(piece.shape[axes[0]] for piece in pieces)
                if total != expected.shape[axes[0]]:
                    return f"{sizes}: result {k} has other rows"
                pieces = [torch.cat(pieces, axes[0])]
            if not all(_close(part, expected) for part in pieces):
                return f"{sizes}: result {k} differs"
    return ""


def _leak(
    architecture: Architecture, called: Called, given: Tensors, whole: Tensors
) -> str:
    """Which poison in one row shows in the results of others."""
    torch.manual_seed(2)
    noise = [tensor.clone() for tensor in given]
    other = arguments(architecture, BATCH)
    for tensor, replaced in zip(noise, other, strict=True):
        # Another length of padding as well: the mask of another row.
        tensor[POISONED] = replaced[(POISONED + 2) % BATCH]
    poisons = {"noise": (tuple(noise), False), "NaN": (given, True)}
    for name, (poisoned, embedded) in poisons.items():
        for k, (expected, found) in enumerate(
            zip(whole, _poisoned(called, poisoned, embedded), strict=True)
        ):
            axis = _rows_axis(expected)
            if axis is None:
                if not _close(found, expected):
                    return f"{name} in one row changes result {k}"
                continue
            share = expected.shape[axis] // BATCH
            others = torch.tensor(
                [r for r in range(expected.shape[axis]) if r // share != POISONED]
            )
            if not _close(
                found.index_select(axis, others), expected.index_select(axis, others)
            ):
                return f"{name} in one row reaches others in result {k}"
    return ""


def _rows_axis(result: torch.Tensor) -> int | None:
    """The axis of the rows: the first as long as the batch, else a multiple of it."""
    sizes = list(result.shape)
    if BATCH in sizes:
        return sizes.index(BATCH)
    return next((axis for axis, size in enumerate(sizes) if size % BATCH == 0), None)


def _poisoned(called: Called, given: Tensors, embedded: bool) -> Tensors:
    """Run with NaN in one row of every float, and of what tokens are embedded as."""
    if not embedded:
        return _run(called, given)

    def poison(module: torch.nn.Module, inputs: Any, output: Any) -> Any:
        # Positions are the same for all rows, and often without a batch.
        if (
            isinstance(output, torch.Tensor)
            and output.is_floating_point()
            and output.shape[:1] == (BATCH,)
        ):
            output = output.clone()
            output[POISONED] = float("nan")
        return output

    handles = [
        module.register_forward_hook(poison)
        for module in called.modules()
        if isinstance(module, torch.nn.Embedding)
    ]
    changed = [tensor.clone() for tensor in given]
    for tensor in changed:
        if tensor.is_floating_point():
            tensor[POISONED] = float("nan")
    try:
        return _run(called, tuple(changed))
    finally:
        for handle in handles:
            handle.remove()


def _close(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape:
        return False
    return torch.allclose(left, right, rtol=1e-3, atol=1e-4, equal_nan=True)


def main(given: Sequence[str] | None = None) -> int:
    """Examine the architectures, print a line for each, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, help="write the results as JSON")
    parser.add_argument("--only", default="", help="names that hold this text")
    options = parser.parse_args(given)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    rows = []
    for architecture in ARCHITECTURES:
        if options.only not in architecture.name:
            continue
        try:
            row = examine(architecture)
        except Exception as error:
            if not options.output:
                traceback.print_exc()
            said = f"{type(error).__name__}: {error}"[:300]
            row = Row(
                architecture.name, architecture.group, "failed", 0, 0, (), said, "", ""
            )
        rows.append(row)
        print(f"{row.verdict:10} {row.name} {row.reason[:150]}", flush=True)
        for item in {(r.operator, r.reason): r for r in row.refused}.values():
            print(f"    {item.operator}: {item.reason} [{item.line}]")
        print(
            f"    pieces: {row.pieces or 'same'}; poison: {row.leak or 'stays'}",
            flush=True,
        )
    if options.output:
        found = {"machine": machine.describe(), "rows": [asdict(row) for row in rows]}
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
