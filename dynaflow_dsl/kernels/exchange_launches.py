"""The Triton functions of the exchange between experts.

Apart from the rest, so that the kernels can be bound where Triton is not installed.
`experts` are choices, int64 [tokens, CHOICES] of a rank or [ranks, tokens, CHOICES] of
all, and `places`, int32, says of all where a row of them stands among those that this
rank receives for its experts. Kernels that move rows go over them by tiles of ROWS, in
steps of the grid's size; ALIGNED says that every row begins at a multiple of 16 bytes,
which Triton cannot know of an address that it loads.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def count_choices(
    experts,
    table,
    tokens,
    first,
    local,
    CHOICES: tl.constexpr,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
    RANKS: tl.constexpr,
):
    """How many choices of a block of a rank's tokens each expert and rank gets.

    The grid is (blocks of TOKENS tokens, ranks). `table`, int32, begins with the counts
    of this rank's experts, those from `first` on, in the order of places: [local
    expert, sender, block]. After them come those of whole ranks, [receiver, sender,
    block]. So one running sum over the table answers every question about places.
    """
    block, sender = tl.program_id(0), tl.program_id(1)
    blocks, ranks = tl.num_programs(0), tl.num_programs(1)
    token = block * TOKENS + tl.arange(0, TOKENS)
    expert, receiver = tl.arange(0, EXPERTS), tl.arange(0, RANKS)
    mine = tl.zeros([TOKENS, EXPERTS], tl.int32)
    sent = tl.zeros([TOKENS, RANKS], tl.int32)
    for choice in tl.static_range(CHOICES):
        entry = (sender * tokens + token) * CHOICES + choice
        nobody = ranks * local
        chosen = tl.load(experts + entry, mask=token < tokens, other=nobody)
        chosen = chosen.to(tl.int32)
        mine += (chosen[:, None] == first + expert[None, :]).to(tl.int32)
        sent += ((chosen // local)[:, None] == receiver[None, :]).to(tl.int32)
    run = expert * ranks + sender
    tl.store(table + run * blocks + block, tl.sum(mine, 0), mask=expert < local)
    run = ranks * local + receiver * ranks + sender
    tl.store(table + run * blocks + block, tl.sum(sent, 0), mask=receiver < ranks)


@triton.jit
def place_choices(
    experts,
    sums,
    places,
    tokens,
    first,
    local,
    CHOICES: tl.constexpr,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
):
    """The place of each choice of all tokens, int32; -1 for other ranks' experts.

    The grid is that of `count_choices`, and `sums` the running sum over its table.
    """
    block, sender = tl.program_id(0), tl.program_id(1)
    blocks, ranks = tl.num_programs(0), tl.num_programs(1)
    token = block * TOKENS + tl.arange(0, TOKENS)
    there = token < tokens
    expert = tl.arange(0, EXPERTS)
    held = (expert < local)[None, :]
    mine = tl.zeros([TOKENS, EXPERTS], tl.int32)
    for choice in tl.static_range(CHOICES):
        entry = (sender * tokens + token) * CHOICES + choice
        chosen = tl.load(experts + entry, mask=there, other=-1).to(tl.int32)
        mine += ((chosen[:, None] == first + expert[None, :]) & held).to(tl.int32)
    index = (expert * ranks + sender) * blocks + block
    begin = tl.load(sums + index - 1, mask=(expert < local) & (index > 0), other=0)
    free = begin[None, :] + tl.cumsum(mine, 0) - mine
    for choice in tl.static_range(CHOICES):
        entry = (sender * tokens + token) * CHOICES + choice
        chosen = tl.load(experts + entry, mask=there, other=-1).to(tl.int32)
        hit = ((chosen[:, None] == first + expert[None, :]) & held).to(tl.int32)
        place = tl.sum(hit * (free + 1), 1) - 1
        tl.store(places + entry, place, mask=there)
        # A token may choose an expert twice.
        free += hit


@triton.jit
def has_place(places, entry, there, CHOICES: tl.constexpr, ROWS: tl.constexpr):
    """Which tokens chose an expert of this rank; their choices begin at `entry`."""
    last = tl.full([ROWS], -1, tl.int32)
    for choice in tl.static_range(CHOICES):
        place = tl.load(places + entry + choice, mask=there, other=-1)
        last = tl.maximum(last, place)
    return last >= 0


@triton.jit
def spread_rows(
    own,
    sent,
    places,
    sums,
    received,
    ends,
    arrived,
    fits,
    tokens,
    room,
    width,
    local,
    blocks,
    rank,
    RANKS: tl.constexpr,
    CHOICES: tl.constexpr,
    EXPERTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Bring all ranks' tokens to their places, and zeros to the rows past the last.

    Tokens of this rank lie in `own`, [tokens, width], those of others in `sent`,
    [RANKS, tokens, width]. Writes what `dispatch` returns and, in `fits`, whether every
    rank has room for what it receives. A token is read once.
    """
    column = tl.arange(0, BLOCK)
    inside = (column < width)[None, :]
    tiles = tl.cdiv(tokens, ROWS)
    for tile in range(tl.program_id(0), RANKS * tiles, tl.num_programs(0)):
        sender = tile // tiles
        token = (tile % tiles) * ROWS + tl.arange(0, ROWS)
        there = token < tokens
        entry = (sender * tokens + token) * CHOICES
        wanted = has_place(places, entry, there, CHOICES, ROWS)
        needed = wanted[:, None] & inside
        start = token.to(tl.int64)[:, None] * width + column[None, :]
        if sender == rank:
            taken = tl.load(own + start, mask=needed)
        else:
            before = tl.cast(sender, tl.int64) * tokens * width
            taken = tl.load(sent + before + start, mask=needed)
        for choice in tl.static_range(CHOICES):
            place = tl.load(places + entry + choice, mask=there, other=-1)
            mine = (place >= 0) & (place < room)
            target = place.to(tl.int64)[:, None] * width + column[None, :]
            tl.store(received + target, taken, mask=mine[:, None] & inside)
    owned = RANKS * local * blocks
    total = tl.load(sums + owned - 1)
    step = tl.num_programs(0) * ROWS
    for past in range(total + tl.program_id(0) * ROWS, room, step):
        row = past + tl.arange(0, ROWS)
        empty = row < room
        target = row.to(tl.int64)[:, None] * width + column[None, :]
        zeros = tl.zeros([ROWS, BLOCK], received.dtype.element_ty)
        tl.store(received + target, zeros, mask=empty[:, None] & inside)
    if tl.program_id(0) == 0:
        most = total
        for receiver in range(RANKS):
            end = owned + (receiver + 1) * RANKS * blocks
            needs = tl.load(sums + end - 1) - tl.load(sums + end - RANKS * blocks - 1)
            most = tl.maximum(most, needs)
        tl.store(fits, most <= room)
        expert = tl.arange(0, EXPERTS)
        held = expert < local
        last = tl.zeros([EXPERTS], tl.int32)
        for sender in range(RANKS):
            run = (expert * RANKS + sender) * blocks
            before = tl.load(sums + run - 1, mask=held & (run > 0), other=0)
            last = tl.load(sums + run + blocks - 1, mask=held, other=0)
            came = (last - before).to(tl.int64)
            tl.store(arrived + sender * local + expert, came, mask=held)
        tl.store(ends + expert, last, mask=held)


@triton.jit
def push_tokens(
    source,
    experts,
    peers,
    tokens,
    width,
    local,
    rank,
    CHOICES: tl.constexpr,
    ALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write each of this rank's tokens to the other ranks that have experts for it.

    `source` is [tokens, width], `experts` this rank's choices. `peers` has the address
    of each rank's [ranks, tokens, width]; a rank gets a token once.
    """
    kind = source.dtype.element_ty
    column = tl.arange(0, BLOCK)
    inside = (column < width)[None, :]
    mine = tl.cast(rank, tl.int64) * tokens * width
    for tile in range(tl.program_id(0), tl.cdiv(tokens, ROWS), tl.num_programs(0)):
        token = tile * ROWS + tl.arange(0, ROWS)
        there = token < tokens
        entry = token * CHOICES
        start = token.to(tl.int64)[:, None] * width + column[None, :]
        taken = tl.load(source + start, mask=there[:, None] & inside)
        for choice in tl.static_range(CHOICES):
            # An expert of this rank stands for where nothing goes.
            home = rank * local
            chosen = tl.load(experts + entry + choice, mask=there, other=home)
            target = chosen.to(tl.int32) // local
            goes = target != rank
            for earlier in tl.static_range(choice):
                other = tl.load(experts + entry + earlier, mask=there, other=home)
                goes = goes & (other.to(tl.int32) // local != target)
            address = tl.load(peers + target, mask=goes, other=0)
            place = address.to(tl.pointer_type(kind))[:, None] + (mine + start)
            if ALIGNED:
                place = tl.multiple_of(place, [1, 16])
            tl.store(place, taken, mask=goes[:, None] & inside)


@triton.jit
def weighted_sum(
    rows,
    places,
    weights,
    entry,
    there,
    column,
    width,
    CHOICES: tl.constexpr,
    NARROW: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For a tile of tokens, this rank's results times their weights, in float32.

    `entry`, [ROWS], is where the choices of each token begin. NARROW says that products
    are rounded to the dtype of `rows`, as PyTorch does where weights have no wider one.
    """
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    inside = (column < width)[None, :]
    for choice in tl.static_range(CHOICES):
        place = tl.load(places + entry + choice, mask=there, other=-1)
        mine = place >= 0
        start = place.to(tl.int64)[:, None] * width + column[None, :]
        result = tl.load(rows + start, mask=mine[:, None] & inside, other=0.0)
        weight = tl.load(weights + entry + choice, mask=mine, other=0.0)
        product = result.to(tl.float32) * weight.to(tl.float32)[:, None]
        if NARROW:
            product = product.to(rows.dtype.element_ty).to(tl.float32)
        total += product
    return total


@triton.jit
def sum_for_others(
    rows,
    places,
    weights,
    targets,
    tokens,
    width,
    rank,
    RANKS: tl.constexpr,
    CHOICES: tl.constexpr,
    NARROW: tl.constexpr,
    PUSH: tl.constexpr,
    ALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For every token of the other ranks, the weighted sum of this rank's results.

    `targets` is [RANKS, tokens, width], a share for each rank; with PUSH, it has the
    address of each rank's, for a share of each sender. Tokens that chose no expert of
    this rank are left out: their rank knows.
    """
    kind = rows.dtype.element_ty
    column = tl.arange(0, BLOCK)
    inside = (column < width)[None, :]
    tiles = tl.cdiv(tokens, ROWS)
    for tile in range(tl.program_id(0), (RANKS - 1) * tiles, tl.num_programs(0)):
        home = (rank + 1 + tile // tiles) % RANKS
        token = (tile % tiles) * ROWS + tl.arange(0, ROWS)
        there = token < tokens
        entry = (home * tokens + token) * CHOICES
        total = weighted_sum(
            rows,
            places,
            weights,
            entry,
            there,
            column,
            width,
            CHOICES,
            NARROW,
            ROWS,
            BLOCK,
        )
        wanted = has_place(places, entry, there, CHOICES, ROWS)
        start = token.to(tl.int64)[:, None] * width + column[None, :]
        if PUSH:
            start += tl.cast(rank, tl.int64) * tokens * width
            target = tl.load(targets + home).to(tl.pointer_type(kind)) + start
        else:
            start += home.to(tl.int64) * tokens * width
            target = targets + start
        if ALIGNED:
            target = tl.multiple_of(target, [1, 16])
        tl.store(target, total.to(kind), mask=wanted[:, None] & inside)


@triton.jit
def add_sums(
    rows,
    places,
    weights,
    experts,
    partials,
    residual,
    summed,
    tokens,
    width,
    local,
    rank,
    RANKS: tl.constexpr,
    CHOICES: tl.constexpr,
    NARROW: tl.constexpr,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For each token of this rank, the sums of all ranks, in order.

    Those of others lie in `partials`, [RANKS, tokens, width], where the token chose an
    expert of theirs; this rank's own is made here. They are added in float32; with
    ADD, that is rounded and the token's residual added.
    """
    kind = rows.dtype.element_ty
    column = tl.arange(0, BLOCK)
    inside = (column < width)[None, :]
    for tile in range(tl.program_id(0), tl.cdiv(tokens, ROWS), tl.num_programs(0)):
        token = tile * ROWS + tl.arange(0, ROWS)
        there = token < tokens
        entry = (rank * tokens + token) * CHOICES
        start = token.to(tl.int64)[:, None] * width + column[None, :]
        total = tl.zeros([ROWS, BLOCK], tl.float32)
        for source in range(RANKS):
            if source == rank:
                total += weighted_sum(
                    rows,
                    places,
                    weights,
                    entry,
                    there,
                    column,
                    width,
                    CHOICES,
                    NARROW,
                    ROWS,
                    BLOCK,
                )
            else:
                came = tl.zeros([ROWS], tl.int32)
                for choice in tl.static_range(CHOICES):
                    nobody = RANKS * local
                    chosen = tl.load(experts + entry + choice, there, other=nobody)
                    came += (chosen.to(tl.int32) // local == source).to(tl.int32)
                before = tl.cast(source, tl.int64) * tokens * width
                mask = (came > 0)[:, None] & inside
                partial = tl.load(partials + before + start, mask=mask, other=0.0)
                total += partial.to(tl.float32)
        mask = there[:, None] & inside
        if ADD:
            total = total.to(kind).to(tl.float32)
            total += tl.load(residual + start, mask=mask, other=0.0).to(tl.float32)
        tl.store(summed + start, total.to(kind), mask=mask)
