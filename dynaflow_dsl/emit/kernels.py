"""Functions that call a kernel in place of a part's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dynaflow_dsl.bind.model import Body, BoundKernel, KernelCall
from dynaflow_dsl.emit.functions import FunctionText, size_source
from dynaflow_dsl.emit.layout import (
    assigned,
    call,
    docstring,
    lay_out,
    string,
)
from dynaflow_dsl.graph.model import Size, TensorType
from dynaflow_dsl.plan.names import RESERVED, free_name
from dynaflow_dsl.plan.tensor_names import by_name
from dynaflow_dsl.resolve.model import Kernel, Value


@dataclass(frozen=True, slots=True)
class ImportedKernel:
    """A kernel by its name in the module, the parts that run through it, its digest."""

    name: str
    kernel: Kernel
    parts: tuple[str, ...]
    digest: str

    @property
    def statement(self) -> str:
        """The import of it."""
        place, _, attribute = self.kernel.target.partition(":")
        alias = "" if attribute == self.name else f" as {self.name}"
        return f"from {place} import {attribute}{alias}"


class KernelNames:
    """The kernels that a module imports, each once."""

    def __init__(self, new_name: Callable[[str], str]) -> None:
        self._new_name = new_name
        self._known: dict[str, ImportedKernel] = {}

    def name(self, bound: BoundKernel) -> str:
        """The name of a part's kernel in the module."""
        kernel = bound.via.kernel
        known = self._known.get(kernel.target)
        if known is None:
            name = self._new_name(kernel.name)
            known = ImportedKernel(name, kernel, (), bound.digest)
        parts = tuple(dict.fromkeys((*known.parts, bound.part)))
        self._known[kernel.target] = ImportedKernel(
            known.name, kernel, parts, known.digest
        )
        return known.name

    @property
    def imported(self) -> tuple[ImportedKernel, ...]:
        """All of them, in the order in which classes name them."""
        return tuple(self._known.values())


def write_kernel_call(
    name: str,
    kernel: str,
    bound: BoundKernel,
    chosen: KernelCall | None,
    body: Body,
    inputs: Sequence[str],
    weights: Mapping[str, str],
    types: Mapping[str, TensorType],
    text: str,
) -> FunctionText:
    """A function with the interface of the part's `text` that calls `kernel`.

    `chosen` is None for a trusted kernel, which takes tensors by their names. `inputs`
    are the parameters of `text` after `w`, `weights` maps model tensors to fields.
    """
    scalars = dict(chosen.scalars) if chosen is not None else {}
    sizes = [each for each in scalars.values() if isinstance(each, Size)]
    dimensions = sorted({name for size in sizes for name in size.dimensions})
    taken = {*RESERVED, kernel, *dimensions}
    parameters = [free_name(one, taken) for one in inputs]
    expressions = dict(zip(body.inputs, parameters, strict=True))
    expressions |= {value: f"w.{field}" for value, field in weights.items()}
    if chosen is not None:
        tensors = [f"{key}={expressions[value]}" for key, value in chosen.tensors]
        given: dict[str, Value | float | Size] = {**scalars}
        about = f"Stands for the text of `{text}`, with which it was compared."
    else:
        named = dict(by_name(body, inputs, weights))
        tensors = [f"{key}={expressions[named[key]]}" for key in bound.tensors]
        given = {}
        about = (
            f"Trusted: tensors are bound by name. The first call is compared with the\n"
            f"text of `{text}`, for which it stands."
        )
    given |= dict(bound.via.arguments)
    arguments = [
        *tensors,
        *(f"{key}={_literal(value)}" for key, value in given.items()),
    ]
    lines = lay_out("def ", call(name, ["w", *parameters]), ":")
    lines += docstring(
        [f"{bound.part} through the kernel {bound.via.kernel.target}.", "", about], 4
    )
    for dimension in dimensions:
        read = size_source(dimension, body, expressions, types)
        lines.append(f"    {dimension} = {read}")
    made = call(kernel, arguments)
    results = len(body.outputs) if chosen is None else chosen.results
    outputs = tuple(range(results)) if chosen is None else chosen.outputs
    if not outputs:
        lines += [*lay_out("", made, "", 4), "    return ()"]
    elif outputs == tuple(range(results)):
        lines += lay_out("return ", made, "", 4)
    else:
        names = [f"result_{k}" for k in range(results)]
        lines += assigned(names, made, 4)
        lines.append(f"    return {', '.join(names[k] for k in outputs)}")
    return FunctionText(name, tuple(lines), ())


def _literal(value: Value | float | Size) -> str:
    match value:
        case Size():
            return str(value)
        case str():
            return string(value)
        case Fraction():
            return repr(float(value))
    return repr(value)
