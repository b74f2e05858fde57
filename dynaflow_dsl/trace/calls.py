"""Calls of an exported program to operations."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch

from dynaflow_dsl.graph.model import (
    Argument,
    Constant,
    Operation,
    Reference,
    SourceLine,
    Value,
)
from dynaflow_dsl.trace.aliases import may_alias
from dynaflow_dsl.trace.arguments import lowest_sizes
from dynaflow_dsl.trace.contexts import context_of
from dynaflow_dsl.trace.export import (
    HigherOrderOperator,
    Node,
    OpOverload,
    bound_arguments,
    first_stack,
    has_tag,
    is_mapped,
    is_number,
    written_arguments,
)
from dynaflow_dsl.trace.failures import refuse
from dynaflow_dsl.trace.lines import line_of_stack
from dynaflow_dsl.trace.normalise import base_name, is_random, tensors_of
from dynaflow_dsl.trace.program import Program, refuse_size, without_root
from dynaflow_dsl.trace.sizes import UnnamedSize

_CALL_NUMBER = re.compile(r"@\d+")
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"

# What to do instead of calls that take another graph.
_WITHOUT_A_GRAPH = {
    "cond": "compute both branches and choose with torch.where",
    "flex_attention": "use scaled_dot_product_attention, with a mask where one is "
    "needed, or wrap the call in an operator of your own",
}


def check_calls(nodes: Iterable[Node]) -> None:
    """Refuse calls that no graph can hold, whatever else is wrong with a program.

    Raises DiagnosticError.
    """
    calls = [node for node in nodes if node.op == "call_function"]
    for node in calls:
        if isinstance(node.target, HigherOrderOperator):
            _operator(node, line_of_stack(first_stack(node)))
    for node in calls:
        if any(map(is_mapped, tensors_of(node.meta.get("val")))):
            refuse(
                "the model maps a function over an axis (torch.vmap), which leaves no "
                "operations to be scheduled",
                line_of_stack(first_stack(node)),
                helps=("write the function for all of the axis at once",),
            )


def operation(state: Program, node: Node) -> Operation:
    """The operation of a call; raises DiagnosticError for what a graph cannot hold."""
    stack = first_stack(node)
    source = line_of_stack(stack)
    context = context_of(stack, state.contexts)
    operator = _operator(node, source)
    written = written_arguments(node, operator)
    writes = tuple(dict.fromkeys(state.name(item) for item in written))
    for item in written:
        for tensor in tensors_of(item.meta["val"]):
            if state.normalised.storage(tensor) in state.constants:
                refuse(
                    f"{operator} writes into a constant that was made while tracing",
                    source,
                    helps=("make the tensor with torch.full or torch.zeros",),
                )
    arguments = tuple(_argument(state, node, value) for value in node.args)
    keywords = tuple(
        (name, _argument(state, node, value)) for name, value in node.kwargs.items()
    )
    results, multiple = _results(state, node, operator)
    read = {
        state.normalised.storage(tensor)
        for argument in node.all_input_nodes
        for tensor in tensors_of(argument.meta.get("val"))
    }
    made = [
        state.normalised.storage(tensor) for tensor in tensors_of(node.meta.get("val"))
    ]
    return Operation(
        name=node.name,
        operator=str(operator),
        arguments=arguments,
        keywords=keywords,
        results=results,
        multiple=multiple,
        writes=writes,
        view=not writes and bool(made) and all(key in read for key in made),
        tags=tuple(
            name
            for name, holds in (
                ("pointwise", has_tag(operator, "pointwise")),
                ("random", is_random(node, operator)),
                ("host", _waits_on_host(node, operator)),
            )
            if holds
        ),
        module=_module(node, state.spec.root),
        source=source,
        functions=context.functions,
        marks=context.marks,
    )


# Tags of operators that a CUDA graph cannot hold.
_ON_HOST = ("data_dependent_output", "cudagraph_unsafe")
_PUT = frozenset({"aten.index_put", "aten.index_put_", "aten._unsafe_index_put"})
_MASKS = (torch.bool, torch.uint8)


def _waits_on_host(node: Node, operator: OpOverload) -> bool:
    """Whether the host waits in a call, by what its operator or its arguments are.

    Where a mask says which rows are written, CUDA counts them first. A single number
    may be filled in without.
    """
    if any(has_tag(operator, name) for name in _ON_HOST):
        return True
    if base_name(operator) not in _PUT:
        return False
    bound = bound_arguments(node, operator)
    indices = tensors_of(_traced(bound["indices"]))
    (values,) = tensors_of(_traced(bound["values"]))
    # Sizes that are symbols are not compared: that would make them numbers.
    number = all(isinstance(size, int) and size == 1 for size in values.shape)
    return not number and any(one.dtype in _MASKS for one in indices)


def _traced(value: object) -> object:
    """Nodes as what they gave while they were traced."""
    if isinstance(value, list | tuple):
        return [_traced(one) for one in value]
    return value.meta.get("val") if isinstance(value, Node) else value


def _operator(node: Node, source: SourceLine | None) -> OpOverload:
    """The operator of a call, refused where a graph cannot hold it."""
    operator = node.target
    if isinstance(operator, HigherOrderOperator):
        name = str(operator)
        if name == "wrap_with_set_grad_enabled":
            refuse(
                "the model switches gradients on or off while it runs",
                source,
                helps=("take torch.enable_grad() and torch.no_grad() out of forward",),
            )
        if name == "wrap_with_autocast":
            refuse(
                "the model switches torch.autocast on while it runs",
                source,
                helps=(
                    "give the model its dtype, model.to(torch.bfloat16), and take "
                    "torch.autocast out of forward; one with enabled=False may stay",
                ),
            )
        refuse(
            f"the model calls another graph inside its own ({name}), which cannot be "
            "scheduled",
            source,
            helps=(_WITHOUT_A_GRAPH.get(name, "write it as operations of one graph"),),
        )
    if not isinstance(operator, OpOverload):
        refuse(f"the traced program calls {operator}, which is no operator", source)
    if base_name(operator) in ("aten.item", "aten._local_scalar_dense"):
        refuse(
            "the model reads a number out of a tensor, which stops the device",
            source,
            helps=("keep the number in a tensor (drop '.item()', 'int()', 'float()')",),
        )
    if has_tag(operator, "inplace_view"):
        refuse(
            f"{operator} changes a tensor's shape in place",
            source,
            helps=("call the operator without the underscore",),
        )
    if is_random(node, operator):
        refuse(
            f"the model draws random numbers ({operator}): its pieces would not draw "
            "the numbers that the whole draws",
            source,
            helps=("switch dropout off with model.eval(), or pass the numbers in",),
        )
    return operator


def _results(
    state: Program, node: Node, operator: OpOverload
) -> tuple[tuple[Value | None, ...], bool]:
    traced = node.meta.get("val")
    _check_device(state, node, operator)
    if traced is None or node in state.normalised.replaced:
        return (), False
    if isinstance(traced, torch.Tensor):
        smallest = lowest_sizes(state.spec)
        source = may_alias(
            node, operator, state.sizes, state.normalised.storage, smallest
        )
        return (state.value(node, traced, source),), False
    if not isinstance(traced, list | tuple):
        refuse(
            f"{operator} returns a number computed from data",
            line_of_stack(node.meta.get("stack_trace")),
        )
    readers: dict[int, Node] = {}
    for user in node.users:
        index = user.args[1] if user.op == "call_function" else None
        if isinstance(index, int) and user in state.normalised.read:
            first = readers.setdefault(index, user)
            state.names[user] = first.name
    results: list[Value | None] = []
    for index, element in enumerate(traced):
        reader = readers.get(index)
        tensor = isinstance(element, torch.Tensor)
        results.append(
            state.value(reader, element, None)
            if reader is not None and tensor
            else None
        )
    return tuple(results), True


def _argument(state: Program, node: Node, value: object) -> Argument:
    match value:
        case Node():
            return _read(state, node, value)
        case None | bool() | int() | float() | str():
            return value
        case torch.dtype():
            return Constant("dtype", str(value).removeprefix("torch."))
        case torch.layout():
            return Constant("layout", str(value).removeprefix("torch."))
        case torch.memory_format():
            return Constant("memory_format", str(value).removeprefix("torch."))
        case torch.device():
            return _device(state, node, value)
        case list() | tuple():
            return tuple(_argument(state, node, element) for element in value)
    if isinstance(name := getattr(value, "group_name", None), str):
        return name
    return refuse(
        f"{node.target} takes an argument that cannot be written down: "
        f"{type(value).__name__}",
        line_of_stack(node.meta.get("stack_trace")),
    )


def _read(state: Program, node: Node, argument: Node) -> Argument:
    traced = argument.meta.get("val")
    if is_number(traced):
        if not isinstance(traced, torch.SymInt):
            refuse_size(str(traced), node)
        try:
            size = state.sizes.size(traced)
        except UnnamedSize as unnamed:
            refuse_size(str(unnamed), node)
        return size if size.dimensions else size.factor
    if isinstance(traced, int):
        return traced
    return Reference(state.name(argument))


def _check_device(state: Program, node: Node, operator: OpOverload) -> None:
    """Results lie on the target's device; single numbers may lie on the CPU."""
    wanted = torch.device(state.spec.device).type
    for tensor in tensors_of(node.meta.get("val")):
        if tensor.device.type not in (wanted, "meta") and tensor.ndim > 0:
            refuse(
                f"{operator} makes a tensor on {tensor.device.type}, but the model is "
                f"traced for {wanted}",
                line_of_stack(node.meta.get("stack_trace")),
                helps=("make it on the device of another tensor: device=x.device",),
            )


def _device(state: Program, node: Node, device: torch.device) -> Constant:
    if device.type != torch.device(state.spec.device).type:
        refuse(
            f"the model puts a tensor on {device.type}, but it is traced for "
            f"{state.spec.device}",
            line_of_stack(node.meta.get("stack_trace")),
            helps=("make it on the device of another tensor: 'device=x.device'",),
        )
    return Constant("device", "device")


def _module(node: Node, root: str) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values() if path != _NO_MODULE]
    if not paths:
        return ""
    return without_root(_CALL_NUMBER.sub("", paths[-1]), root, outside="")
