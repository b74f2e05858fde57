"""Import the kernels of a schedule, and trace what they stand for."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

import torch

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError, Label, Result
from dynaflow_dsl.graph.model import (
    Argument,
    Graph,
    Size,
    TensorType,
    TracedKernel,
    TrustedKernel,
)
from dynaflow_dsl.resolve.model import Scalar, Value, Via
from dynaflow_dsl.resolve.values import shown
from dynaflow_dsl.runtime.kernel_sources import kernel_digest
from dynaflow_dsl.runtime.kernels import Kernel
from dynaflow_dsl.trace.model import Entry, TraceSpec
from dynaflow_dsl.trace.tracing import trace

_SCALARS: Mapping[object, type] = {
    **{kind: kind for kind in (bool, int, float, str)},
    **{kind.__name__: kind for kind in (bool, int, float, str)},
}
# No model has these numbers: each stands for a parameter that the part's text decides.
_NUMBERS = (
    0.7390851332151607,
    0.5671432904097838,
    0.9159655941772190,
    0.2614972128476428,
)
# Primes, so that no product of sizes is one of them.
_WHOLE_NUMBERS = (1000003, 1000033, 1000037, 1000039, 1000081, 1000099)


@dataclass(frozen=True, slots=True)
class Signature:
    """Tensor and scalar parameters of a reference, in order, with kinds of scalars."""

    tensors: tuple[str, ...]
    scalars: Mapping[str, type]
    defaults: Mapping[str, Scalar]


@dataclass(slots=True)
class KernelReader:
    """Imports every kernel once. `dtype` and `device` are those of the traced model."""

    device: str
    dtype: torch.dtype
    known: dict[str, Kernel] = field(default_factory=dict)

    def tensors(self, via: Via) -> Result[int]:
        """How many tensors a kernel takes, after all of its signature was checked."""
        try:
            kernel = self._kernel(via)
            if kernel.reference is None:
                raise _failed(
                    via,
                    f"'{via.kernel.target}' has no reference",
                    ("give it one: @dynaflow_dsl.runtime.kernel(reference=...)",),
                )
            signature = _signature(kernel.reference)
            _check_signature(kernel, signature, via)
        except DiagnosticError as error:
            return Result(None, error.diagnostics)
        return Result(len(signature.tensors))

    def trusted(self, via: Via) -> Result[TrustedKernel]:
        """The signature of a kernel that is not compared with a reference."""
        try:
            kernel = self._kernel(via)
            signature = _signature(kernel.function)
            _check_options(signature, signature.scalars, via, open_ended=False)
            _check_mutates(kernel, signature, via)
            given = dict(via.arguments)
            for name in signature.scalars:
                if name not in given and name not in signature.defaults:
                    raise _open_scalar(via, name)
        except DiagnosticError as error:
            return Result(None, error.diagnostics)
        return Result(
            TrustedKernel(
                signature.tensors,
                kernel.mutates,
                kernel_digest(kernel),
                kernel.communicator,
                kernel.uses,
                kernel.by_stream,
            )
        )

    def trace(
        self, via: Via, types: Sequence[TensorType], graph: Graph
    ) -> Result[TracedKernel]:
        """Trace a kernel's reference for tensors of these types of a model's graph."""
        try:
            return Result(self._trace(via, types, graph))
        except DiagnosticError as error:
            return Result(None, error.diagnostics)

    def _kernel(self, via: Via) -> Kernel:
        target = via.kernel.target
        if target not in self.known:
            self.known[target] = _load(via)
        return self.known[target]

    def _trace(
        self, via: Via, types: Sequence[TensorType], graph: Graph
    ) -> TracedKernel:
        kernel = self._kernel(via)
        assert kernel.reference is not None
        signature = _signature(kernel.reference)
        scalars, open_scalars = _scalars(signature, via)
        names = dict(zip(signature.tensors, types, strict=True))
        bounds = {name: (low, high) for name, low, high in graph.dimensions}
        axes = {name: _axes(type_, bounds) for name, type_ in names.items()}
        used = {one.name: one for each in axes.values() for one in each if one}
        dims = {
            name: tuple(None if one is None else one.text for one in each)
            for name, each in axes.items()
        }

        def arguments(sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
            return tuple(
                _example(names[name], axes[name], sizes, self.device) for name in names
            )

        spec = TraceSpec(
            model=_Reference(kernel.reference, signature.tensors, scalars).eval(),
            entries={"reference": Entry(arguments)},
            dims=dims,
            dimensions={name: used[name].bounds for name in sorted(used)},
            device=self.device,
            dtype=self.dtype,
        )
        found = trace(spec, via.kernel.target, {})
        if found.value is None:
            found = Result(None, _with_advice(found.diagnostics, open_scalars, via))
        sizes = {name: each.size for name, each in used.items()}
        return TracedKernel(
            _in_sizes_of_the_model(found.unwrap().graphs[0], sizes),
            tuple(open_scalars.items()),
            kernel.mutates,
            kernel_digest(kernel),
            kernel.communicator,
            kernel.uses,
            kernel.by_stream,
        )


class _Reference(torch.nn.Module):
    """A reference as a module, whose `forward` has the names of its tensors."""

    def __init__(
        self,
        function: Callable[..., Any],
        names: Sequence[str],
        scalars: Mapping[str, Scalar],
    ) -> None:
        super().__init__()

        def forward(*tensors: torch.Tensor) -> Any:
            given = dict(zip(names, tensors, strict=True))
            return function(**given, **scalars)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in names]
        forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        self.forward = forward


def _load(via: Via) -> Kernel:
    place, _, name = via.kernel.target.partition(":")
    try:
        module = importlib.import_module(place)
    except (Exception, SystemExit) as error:
        first, *_ = str(error).splitlines() or [""]
        said = f"{type(error).__name__}: {first}".rstrip(": ")
        raise _failed(via, f"importing '{place}' raised {said}") from error
    made = getattr(module, name, None)
    if made is None:
        close = get_close_matches(name, vars(module), 1)
        helps = tuple(f"did you mean '{each}'?" for each in close)
        raise _failed(via, f"'{place}' has no '{name}'", helps)
    if not isinstance(made, Kernel):
        raise _failed(
            via,
            f"'{via.kernel.target}' is a {type(made).__name__}, without a reference",
            ("make it a kernel: @dynaflow_dsl.runtime.kernel(reference=...)",),
        )
    return made


def _failed(via: Via, message: str, helps: tuple[str, ...] = ()) -> DiagnosticError:
    place = Label(via.kernel.span, f"kernel '{via.kernel.name}'")
    return DiagnosticError([Diagnostic("DFS402", message, place, helps=helps)])


def _signature(reference: Callable[..., Any]) -> Signature:
    tensors: list[str] = []
    scalars: dict[str, type] = {}
    defaults: dict[str, Scalar] = {}
    for name, parameter in inspect.signature(reference).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        default = parameter.default
        kind = _SCALARS.get(parameter.annotation)
        if kind is None and isinstance(default, bool | int | float | str):
            kind = type(default)
        if kind is None:
            tensors.append(name)
            continue
        scalars[name] = kind
        if isinstance(default, bool | int | float | str):
            defaults[name] = default
    return Signature(tuple(tensors), scalars, defaults)


def _check_signature(kernel: Kernel, signature: Signature, via: Via) -> None:
    """The kernel takes what its reference takes, and `via` gives what either takes."""
    name = via.kernel.name
    parameters = inspect.signature(kernel.function).parameters
    open_ended = any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD
        for parameter in parameters.values()
    )
    for wanted in (*signature.tensors, *signature.scalars):
        if wanted not in parameters and not open_ended:
            raise _differs(
                via,
                f"kernel '{name}' has no parameter '{wanted}', which its reference has",
            )
    _check_mutates(kernel, signature, via)
    names = [*parameters, *signature.scalars]
    _check_options(signature, names, via, open_ended=open_ended)


def _check_mutates(kernel: Kernel, signature: Signature, via: Via) -> None:
    for given in kernel.mutates or ():
        if given not in signature.tensors:
            said = f"'mutates' of kernel '{via.kernel.name}' names no '{given}'"
            raise _differs(via, said)


def _check_options(
    signature: Signature, names: Iterable[str], via: Via, *, open_ended: bool
) -> None:
    """What `via` gives exists, is no tensor, and is of the kind that is annotated."""
    name = via.kernel.name
    own = [each for each in dict.fromkeys(names) if each not in signature.tensors]
    for given, value in via.arguments:
        if given in signature.tensors or (given not in own and not open_ended):
            close = get_close_matches(given, own, 1)
            helps = (f"it has: {', '.join(own)}",) if own else ()
            if close:
                helps = (f"did you mean '{close[0]}'?",)
            raise _differs(via, f"kernel '{name}' has no option '{given}'", helps)
        kind = signature.scalars.get(given)
        if kind is not None and not _fits(value, kind):
            raise _differs(
                via,
                f"'{given}' of kernel '{name}' is of type {kind.__name__}, and this is "
                f"{shown(value)}",
            )


def _fits(value: Value, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | Fraction) and not isinstance(value, bool)
    return type(value) is kind


def _scalars(
    signature: Signature, via: Via
) -> tuple[dict[str, Scalar], dict[str, int | float | str]]:
    """Values for all scalars of a reference, and which of them are open.

    A whole number or a text with a default has that, since such are mostly options.
    """
    given = dict(via.arguments)
    values: dict[str, Scalar] = {}
    open_scalars: dict[str, int | float | str] = {}
    numbers, whole_numbers = iter(_NUMBERS), iter(_WHOLE_NUMBERS)
    for name, kind in signature.scalars.items():
        if name in given:
            value = given[name]
            assert not isinstance(value, tuple)
            values[name] = float(value) if kind is float else value  # type: ignore[assignment]
            continue
        default = signature.defaults.get(name)
        stand_in: int | float | str | None = None
        if kind is float:
            stand_in = next(numbers, None)
        elif kind is int and default is None:
            stand_in = next(whole_numbers, None)
        elif kind is str and default is None:
            stand_in = f"the {name} of the model"
        if stand_in is not None:
            values[name] = open_scalars[name] = stand_in
        elif default is not None:
            values[name] = default
        else:
            raise _open_scalar(via, name)
    return values, open_scalars


def _with_advice(
    found: Sequence[Diagnostic], open_scalars: Mapping[str, object], via: Via
) -> tuple[Diagnostic, ...]:
    """A number that stands for any other may be what a reference fails with."""
    names = [name for name, value in open_scalars.items() if isinstance(value, int)]
    if not names:
        return tuple(found)
    given = ", ".join(f"{name} = ..." for name in names)
    way_out = f"give it what the model has there: via {via.kernel.name}({given})"
    return tuple(replace(each, helps=(*each.helps, way_out)) for each in found)


def _open_scalar(via: Via, name: str) -> DiagnosticError:
    return _differs(
        via,
        f"nothing says what '{name}' of kernel '{via.kernel.name}' is",
        (f"give it: via {via.kernel.name}({name} = ...)",),
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis whose size varies: a dimension of the model, a multiple, or a product.

    To the reference a product is a dimension of its own, of this name.
    """

    factor: int
    name: str
    size: Size
    bounds: tuple[int, int | None]

    @property
    def text(self) -> str:
        return self.name if self.factor == 1 else f"{self.factor} * {self.name}"


def _axes(
    type_: TensorType, bounds: Mapping[str, tuple[int, int | None]]
) -> tuple[_Axis | None, ...]:
    """The axes of a tensor; None where the size is always the same."""
    axes: list[_Axis | None] = []
    for size in type_.shape:
        if not size.dimensions:
            axes.append(None)
            continue
        lows, highs = zip(*(bounds[each] for each in size.dimensions), strict=True)
        high = None if None in highs else math.prod(highs)
        name = "_times_".join(size.dimensions)
        product = Size(1, size.dimensions)
        axes.append(_Axis(size.factor, name, product, (math.prod(lows), high)))
    return tuple(axes)


def _example(
    type_: TensorType,
    axes: Sequence[_Axis | None],
    sizes: Mapping[str, int],
    device: str,
) -> torch.Tensor:
    shape = [
        size.factor * (1 if axis is None else sizes[axis.name])
        for size, axis in zip(type_.shape, axes, strict=True)
    ]
    return torch.empty(shape, dtype=getattr(torch, type_.dtype), device=device)


def _in_sizes_of_the_model(graph: Graph, sizes: Mapping[str, Size]) -> Graph:
    """Arguments of a reference's operations in the dimensions of the model."""

    def renamed(argument: Argument) -> Argument:
        match argument:
            case Size(factor, dimensions):
                product = Size(factor)
                for name in dimensions:
                    product *= sizes[name]
                return product
            case tuple():
                return tuple(map(renamed, argument))
        return argument

    return replace(
        graph,
        operations=tuple(
            replace(
                each,
                arguments=tuple(map(renamed, each.arguments)),
                keywords=tuple((key, renamed(v)) for key, v in each.keywords),
            )
            for each in graph.operations
        ),
    )


def _differs(via: Via, message: str, helps: tuple[str, ...] = ()) -> DiagnosticError:
    place = Label(via.span, "this kernel")
    return DiagnosticError([Diagnostic("DFS401", message, place, helps=helps)])
