"""Functions that call a kernel in place of a part's text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dynaflow_dsl.bind.model import Body, BoundKernel, KernelCall
from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.emit.functions import FunctionText
from dynaflow_dsl.emit.layout import (
    assigned,
    call,
    docstring,
    lay_out,
    string,
)
from dynaflow_dsl.plan.names import BUILTINS, RESERVED, identifier
from dynaflow_dsl.resolve.model import Kernel, Part, Value


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


def _spelled(
    kernel: str, body: Body, inputs: Sequence[str], weights: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The parameters of a function, and what each tensor of the program is in it."""
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
    return parameters, expressions


def write_kernel_call(
    name: str,
    kernel: str,
    bound: BoundKernel,
    chosen: KernelCall | None,
    body: Body,
    inputs: Sequence[str],
    weights: Mapping[str, str],
    text: str,
) -> FunctionText:
    """A function with the interface of the part's `text` that calls `kernel`.

    `chosen` is None for a trusted kernel, which takes tensors by their names. `inputs`
    are names of the program's inputs, `weights` maps model tensors to fields.
    """
    parameters, expressions = _spelled(kernel, body, inputs, weights)
    if chosen is not None:
        tensors = [f"{key}={expressions[value]}" for key, value in chosen.tensors]
        given: dict[str, Value | float] = {**dict(chosen.scalars)}
        about = f"Stands for the text of `{text}`, with which it was compared."
    else:
        named = {each.removeprefix("w."): each for each in expressions.values()}
        tensors = [f"{key}={named[key]}" for key in bound.tensors]
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
    lines = lay_out("def ", call(name, parameters), ":")
    lines += docstring(
        [f"{bound.part} through the kernel {bound.via.kernel.target}.", "", about], 4
    )
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


def check_names(
    part: Part,
    bound: BoundKernel,
    body: Body,
    inputs: Sequence[str],
    weights: Mapping[str, str],
) -> Iterator[Diagnostic]:
    """A trusted kernel takes every tensor of its part, by its name."""
    assert part.via is not None
    _, expressions = _spelled(bound.via.kernel.name, body, inputs, weights)
    named = {text.removeprefix("w."): value for value, text in expressions.items()}
    missing = [name for name in bound.tensors if name not in named]
    left = [name for name in named if name not in bound.tensors]
    if missing or left or len(named) < len(expressions):
        takes, has = ", ".join(bound.tensors), ", ".join(named)
        yield Diagnostic(
            "DFS401",
            f"trusted kernel '{bound.via.kernel.name}' does not take the tensors of "
            f"part {part.name}",
            Label(part.via.span, "bound by name"),
            notes=(f"the kernel takes: {takes}", f"the part has: {has}"),
            helps=("name the parameters like the part's tensors",),
        )
        return
    written = {name for operation in body.operations for name in operation.writes}
    for name in bound.mutates:
        if named[name] not in written:
            yield Diagnostic(
                "DFS401",
                f"trusted kernel '{bound.via.kernel.name}' writes '{name}', and part "
                f"{part.name} does not",
                Label(part.via.span, "others would read what it changed"),
                helps=("return a new tensor instead",),
            )


def _literal(value: Value | float) -> str:
    match value:
        case str():
            return string(value)
        case Fraction():
            return repr(float(value))
    return repr(value)
