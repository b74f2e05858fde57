"""Every call into torch that is not plainly public, for the tracing room.

The rest of the room reads exported programs through these functions, so that a change
in torch has one place to be followed.
"""

from __future__ import annotations

import dataclasses
import io
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass
from math import prod
from traceback import StackSummary
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.meta_utils import MetaTensorDescriber
from torch.fx import GraphModule, Node
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, expect_true
from torch.fx.proxy import TracerBase
from torch.utils._python_dispatch import (
    is_traceable_wrapper_subclass as wraps_tensors,
)

from dynaflow_dsl.marks import recording
from dynaflow_dsl.runtime.model_code import is_model_code
from dynaflow_dsl.trace.contexts import Context, ContextRecorder
from dynaflow_dsl.trace.replacing import replaced
from dynaflow_dsl.trace.restoring import left_as_it_was

__all__ = [
    "Decision",
    "ExportFailure",
    "Exported",
    "HigherOrderOperator",
    "Node",
    "OpOverload",
    "bound_arguments",
    "export_module",
    "factor_size",
    "first_stack",
    "has_tag",
    "is_number",
    "returned_arguments",
    "storage_of",
    "wraps_tensors",
    "written_arguments",
]

_CALL_OF_MODULE = torch.nn.Module._call_impl.__code__
# The ways of Python code to ask: `if`, and `torch._check`.
_QUESTIONS = (torch.SymBool.__bool__.__code__, expect_true.__code__)


@dataclass(frozen=True, slots=True)
class Decision:
    """A question about sizes that code outside of operators asked while it was traced.

    `condition` is a sympy expression and `answer` what it was taken to be; `place` is
    the file and line of model code that asked.
    """

    condition: Any
    answer: Any
    place: tuple[str, int] | None

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols that the condition is about."""
        return frozenset(symbol.name for symbol in self.condition.free_symbols)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the answer is right for these sizes, by symbol."""
        numbers = {symbol: sizes[symbol.name] for symbol in self.condition.free_symbols}
        return bool(self.condition.subs(numbers) == self.answer)


@dataclass(frozen=True, slots=True)
class Exported:
    """A program, what was decided by sizes while it was traced, and in which contexts
    its calls were made (see `context_of`).
    """

    program: torch.export.ExportedProgram
    decisions: tuple[Decision, ...]
    contexts: tuple[Context, ...]


class ExportFailure(Exception):
    """Torch could not export a module.

    `reason` is what it raised; `fixed_at` is the file and line of model code that gave
    a dynamic size one value, if any did.
    """

    def __init__(
        self, reason: Exception, fixed_at: tuple[str, int] | None = None
    ) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.fixed_at = fixed_at


def export_module(
    module: torch.nn.Module,
    arguments: tuple[Any, ...],
    dynamic_shapes: tuple[Any, ...],
    device: str,
) -> Exported:
    """Flat ATen program of a module, without decompositions and without gradients.

    Meta tensors are traced as if they were on `device`, so that a model that was made
    without memory gives the same program as a real one. The module is left as it was.
    Raises ExportFailure.
    """
    fixed: list[tuple[str, int]] = []
    decisions: dict[Decision, None] = {}
    with ExitStack() as stack:
        recorder = ContextRecorder(
            stack.enter_context(recording()), export_module.__code__
        )
        stack.enter_context(left_as_it_was(module))
        stack.enter_context(torch.no_grad())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(_quiet())
        stack.enter_context(_meta_as(torch.device(device)))
        stack.enter_context(
            replaced(
                TracerBase,
                "_filter_traceback_frames",
                lambda _, frames: _innermost_line(frames, recorder),
            )
        )
        stack.enter_context(_without_idle_autocasts())
        stack.enter_context(_recording_fixed_sizes(fixed))
        stack.enter_context(_recording_decisions(decisions))
        # A failed export prints the graph it had so far.
        stack.enter_context(redirect_stderr(io.StringIO()))
        try:
            program = torch.export.export(
                module, arguments, dynamic_shapes=dynamic_shapes, strict=False
            )
        except Exception as error:
            raise ExportFailure(error, fixed[0] if fixed else None) from error
    return Exported(program, tuple(decisions), recorder.contexts())


@contextmanager
def _meta_as(device: torch.device) -> Iterator[None]:
    """While tracing, describe tensors on the meta device as tensors on `device`."""
    describe = MetaTensorDescriber.describe_tensor

    def describe_tensor(
        self: MetaTensorDescriber, tensor: torch.Tensor, **options: bool
    ) -> Any:
        description = describe(self, tensor, **options)
        if description.device.type == "meta":
            return dataclasses.replace(description, device=device)
        return description

    with replaced(MetaTensorDescriber, "describe_tensor", describe_tensor):
        yield


@contextmanager
def _without_idle_autocasts() -> Iterator[None]:
    """Let `torch.autocast(enabled=False)` be nothing where nothing is cast around it.

    Torch would make a graph of its own of what is in it.
    """
    enter: Any = torch.autocast.__enter__
    leave: Any = torch.autocast.__exit__
    idle: list[bool] = []

    def enter_autocast(self: torch.autocast) -> Any:
        idle.append(not self._enabled and not torch.is_autocast_enabled(self.device))
        return self if idle[-1] else enter(self)

    def leave_autocast(self: torch.autocast, *raised: Any) -> Any:
        # Those entered before are around this one, and are left after it.
        return False if idle.pop() else leave(self, *raised)

    with (
        replaced(torch.autocast, "__enter__", enter_autocast),
        replaced(torch.autocast, "__exit__", leave_autocast),
    ):
        yield


def _innermost_line(stack: StackSummary, recorder: ContextRecorder) -> StackSummary:
    """The frame of a call that says most, the innermost one in model code, after one
    that names the call's context.

    Torch would keep methods called `forward` only, so that a line in a helper function
    shows as the line that calls it.
    """
    for frame in reversed(stack):
        if frame.filename == __file__:
            break
        if is_model_code(frame.filename):
            return StackSummary.from_list([recorder.frame(), frame])
    return StackSummary.from_list([])


@contextmanager
def _recording_fixed_sizes(places: list[tuple[str, int]]) -> Iterator[None]:
    """Collect the lines of model code where a dynamic size is given one value."""
    replace = ShapeEnv._set_replacement

    def set_replacement(self: ShapeEnv, symbol: Any, value: Any, message: str) -> None:
        frame: FrameType | None = sys._getframe(1)
        while value.is_number and frame:
            if is_model_code(frame.f_code.co_filename):
                places.append((frame.f_code.co_filename, frame.f_lineno))
                break
            frame = frame.f_back
        replace(self, symbol, value, message)

    with replaced(ShapeEnv, "_set_replacement", set_replacement):
        yield


@contextmanager
def _recording_decisions(decisions: dict[Decision, None]) -> Iterator[None]:
    """Collect what the module's code asks about sizes, with the lines that ask."""
    evaluate = ShapeEnv.evaluate_sym_node

    def evaluate_sym_node(
        self: ShapeEnv, node: SymNode, *options: Any, **more: Any
    ) -> Any:
        answer = evaluate(self, node, *options, **more)
        if node.expr.free_symbols:
            asked, place = _asked_by_module(sys._getframe(1))
            if asked:
                decisions.setdefault(Decision(node.expr, answer, place))
        return answer

    with replaced(ShapeEnv, "evaluate_sym_node", evaluate_sym_node):
        yield


def _asked_by_module(frame: FrameType | None) -> tuple[bool, tuple[str, int] | None]:
    """Whether the code of a module asks for an answer, and its line of model code.

    Operators ask on their own account, also those that are left out where they have
    nothing to do, as `contiguous`: their results follow the sizes.
    """
    asked, place = False, None
    while frame and frame.f_code is not _CALL_OF_MODULE:
        code = frame.f_code
        if code.co_name == "__torch_dispatch__":
            return False, None
        if code in _QUESTIONS:
            asked = True
        elif place is None and is_model_code(code.co_filename):
            place = code.co_filename, frame.f_lineno
        if place and not asked:
            return False, None
        frame = frame.f_back
    return asked and frame is not None, place


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's log below errors: what went wrong is said by our diagnostics."""
    names = [name for name in logging.root.manager.loggerDict if name[:6] == "torch."]
    loggers = [logging.getLogger(name) for name in ("torch", *names)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def storage_of(tensor: torch.Tensor) -> int:
    """Identity of a tensor's memory, valid while the tensor lives."""
    return int(tensor.untyped_storage()._cdata)


def is_mapped(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one row of others, inside of a function that is mapped."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def first_stack(node: Node) -> str | None:
    """The stack trace of a call, or of the first call of a graph that it calls."""
    if stack := node.meta.get("stack_trace"):
        return str(stack)
    for argument in node.all_input_nodes:
        if argument.op == "get_attr":
            inner = getattr(node.graph.owning_module, str(argument.target), None)
            for call in inner.graph.nodes if isinstance(inner, GraphModule) else ():
                if stack := call.meta.get("stack_trace"):
                    return str(stack)
    return None


def is_number(value: object) -> bool:
    """Whether a traced value is a number computed from sizes or data, not a tensor."""
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


_Product: TypeAlias = tuple[int, tuple[str, ...]]


def factor_size(size: int | torch.SymInt) -> _Product | None:
    """A size as a factor and the symbols of a product, None for anything else.

    Symbols are taken to be one or more, which decides most minima and maxima.
    """
    return (size, ()) if isinstance(size, int) else _factor(size.node.expr)


def _factor(expression: Any) -> _Product | None:
    if expression.is_Integer:
        return int(expression), ()
    if expression.is_Symbol:
        return 1, (expression.name,)
    parts = [_factor(part) for part in expression.args]
    if not parts or None in parts:
        return None
    products = [part for part in parts if part is not None]
    if expression.is_Mul:
        symbols = sorted(name for _, names in products for name in names)
        return prod(factor for factor, _ in products), tuple(symbols)
    if expression.is_Pow and not products[1][1]:
        (factor, names), (power, _) = products
        return (factor**power, tuple(sorted(names * power))) if power > 0 else None
    smallest = type(expression).__name__ == "Min"
    if smallest or type(expression).__name__ == "Max":
        for product in products:
            others = [other for other in products if other != product]
            if all(
                _never_above(product, other)
                if smallest
                else _never_above(other, product)
                for other in others
            ):
                return product
    return None


def _never_above(left: _Product, right: _Product) -> bool:
    """Whether a product is at most another, whatever its symbols are from one on."""
    missing = Counter(left[1]) - Counter(right[1])
    return 0 <= left[0] <= right[0] and not missing


def has_tag(operator: OpOverload, name: str) -> bool:
    """Whether an operator carries the tag of this name; False for unknown tags."""
    return getattr(torch.Tag, name, None) in operator.tags


def written_arguments(node: Node, operator: OpOverload) -> list[Node]:
    """The arguments whose memory a call writes, by the operator's schema."""
    written: list[Node] = []
    for position, argument in enumerate(operator._schema.arguments):
        alias = argument.alias_info
        if alias is None or not alias.is_write:
            continue
        value = _argument(node, position, argument.name)
        values = value if isinstance(value, list | tuple) else [value]
        written.extend(value for value in values if isinstance(value, Node))
    return written


def returned_arguments(node: Node, operator: OpOverload) -> list[Node | None]:
    """For each result of a call, the written argument that it is, if it is one."""
    arguments = operator._schema.arguments
    returned: list[Node | None] = []
    for result in operator._schema.returns:
        match: Node | None = None
        if result.alias_info is not None and result.alias_info.is_write:
            for position, argument in enumerate(arguments):
                alias = argument.alias_info
                if alias is None or not alias.is_write:
                    continue
                value = _argument(node, position, argument.name)
                if alias.before_set & result.alias_info.before_set and isinstance(
                    value, Node
                ):
                    match = value
        returned.append(match)
    return returned


def bound_arguments(node: Node, operator: OpOverload) -> Mapping[str, object]:
    """Arguments of a call by name, defaults filled in."""
    bound: dict[str, object] = {}
    for position, argument in enumerate(operator._schema.arguments):
        if position < len(node.args):
            bound[argument.name] = node.args[position]
        else:
            bound[argument.name] = node.kwargs.get(
                argument.name, argument.default_value
            )
    return bound


def _argument(node: Node, position: int, name: str) -> object:
    return node.args[position] if position < len(node.args) else node.kwargs.get(name)
