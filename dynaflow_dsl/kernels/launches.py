"""The Triton functions of the shipped kernels.

Apart from the rest, so that the kernels can be bound where Triton is not installed.
`peers` is a tensor of addresses, one of each rank's buffer of the same shape. Programs
go over rows in steps of the grid's size: a schedule gives the grid few programs where
they run beside something that wants the SMs.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
            start = tl.load(partials + rank).to(tl.pointer_type(kind))
            total += tl.load(start + place, mask=inside, other=0.0).to(tl.float32)
        # Rounded where the model rounds: after the reduction, and after the addition.
        update = total.to(kind).to(tl.float32)
        before = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
        added = (before + update).to(kind)
        tl.store(hidden + place, added, mask=inside)
        wide = added.to(tl.float32)
        mean = tl.sum(wide * wide, 0) / width
        unit = (wide * tl.rsqrt(mean + epsilon)).to(kind).to(tl.float32)
        tl.store(normed + place, (scale * unit).to(kind), mask=inside)


@triton.jit
def add_partials_everywhere(
    partials,
    residual,
    outputs,
    first,
    last,
    width,
    RANKS: tl.constexpr,
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
            start = tl.load(partials + rank).to(tl.pointer_type(kind))
            total += tl.load(start + place, mask=inside, other=0.0).to(tl.float32)
        update = total.to(kind).to(tl.float32)
        before = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
        added = (before + update).to(kind)
        for rank in tl.static_range(RANKS):
            there = tl.load(outputs + rank).to(tl.pointer_type(kind))
            tl.store(there + place, added, mask=inside)


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
    kind = source.dtype.element_ty
    column = tl.arange(0, BLOCK)
    inside = column < width
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        place = tl.cast(row, tl.int64) * width + column
        added = tl.load(source + place, mask=inside, other=0.0)
        tl.store(hidden + place, added, mask=inside)
        wide = added.to(tl.float32)
        mean = tl.sum(wide * wide, 0) / width
        unit = (wide * tl.rsqrt(mean + epsilon)).to(kind).to(tl.float32)
        tl.store(normed + place, (scale * unit).to(kind), mask=inside)


@triton.jit
def push_rows(
    source,
    picks,
    peers,
    ends,
    shifts,
    width,
    DIVISOR: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write rows into the buffers of the ranks that they go to.

    Row `k` of those that go out is row `picks[k] // DIVISOR` of `source`. It goes to
    the first rank with `k < ends[rank]`, there to row `k + shifts[rank]`. How many go
    out is `ends[RANKS - 1]`, which only the device knows.
    """
    kind = source.dtype.element_ty
    column = tl.arange(0, BLOCK)
    inside = column < width
    count = tl.load(ends + RANKS - 1)
    for k in range(tl.program_id(0), count, tl.num_programs(0)):
        target = 0
        for rank in tl.static_range(RANKS - 1):
            target += (k >= tl.load(ends + rank)).to(tl.int32)
        row = tl.load(picks + k) // DIVISOR
        taken = tl.load(source + row * width + column, mask=inside, other=0.0)
        there = tl.load(peers + target).to(tl.pointer_type(kind))
        place = (k + tl.load(shifts + target)) * width + column
        tl.store(there + place, taken, mask=inside)


@triton.jit
def take_arrived(
    buffer,
    count,
    received,
    room,
    width,
    BLOCK: tl.constexpr,
):
    """The first `count` rows of a buffer, and zeros behind them, `room` rows in all."""
    column = tl.arange(0, BLOCK)
    inside = column < width
    arrived = tl.load(count)
    for row in range(tl.program_id(0), room, tl.num_programs(0)):
        place = tl.cast(row, tl.int64) * width + column
        there = column < tl.where(row < arrived, width, 0)
        taken = tl.load(buffer + place, mask=there, other=0.0)
        tl.store(received + place, taken, mask=inside)


@triton.jit
def add_weighted(
    returned,
    places,
    weights,
    before,
    summed,
    rows,
    width,
    CHOICES: tl.constexpr,
    NARROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For each token, its residual and its choices' results times their weights.

    The result of choice `c` of token `t` is row `places[t * CHOICES + c]` of
    `returned`; `before` has a row for each token. NARROW says that the products are
    rounded to the dtype of `returned`, as PyTorch does where weights have no wider one.
    They are added in float32, and that is rounded before the residual is added.
    """
    kind = returned.dtype.element_ty
    column = tl.arange(0, BLOCK)
    inside = column < width
    for token in range(tl.program_id(0), rows, tl.num_programs(0)):
        total = tl.zeros([BLOCK], tl.float32)
        for choice in tl.static_range(CHOICES):
            entry = token * CHOICES + choice
            start = tl.load(places + entry) * width
            result = tl.load(returned + start + column, mask=inside, other=0.0)
            weight = tl.load(weights + entry).to(tl.float32)
            product = result.to(tl.float32) * weight
            if NARROW:
                product = product.to(kind).to(tl.float32)
            total += product
        place = tl.cast(token, tl.int64) * width + column
        residual = tl.load(before + place, mask=inside, other=0.0).to(tl.float32)
        total = total.to(kind).to(tl.float32) + residual
        tl.store(summed + place, total.to(kind), mask=inside)
