"""The Triton functions of exchanges that are measured beside the shipped ones.

See `dynaflow_dsl.kernels.exchange_launches` for `places` and tiles.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dynaflow_dsl.kernels.exchange_launches import weighted_sum


@triton.jit
def arrange_rows(
    source,
    order,
    target,
    rows,
    room,
    width,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row k of `target`, [room, width], is row `order[k]` of `source`.

    `order`, int64, has `rows` entries; rows past them are zeros.
    """
    column = tl.arange(0, BLOCK)
    inside = (column < width)[None, :]
    for tile in range(tl.program_id(0), tl.cdiv(room, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)
        taken = row < rows
        place = tl.load(order + row, mask=taken, other=0)
        start = place[:, None] * width + column[None, :]
        moved = tl.load(source + start, mask=taken[:, None] & inside, other=0.0)
        end = row.to(tl.int64)[:, None] * width + column[None, :]
        tl.store(target + end, moved, mask=(row < room)[:, None] & inside)


@triton.jit
def sum_results(
    rows,
    places,
    weights,
    sums,
    tokens,
    width,
    CHOICES: tl.constexpr,
    NARROW: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For every token, the weighted sum of the results that lie in `rows`.

    `places` and `weights` are [tokens, CHOICES], `sums` is [tokens, width].
    """
    column = tl.arange(0, BLOCK)
    inside = (column < width)[None, :]
    for tile in range(tl.program_id(0), tl.cdiv(tokens, ROWS), tl.num_programs(0)):
        token = tile * ROWS + tl.arange(0, ROWS)
        there = token < tokens
        total = weighted_sum(
            rows,
            places,
            weights,
            token * CHOICES,
            there,
            column,
            width,
            CHOICES,
            NARROW,
            ROWS,
            BLOCK,
        )
        start = token.to(tl.int64)[:, None] * width + column[None, :]
        kind = sums.dtype.element_ty
        tl.store(sums + start, total.to(kind), mask=there[:, None] & inside)
