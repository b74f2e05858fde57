"""What Dynamo is at while it compiles: frames, guards, its own way for a graph.

Torch says by none of its public functions which frame a backend's graph is of.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NoReturn

import torch
from torch._dynamo.eval_frame import OptimizedModule
from torch._dynamo.exc import ShortenTraceback, TensorifyScalarRestartAnalysis
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._inductor.compile_fx import compile_fx
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import guard_bool, guard_scalar

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.diagnostics.render import render
from dynaflow_dsl.graph.model import SourceLine
from dynaflow_dsl.integrations.dynamo.sources import Scope, outermost_module
from dynaflow_dsl.runtime.model_code import is_model_code
from dynaflow_dsl.trace.lines import source_line

# What Dynamo itself raises where it has to begin a frame anew.
BeginAnew = TensorifyScalarRestartAnalysis

_RESUMED = "torch_dynamo_resume_in_"


@dataclass(frozen=True, slots=True)
class Break:
    """Where and why a graph ends before its function does."""

    reason: str
    place: SourceLine | None

    def __str__(self) -> str:
        return f"{self.reason} ({self.place})" if self.place else self.reason


@dataclass(frozen=True, slots=True)
class Frame:
    """The function that is being compiled.

    `place` is its first line, or where it is torch's own, as that of `nn.Sequential`,
    the line that calls it. `wrapper` says that it is torch's own, around a module's
    `forward`. `resumed` says
    that an earlier graph of it ended in a break, and `broken` is the one in which this
    graph ends.
    """

    scope: Scope
    function: str
    place: SourceLine
    wrapper: bool
    resumed: bool
    broken: Break | None

    def is_all_of(self, model: torch.nn.Module) -> bool:
        """Whether its graph is the whole of a model."""
        own = self.wrapper or any(v is model for v in self.scope.local.values())
        return own and not self.resumed and self.broken is None


_HEADING = "a graph cannot run as its schedule says"


class NotScheduled(ShortenTraceback, DiagnosticError):
    """A graph that cannot run as its schedule says.

    Dynamo shows what a backend raises without its own frames if it is of this kind. It
    adds advice on the debugging of itself to the arguments, which are not shown.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(_HEADING, first_useful_frame=sys._getframe(1))

    def __str__(self) -> str:
        text = render(self.diagnostics).rstrip()
        return f"{_HEADING}\n\n{text}"


def current_frame() -> Frame | None:
    """The function that Dynamo compiles now, None where it compiles none."""
    try:
        translator: Any = InstructionTranslator.current_tx()
    except (AttributeError, IndexError):
        translator = None
    if translator is None:
        return None
    root = translator.output.root_tx
    code = root.f_code
    name, written = _function(root.f_locals, code)
    place = source_line(written.co_filename, written.co_firstlineno)
    if not is_model_code(written.co_filename):
        place = _caller(sys._getframe(1)) or place
    return Frame(
        _scope(root.f_locals, root.f_globals, code),
        name,
        place,
        not is_model_code(code.co_filename),
        code.co_name.startswith(_RESUMED),
        _break(translator.output.compile_subgraph_reason),
    )


def _caller(frame: FrameType | None) -> SourceLine | None:
    """The innermost line of model code that is being run now."""
    while frame is not None:
        if is_model_code(frame.f_code.co_filename):
            return source_line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def _function(local: Mapping[str, object], code: CodeType) -> tuple[str, CodeType]:
    """A function's name and code, those of a method where it wraps one."""
    name = code.co_name
    if name.startswith(_RESUMED):
        name = name.removeprefix(_RESUMED).partition("_at_")[0]
    first = local.get(code.co_varnames[0]) if code.co_varnames else None
    if not is_model_code(code.co_filename):
        first = next(_compiled(sys._getframe(1)), first)
    if isinstance(first, torch.nn.Module):
        kind = type(first)
        method = name if hasattr(kind, name) else "forward"
        name = f"{kind.__name__}.{method}"
        code = getattr(inspect.unwrap(getattr(kind, method)), "__code__", code)
    return name, code


def _scope(
    local: Mapping[str, object], globals_: Mapping[str, object], code: CodeType
) -> Scope:
    names = list(code.co_varnames)
    named = code.co_argcount + code.co_kwonlyargcount
    has_positional = bool(code.co_flags & inspect.CO_VARARGS)
    has_keywords = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return Scope(
        dict(local),
        globals_,
        names[named] if has_positional else None,
        names[named + has_positional] if has_keywords else None,
        _wrapped_parameters(local, code),
    )


def _wrapped_parameters(local: Mapping[str, object], code: CodeType) -> tuple[str, ...]:
    """Parameters of a module's `forward` that a wrapper takes as `*args`.

    Modules of torch's own are compiled through a wrapper that does not even have the
    module as its first argument.
    """
    if code.co_name.startswith(_RESUMED):
        return ()
    module = local.get(code.co_varnames[0]) if code.co_argcount else None
    taken = 1
    if not code.co_argcount and not is_model_code(code.co_filename):
        module, taken = next(_compiled(sys._getframe(1)), None), 0
    if not isinstance(module, torch.nn.Module):
        return ()
    names = [
        item.name
        for item in inspect.signature(module.forward).parameters.values()
        if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
    ]
    return tuple(names[code.co_argcount - taken :])


def _break(reason: Any) -> Break | None:
    if reason is None or not reason.graph_break:
        return None
    place = None
    for summary in reversed(list(reason.user_stack)):
        if is_model_code(summary.filename) and summary.lineno:
            place = source_line(summary.filename, summary.lineno)
            break
    first, *_ = str(reason.reason).strip().splitlines() or ["unknown"]
    return Break(first, place)


def names_of_inputs(graph: GraphModule) -> tuple[str | None, ...]:
    """Dynamo's names of a graph's inputs, None where it has none."""
    found: list[str | None] = []
    for node in graph.graph.nodes:
        if node.op != "placeholder":
            continue
        source = getattr(node, "_dynamo_source", None)
        if source is None and (given := node.meta.get("grapharg")) is not None:
            source = given.source
        name = getattr(source, "name", None)
        # A property since torch 2.12, and a method before.
        found.append(name() if callable(name) else name)
    return tuple(found)


def compiled_model(
    scope: Scope, sources: Iterable[str | None]
) -> torch.nn.Module | None:
    """The model that a graph belongs to, None where it reads of no module.

    That is the one given to `torch.compile`, whose layers may be compiled one by one
    after a graph break; else the outermost one that the graph's names begin with.
    """
    outermost = (outermost_module(scope, source) for source in sources)
    named = [module for module in outermost if module is not None]
    named += [v for v in scope.local.values() if isinstance(v, torch.nn.Module)]
    first = list({id(module): module for module in named}.values())
    for module in _compiled(sys._getframe(1)):
        inside = {id(each) for each in module.modules()}
        if all(id(each) in inside for each in first):
            return module
    for module in first:
        inside = {id(each) for each in module.modules()}
        if all(id(each) in inside for each in first):
            return module
    return None


def _compiled(frame: FrameType | None) -> Iterator[torch.nn.Module]:
    """Modules around a frame that somebody compiled, innermost first."""
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, OptimizedModule):
            yield owner._orig_mod
        elif (
            isinstance(owner, torch.nn.Module) and owner._compiled_call_impl is not None
        ):
            yield owner
        frame = frame.f_back


@dataclass(frozen=True, slots=True)
class OpenAxis:
    """An axis of a tensor that Dynamo is asked to leave open, and the marks that the
    tensor had before."""

    tensor: torch.Tensor
    axis: int
    marks: Mapping[str, object]


def marks_of(tensor: torch.Tensor) -> dict[str, object]:
    """What Dynamo was told of a tensor: attributes, some of them sets of axes."""
    return {
        name: set(value) if isinstance(value, set) else value
        for name, value in vars(tensor).items()
        if "dynamo" in name
    }


def begin_anew(opened: Iterable[OpenAxis], closed: Iterable[OpenAxis] = ()) -> NoReturn:
    """Let Dynamo begin the frame anew, with some axes of its inputs open, and others
    fixed that it left open.

    It remembers what it was asked to leave open, and is to be asked for the contrary.
    Raises what Dynamo itself raises where it learns too late that it has to.
    """
    for each in opened:
        torch._dynamo.maybe_mark_dynamic(each.tensor, each.axis)
    for each in closed:
        torch._dynamo.mark_static(each.tensor, each.axis)
    # Where a size is an operation of the graph, Dynamo notes other places that a break
    # could lie at: what it noted of this attempt holds for the next one no longer.
    translator: Any = InstructionTranslator.current_tx()
    translator.speculation_log.clear()
    reason = "a schedule needs other axes of the inputs open"
    raise BeginAnew(restart_reason=reason)


def hold_equal(sizes: Iterable[int | torch.SymInt]) -> None:
    """Let a graph hold only for calls in which these sizes are one, as now."""
    first, *others = sizes
    for other in others:
        guard_bool(first == other)


def fix_number(traced: Any) -> None:
    """Let a graph hold for the value that a number has now, and no other.

    `traced` is an input of Dynamo's graph: an open integer, or a float in a tensor of
    its own, as Dynamo passes those.
    """
    number = (
        getattr(traced, "item_memo", None)
        if isinstance(traced, torch.Tensor)
        else traced
    )
    if isinstance(number, torch.SymInt | torch.SymFloat):
        guard_scalar(number)


def close_axes(axes: Iterable[OpenAxis]) -> None:
    """Leave the tensors of a caller as they were before `begin_anew`."""
    for each in axes:
        for name in marks_of(each.tensor):
            delattr(each.tensor, name)
        for name, value in each.marks.items():
            setattr(each.tensor, name, set(value) if isinstance(value, set) else value)


def by_inductor(graph: GraphModule, examples: list[Any]) -> Callable[..., Any]:
    """What `torch.compile` does by default with a graph."""
    compiled: Callable[..., Any] = compile_fx(graph, examples)  # type: ignore[assignment]
    return compiled
