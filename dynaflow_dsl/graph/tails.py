"""Whether a copy of a value costs nothing where its last operation makes it.

Inductor writes what a pointwise operation or one of these reductions makes straight to
where it is copied. A matrix product runs as a library's kernel, and the copy is another
one; so it is with what is added to a product of two matrices, which becomes part of
that kernel (`addmm`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynaflow_dsl.graph.model import Operation, Reference, TensorType
from dynaflow_dsl.graph.operands import read_values
from dynaflow_dsl.graph.rowwise.pointwise import NOT_POINTWISE

# Reductions, and copies to another dtype, whose results are written as pointwise ones.
_WRITTEN_ALIKE = frozenset(
    {
        "aten._softmax.default",
        "aten._to_copy.default",
        "aten.layer_norm.default",
        "aten.mean.dim",
        "aten.softmax.int",
        "aten.sum.dim_IntList",
        "aten.to.dtype",
    }
)
_SUMS = frozenset({"aten.add.Tensor", "aten.sub.Tensor"})
_PRODUCTS = frozenset({"aten.linear.default", "aten.matmul.default", "aten.mm.default"})


def takes_a_copy(
    value: str, operations: Sequence[Operation], types: Mapping[str, TensorType]
) -> bool:
    """Whether the operation that makes a value of a program writes a copy for free.

    Views of what it makes are looked through. What the program only hands on is made
    elsewhere.
    """
    makers = {
        result.name: operation
        for operation in operations
        for result in operation.results
        if result is not None
    }
    maker = makers.get(value)
    while maker is not None and maker.view:
        value = read_values(maker)[0]
        maker = makers.get(value)
    if maker is None or maker.multiple:
        return False
    if maker.operator in _WRITTEN_ALIKE:
        return True
    pointwise = "pointwise" in maker.tags and maker.operator not in NOT_POINTWISE
    return pointwise and not _joins_a_product(maker, makers, types)


def _joins_a_product(
    operation: Operation,
    makers: Mapping[str, Operation],
    types: Mapping[str, TensorType],
) -> bool:
    """Whether a sum has a product of matrices (two axes, no batch of them) in it."""
    return operation.operator in _SUMS and any(
        isinstance(argument, Reference)
        and len(types[argument.name].shape) == 2
        and (made := makers.get(argument.name)) is not None
        and made.operator in _PRODUCTS
        for argument in operation.arguments
    )
