"""The Triton functions of all-reduces.

Apart from the rest, so that the kernels can be bound where Triton is not installed.
`partials` and `outputs` are tensors of addresses, one of each rank's buffer of the same
shape; ALIGNED says that every row begins at a multiple of 16 bytes, which Triton cannot
know of an address that it loads. Programs go over rows in steps of the grid's size: a
schedule gives the grid few programs where they run beside something that wants the SMs.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def added_to(residual, total, place, inside):
    """The residual at a place and a sum in float32, rounded where the model rounds.

    That is after the reduction, and after the addition.
    """
    kind = residual.dtype.element_ty
    update = total.to(kind).to(tl.float32)
    before = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    return (before + update).to(kind)


@triton.jit
def store_norm(added, scale, normed, place, inside, width, epsilon):
    """The RMS norm of one row, times the scale in float32."""
    wide = added.to(tl.float32)
    mean = tl.sum(wide * wide, 0) / width
    unit = (wide * tl.rsqrt(mean + epsilon)).to(added.dtype).to(tl.float32)
    tl.store(normed + place, (scale * unit).to(added.dtype), mask=inside)


@triton.jit
def sum_of(first, second, place, inside, TWO: tl.constexpr):
    """One addend, or with TWO both, in float32."""
    total = tl.load(first + place, mask=inside, other=0.0).to(tl.float32)
    if TWO:
        total += tl.load(second + place, mask=inside, other=0.0).to(tl.float32)
    return total


@triton.jit
def add_norm_of_partials(
    partials,
    residual,
    weight,
    hidden,
    normed,
    rows,
    width,
    epsilon,
    RANKS: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`hidden = residual + sum of partials`, and its RMS norm, row by row."""
    kind = residual.dtype.element_ty
    column = tl.arange(0, BLOCK)
    inside = column < width
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        place = tl.cast(row, tl.int64) * width + column
        total = tl.zeros([BLOCK], tl.float32)
        # In the order of ranks, so that all of them get the same bits.
        for rank in tl.static_range(RANKS):
            part = tl.load(partials + rank).to(tl.pointer_type(kind)) + place
            if ALIGNED:
                part = tl.multiple_of(part, 16)
            total += tl.load(part, mask=inside, other=0.0).to(tl.float32)
        added = added_to(residual, total, place, inside)
        tl.store(hidden + place, added, mask=inside)
        store_norm(added, scale, normed, place, inside, width, epsilon)


@triton.jit
def add_partials_everywhere(
    partials,
    residual,
    outputs,
    first,
    last,
    width,
    RANKS: tl.constexpr,
    ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rows `first` to `last` of `residual + sum of partials`, written on every rank."""
    kind = residual.dtype.element_ty
    column = tl.arange(0, BLOCK)
    inside = column < width
    for row in range(first + tl.program_id(0), last, tl.num_programs(0)):
        place = tl.cast(row, tl.int64) * width + column
        total = tl.zeros([BLOCK], tl.float32)
        for rank in tl.static_range(RANKS):
            part = tl.load(partials + rank).to(tl.pointer_type(kind)) + place
            if ALIGNED:
                part = tl.multiple_of(part, 16)
            total += tl.load(part, mask=inside, other=0.0).to(tl.float32)
        added = added_to(residual, total, place, inside)
        for rank in tl.static_range(RANKS):
            there = tl.load(outputs + rank).to(tl.pointer_type(kind)) + place
            if ALIGNED:
                there = tl.multiple_of(there, 16)
            tl.store(there, added, mask=inside)


@triton.jit
def norm_rows(
    source,
    weight,
    hidden,
    normed,
    rows,
    width,
    epsilon,
    BLOCK: tl.constexpr,
):
    """A copy of `source` and its RMS norm, row by row."""
    column = tl.arange(0, BLOCK)
    inside = column < width
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        place = tl.cast(row, tl.int64) * width + column
        added = tl.load(source + place, mask=inside, other=0.0)
        tl.store(hidden + place, added, mask=inside)
        store_norm(added, scale, normed, place, inside, width, epsilon)


@triton.jit
def add_to_residual(
    first, second, residual, hidden, count, TWO: tl.constexpr, BLOCK: tl.constexpr
):
    """`hidden = residual + (first + second)`, or without `second` unless TWO."""
    for tile in range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0)):
        place = tl.cast(tile, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = place < count
        total = sum_of(first, second, place, inside, TWO)
        added = added_to(residual, total, place, inside)
        tl.store(hidden + place, added, mask=inside)


@triton.jit
def add_to_residual_and_norm(
    first,
    second,
    residual,
    weight,
    hidden,
    normed,
    rows,
    width,
    epsilon,
    TWO: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`add_to_residual`, and the RMS norm of the result, row by row."""
    column = tl.arange(0, BLOCK)
    inside = column < width
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        place = tl.cast(row, tl.int64) * width + column
        total = sum_of(first, second, place, inside, TWO)
        added = added_to(residual, total, place, inside)
        tl.store(hidden + place, added, mask=inside)
        store_norm(added, scale, normed, place, inside, width, epsilon)
