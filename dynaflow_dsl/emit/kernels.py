"""Functions that call a kernel in place of a part's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dynaflow_dsl.bind.model import Body, BoundKernel, KernelCall
from dynaflow_dsl.emit.functions import FunctionText
from dynaflow_dsl.emit.layout import (
    Expression,
    assigned,
    call,
    docstring,
    lay_out,
    string,
)
from dynaflow_dsl.plan.names import BUILTINS, RESERVED, identifier
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
    chosen: KernelCall,
    body: Body,
    inputs: Sequence[str],
    weights: Mapping[str, str],
    text: str,
) -> FunctionText:
    """A function with the interface of the part's `text` that calls `kernel`.

    `inputs` are names of the program's inputs, `weights` maps model tensors to fields.
    """
    taken = {*RESERVED, "device", kernel}
    expressions: dict[str, str] = {}
    parameters = ["w"]
    for value, wanted in zip(body.inputs, inputs, strict=True):
        local, number = identifier(wanted), 2
        while local in taken or local in BUILTINS:
            local, number = f"{identifier(wanted)}_{number}", number + 1
        taken.add(local)
        parameters.append(local)
        expressions[value] = local
    expressions |= {value: f"w.{field_}" for value, field_ in weights.items()}
    arguments: list[Expression] = [
        f"{parameter}={expressions[value]}" for parameter, value in chosen.tensors
    ]
    given: dict[str, Value | float] = {**dict(chosen.scalars)}
    given |= dict(bound.via.arguments)
    arguments += [f"{key}={_literal(value)}" for key, value in given.items()]
    lines = lay_out("def ", call(name, parameters), ":")
    lines += docstring(
        [
            f"{bound.part} through the kernel {bound.via.kernel.target}.",
            "",
            f"Stands for the text of `{text}`, with which it was compared.",
        ],
        4,
    )
    made = call(kernel, arguments)
    if not chosen.outputs:
        lines += [*lay_out("", made, "", 4), "    return ()"]
    elif chosen.outputs == tuple(range(chosen.results)):
        lines += lay_out("return ", made, "", 4)
    else:
        results = [f"result_{k}" for k in range(chosen.results)]
        lines += assigned(results, made, 4)
        returned = ", ".join(results[k] for k in chosen.outputs)
        lines.append(f"    return {returned}")
    return FunctionText(name, tuple(lines), ())


def _literal(value: Value | float) -> str:
    match value:
        case str():
            return string(value)
        case Fraction():
            return repr(float(value))
    return repr(value)
