"""Which calls of an exported program stay, and which value each read one is.

The same model gives the same graph whatever dtype, device or tracer it was captured
with: checks, calls that change nothing and dead code are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from dynaflow_dsl.trace.export import (
    HigherOrderOperator,
    Node,
    OpOverload,
    bound_arguments,
    has_tag,
    is_number,
    returned_arguments,
    storage_of,
    written_arguments,
)

_CHECKS = frozenset(
    {
        "aten._assert_async",
        "aten._assert_scalar",
        "aten._assert_tensor_metadata",
        "aten._functional_assert_async",
        "aten._functional_assert_scalar",
        "aten.sym_constrain_range",
        "aten.sym_constrain_range_for_size",
    }
)
_DROPOUT = frozenset({"aten.alpha_dropout", "aten.dropout", "aten.feature_dropout"})
_COPIES_OF_CONSTANTS = frozenset({"aten.lift_fresh_copy", "aten.lift_fresh"})


@dataclass(frozen=True, slots=True)
class Normalised:
    """What stays of a program.

    `operations` are the calls that stay, in program order; `read` are the values that
    they and the outputs read. `replaced` says for a value that is left out which value
    its readers read, and `memory` for its storage which one that is: the fake result of
    a call that returns its input may have a storage of its own.
    """

    operations: tuple[Node, ...]
    read: frozenset[Node]
    replaced: dict[Node, Node]
    memory: dict[int, int]

    def value(self, node: Node) -> Node:
        """The value that a read of `node` stands for."""
        return _resolve(self.replaced, node)

    def storage(self, tensor: torch.Tensor) -> int:
        """Identity of the memory that a traced tensor has at run time."""
        key = storage_of(tensor)
        return self.memory.get(key, key)


def normalise(nodes: Iterable[Node]) -> Normalised:
    """Leave out checks, calls that change nothing, and dead code."""
    program = list(nodes)
    replaced: dict[Node, Node] = {}
    calls: list[Node] = []
    for node in program:
        if node.op != "call_function" or _is_check(node) or _is_arithmetic(node):
            continue
        if _is_getitem(node):
            if (same := _written_element(node)) is not None:
                replaced[node] = same
            continue
        calls.append(node)
        if (same := unchanged(node)) is not None:
            replaced[node] = same
            calls.pop()
        elif (same := _written_result(node)) is not None:
            replaced[node] = same
    memory = _memory(replaced)
    operations, read = _without_dead_code(program, calls, replaced, memory)
    return Normalised(operations, read, replaced, memory)


def base_name(operator: object) -> str:
    """Name of an operator without its overload, `aten.add`."""
    return str(operator).rpartition(".")[0]


def is_random(node: Node, operator: OpOverload) -> bool:
    """Whether a call draws random numbers with the arguments it has."""
    if not has_tag(operator, "nondeterministic_seeded"):
        return False
    bound = bound_arguments(node, operator)
    if bound.get("train") is False or bound.get("training") is False:
        return False
    return not ("dropout_p" in bound and bound["dropout_p"] == 0.0)


def tensors_of(value: object) -> list[torch.Tensor]:
    """The tensors of a traced result."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for element in value for tensor in tensors_of(element)]
    return []


def unchanged(node: Node) -> Node | None:
    """The argument that a call returns as it is, or None.

    A cast to the dtype it has, `contiguous` of what is contiguous, a slice of
    everything return their input; so does dropout that is switched off. Only torch's
    own operators are trusted with that.
    """
    operator = node.target
    if not isinstance(operator, OpOverload) or operator.namespace != "aten":
        return None
    name = base_name(operator)
    bound = bound_arguments(node, operator)
    if name in _DROPOUT and (bound["train"] is False or bound["p"] == 0.0):
        return _node(bound["input"])
    if name in _COPIES_OF_CONSTANTS:
        return _node(bound["self"])
    if operator._schema.is_mutable and name != "aten.detach_":
        return None
    result = node.meta.get("val")
    if not isinstance(result, torch.Tensor):
        return None
    for argument in node.all_input_nodes:
        value = argument.meta.get("val")
        if isinstance(value, torch.Tensor) and _same(result, value):
            return argument
    return None


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return storage_of(left) == storage_of(right) and same_layout(left, right)


def same_layout(left: object, right: object) -> bool:
    """Whether two values are tensors of one kind, with the same places in memory."""
    return (
        isinstance(left, torch.Tensor)
        and isinstance(right, torch.Tensor)
        and left.dtype == right.dtype
        and left.ndim == right.ndim
        and left.is_conj() == right.is_conj()
        and left.is_neg() == right.is_neg()
        and _layout(left) == _layout(right)
    )


def _layout(tensor: torch.Tensor) -> tuple[str, ...]:
    # As text: comparing symbolic sizes would add guards to the program.
    return tuple(map(str, (*tensor.shape, *tensor.stride(), tensor.storage_offset())))


def _is_check(node: Node) -> bool:
    return base_name(node.target) in _CHECKS


def _is_arithmetic(node: Node) -> bool:
    """Whether a node computes a number from sizes; such numbers are folded.

    Reading a number out of a tensor is none.
    """
    if not is_number(node.meta.get("val")):
        return False
    return all(
        isinstance(node.target, OpOverload)
        and node.target.namespace == "aten"
        and base_name(node.target).startswith("aten.sym_")
        for argument in node.all_input_nodes
        if isinstance(argument.meta.get("val"), torch.Tensor)
    )


def _is_getitem(node: Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem" and not isinstance(
        node.target, OpOverload
    )


def _written_result(node: Node) -> Node | None:
    """The mutated argument that a call returns as its only result."""
    if not isinstance(node.target, OpOverload) or not node.target._schema.is_mutable:
        return None
    returned = returned_arguments(node, node.target)
    return returned[0] if len(returned) == 1 else None


def _written_element(node: Node) -> Node | None:
    """The mutated argument that one of several results is."""
    call, index = node.args
    if not isinstance(call, Node) or not isinstance(call.target, OpOverload):
        return None
    if not call.target._schema.is_mutable or not isinstance(index, int):
        return None
    returned = returned_arguments(call, call.target)
    return returned[index] if index < len(returned) else None


def _memory(replaced: dict[Node, Node]) -> dict[int, int]:
    """The storages of values that are left out, by those of what is read instead."""
    memory: dict[int, int] = {}
    for node in replaced:
        left = node.meta.get("val")
        kept = _resolve(replaced, node).meta.get("val")
        if isinstance(left, torch.Tensor) and isinstance(kept, torch.Tensor):
            # What is kept may be a view of something that was left out before.
            target = memory.get(storage_of(kept), storage_of(kept))
            if storage_of(left) != target:
                memory[storage_of(left)] = target
    return memory


def _without_dead_code(
    program: list[Node],
    calls: list[Node],
    replaced: dict[Node, Node],
    memory: dict[int, int],
) -> tuple[tuple[Node, ...], frozenset[Node]]:
    """The calls that an output, a write to outside or an unknown effect depends on.

    Beside them stand the values that they read.
    """
    needed: set[Node] = set()
    storages: set[int] = set()

    def storages_of(node: Node) -> set[int]:
        keys = map(storage_of, tensors_of(node.meta.get("val")))
        return {memory.get(key, key) for key in keys}

    def has_effect(node: Node) -> bool:
        return _has_effect(
            node,
            lambda written: any(storages_of(one) & storages for one in written),
        )

    def need(node: Node) -> None:
        node = _resolve(replaced, node)
        needed.add(node)
        storages.update(storages_of(node))
        if _is_getitem(node):
            needed.update(node.all_input_nodes)

    for node in program:
        if node.op == "placeholder":
            storages.update(storages_of(node))
        elif node.op == "output":
            for argument in node.all_input_nodes:
                need(argument)
    live: list[Node] = []
    for node in reversed(calls):
        if node in needed or has_effect(node):
            live.append(node)
            for argument in node.all_input_nodes:
                need(argument)
    return tuple(reversed(live)), frozenset(needed)


def _has_effect(node: Node, matters: Callable[[Iterable[Node]], bool]) -> bool:
    """Whether a call does more than return values.

    A write counts when it `matters`: the memory is an input's or is read later.
    """
    operator = node.target
    if isinstance(operator, HigherOrderOperator) or not isinstance(
        operator, OpOverload
    ):
        return True
    if not operator._schema.returns and not operator._schema.is_mutable:
        return True
    if operator._schema.is_mutable:
        return matters(written_arguments(node, operator))
    return operator.namespace != "aten" and node.is_impure()


def _resolve(replaced: dict[Node, Node], node: Node) -> Node:
    while node in replaced:
        node = replaced[node]
    return node


def _node(value: object) -> Node | None:
    return value if isinstance(value, Node) else None
