"""Matrix products."""

from __future__ import annotations

from string import ascii_letters

from dynaflow_dsl.graph.model import Size
from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    Rows,
    Rule,
    Shared,
    Tensor,
    only_rows,
)
from dynaflow_dsl.graph.rowwise.pointwise import align
from dynaflow_dsl.graph.rowwise.sizes import ONE

_CONTRACTS = "adds up over the split dimension in a matrix product"


def linear(call: Call) -> Fact:
    """The last axis of the input times a weight."""
    source, rows = call.tensor(0, "input"), only_rows(call.tensor(0, "input"))
    for other in (call.tensor(1, "weight"), call.optional(2, "bias")):
        if other is not None and only_rows(other) is not None:
            raise RefusedError("a weight of the linear layer is split")
    if rows is None:
        return Shared()
    if rows.axis == source.rank - 1:
        raise RefusedError(_CONTRACTS)
    return rows


def multiply(left: Tensor, right: Tensor) -> Fact:
    """Return how a matrix product is split, leading axes broadcast.

    Places are counted from the back: -2 are the rows and -1 the columns of a matrix,
    and a vector is a matrix with one row (left) or one column (right).
    """
    one = _from_back(left, only_rows(left), left.rank == 1, -1)
    other = _from_back(right, only_rows(right), False, -2)
    # A vector on the right is one column: its only axis is the contracted one.
    if right.rank == 1 and other is not None:
        raise RefusedError(_CONTRACTS)
    if one is None and other is None:
        return Shared()
    if one is not None and other is not None:
        if one != other or one[0] > -3 or left.shape[one[0]] != right.shape[one[0]]:
            raise RefusedError("multiplies rows of the split dimension with rows")
        place, outer = one
    elif one is not None:
        place, outer = one
        _refuse_other_entries(place, right)
    else:
        assert other is not None
        place, outer = other
        _refuse_other_entries(place, left)
    rank = max(left.rank, right.rank, 2)
    # What was added to make a vector a matrix is removed from the result again.
    removed_row, removed_column = left.rank == 1, right.rank == 1
    axis = place + rank - (removed_row and place == -1)
    return Rows(axis if not removed_column or place < -1 else axis - 1, outer)


def _from_back(
    tensor: Tensor, rows: Rows | None, vector: bool, contracted: int
) -> tuple[int, Size] | None:
    if rows is None:
        return None
    place = rows.axis - tensor.rank
    if place == contracted or vector:
        raise RefusedError(_CONTRACTS)
    return place, rows.outer


def _refuse_other_entries(place: int, tensor: Tensor) -> None:
    if place <= -3 and tensor.rank >= -place and tensor.shape[place] != ONE:
        raise RefusedError("multiplies rows with a tensor that has other batch entries")


def matmul(call: Call) -> Fact:
    """A matrix product of two tensors."""
    return multiply(call.tensor(0), call.tensor(1, "other"))


def add_product(call: Call) -> Fact:
    """A matrix product added to a tensor that is broadcast to it."""
    product = multiply(call.tensor(1, "mat1"), call.tensor(2, "mat2"))
    shape = call.shape()
    return align(
        [(shape, product), (call.tensor().shape, call.tensor().fact)],
        shape,
    )


def outer(call: Call) -> Fact:
    """Each element of one vector times each of another."""
    left, right = only_rows(call.tensor(0)), only_rows(call.tensor(1, "vec2"))
    if left is not None and right is not None:
        raise RefusedError("multiplies rows of the split dimension with rows")
    if left is not None:
        return left
    return Shared() if right is None else Rows(1, right.outer)


def einsum(call: Call) -> Fact:
    """A product named by letters: all rows have one letter, which the result keeps."""
    equation = call.argument(0, "equation")
    tensors = call.tensor_list(1, "tensors")
    if not isinstance(equation, str) or "->" not in equation:
        raise RefusedError("an einsum without named output axes")
    equation = _without_ellipsis(equation.replace(" ", ""), tensors)
    left, result = equation.split("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise RefusedError("an einsum whose letters and tensors differ in number")
    found: set[tuple[str, Size]] = set()
    for term, tensor in zip(terms, tensors, strict=True):
        rows = only_rows(tensor)
        if rows is not None:
            if len(term) != tensor.rank:
                raise RefusedError("an einsum whose letters and axes differ in number")
            found.add((term[rows.axis], rows.outer))
    if not found:
        return Shared()
    if len(found) > 1:
        raise RefusedError("multiplies rows of the split dimension with rows")
    letter, blocks = found.pop()
    if result.count(letter) != 1:
        raise RefusedError(_CONTRACTS)
    for term, tensor in zip(terms, tensors, strict=True):
        shared = isinstance(tensor.fact, Shared)
        if term.count(letter) > 1 or (shared and letter in term):
            raise RefusedError("multiplies rows with a tensor that is not split")
    return Rows(result.index(letter), blocks)


def _without_ellipsis(equation: str, tensors: tuple[Tensor, ...]) -> str:
    """Write letters for the axes of an ellipsis, the same in every term."""
    if "..." not in equation:
        return equation
    terms = equation.split("->")[0].split(",")
    counts = {
        tensor.rank - len(term.replace("...", ""))
        for term, tensor in zip(terms, tensors, strict=False)
        if "..." in term
    }
    free = [letter for letter in ascii_letters if letter not in equation]
    if len(counts) != 1 or not 0 <= min(counts) <= len(free):
        raise RefusedError("an einsum whose ellipsis stands for different axes")
    return equation.replace("...", "".join(free[: min(counts)]))


RULES = {
    "aten.linear.default": Rule(linear),
    "aten.matmul.default": Rule(matmul),
    "aten.mm.default": Rule(matmul),
    "aten.bmm.default": Rule(matmul),
    "aten.mv.default": Rule(matmul),
    "aten.dot.default": Rule(matmul),
    "aten.addmm.default": Rule(add_product),
    "aten.addmv.default": Rule(add_product),
    "aten.baddbmm.default": Rule(add_product),
    "aten.outer.default": Rule(outer),
    "aten.einsum.default": Rule(einsum),
}
