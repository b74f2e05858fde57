"""The Triton functions of the exchange between experts.

Apart from the rest, so that the kernels can be bound where Triton is not installed.
`places`, int32 [ranks, tokens, CHOICES], says of all ranks' choices where a row of them
stands among those that this rank receives for its experts. What a rank has itself is
read where it is, what others have where they sent it. Kernels that move rows go over
them by tiles of ROWS, in steps of the grid's size; ALIGNED says that every row begins
at a multiple of 16 bytes, which Triton cannot know of an address that it loads.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def choices_of(own, sent, sender, rank, tokens, CHOICES: tl.constexpr):
    """Where the choices of a rank's tokens begin; those of `rank` are `own`."""
    if sender == rank:
        begin = own
    else:
        begin = sent + sender * tokens * CHOICES
    return begin


@triton.jit
def count_choices(
    own,
    sent,
    table,
    tokens,
    tiles,
    rank,
    local,
    CHOICES: tl.constexpr,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
    RANKS: tl.constexpr,
):
    """How many choices of a block of a rank's tokens each expert and rank gets.

    `own` are the choices of this rank's tokens, int64 [tokens, CHOICES], and `sent`,
    [ranks, tokens, CHOICES], those of others. The grid is (blocks of `tiles` times
    TOKENS tokens, ranks). `table`, int32, begins with the counts of this rank's
    experts, in the order of places: [local expert, sender, block]. After them come
    those of whole ranks, [receiver, sender, block].
    """
    block, sender = tl.program_id(0), tl.program_id(1)
    blocks, ranks = tl.num_programs(0), tl.num_programs(1)
    experts = choices_of(own, sent, sender, rank, tokens, CHOICES)
    expert, receiver = tl.arange(0, EXPERTS), tl.arange(0, RANKS)
    held = tl.zeros([EXPERTS], tl.int32)
    received = tl.zeros([RANKS], tl.int32)
    for tile in range(block * tiles, (block + 1) * tiles):
        token = tile * TOKENS + tl.arange(0, TOKENS)
        mine = tl.zeros([TOKENS, EXPERTS], tl.int32)
        goes = tl.zeros([TOKENS, RANKS], tl.int32)
        for choice in tl.static_range(CHOICES):
            nobody = ranks * local
            entry = experts + token * CHOICES + choice
            chosen = tl.load(entry, mask=token < tokens, other=nobody).to(tl.int32)
            mine += (chosen[:, None] == rank * local + expert[None, :]).to(tl.int32)
            goes += ((chosen // local)[:, None] == receiver[None, :]).to(tl.int32)
        held += tl.sum(mine, 0)
        received += tl.sum(goes, 0)
    here = sender * blocks + block
    row = ranks * blocks
    tl.store(table + expert * row + here, held, mask=expert < local)
    after = table + local * row
    tl.store(after + receiver * row + here, received, mask=receiver < ranks)


@triton.jit
def place_choices(
    own,
    sent,
    table,
    places,
    ends,
    arrived,
    needed,
    tokens,
    tiles,
    rank,
    local,
    CHOICES: tl.constexpr,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
):
    """The place of each choice of all tokens, int32; -1 for other ranks' experts.

    The grid is that of `count_choices`, and `table` what it counted. Each program adds
    up all that comes before its block: a sum in a kernel of its own would wait for an
    SM once more. Writes as well where the rows of each expert end, int32 [local], how
    many each rank sent for each, int64 [ranks, local], and how many rows each rank
    receives, int32 [ranks].
    """
    block, sender = tl.program_id(0), tl.program_id(1)
    blocks, ranks = tl.num_programs(0), tl.num_programs(1)
    row = ranks * blocks
    first = sender * blocks
    expert = tl.arange(0, EXPERTS)
    held = expert < local
    total = tl.zeros([EXPERTS], tl.int32)
    before = tl.zeros([EXPERTS], tl.int32)
    came = tl.zeros([EXPERTS], tl.int32)
    for start in range(0, row, TOKENS):
        run = start + tl.arange(0, TOKENS)[:, None]
        count = tl.load(
            table + expert[None, :] * row + run,
            mask=held[None, :] & (run < row),
            other=0,
        )
        of_sender = (run >= first) & (run < first + blocks)
        total += tl.sum(count, 0)
        before += tl.sum(tl.where(run < first + block, count, 0), 0)
        came += tl.sum(tl.where(of_sender, count, 0), 0)
    end = tl.cumsum(total, 0)
    if block == 0:
        if sender == 0:
            tl.store(ends + expert, end, mask=held)
        tl.store(arrived + sender * local + expert, came.to(tl.int64), mask=held)
        receives = tl.zeros([TOKENS], tl.int32)
        for start in range(0, row, TOKENS):
            run = start + tl.arange(0, TOKENS)
            entry = table + (local + sender) * row + run
            receives += tl.load(entry, mask=run < row, other=0)
        tl.store(needed + sender, tl.sum(receives, 0))
    experts = choices_of(own, sent, sender, rank, tokens, CHOICES)
    placed = places + sender * tokens * CHOICES
    begin = end - total + before
    for tile in range(block * tiles, (block + 1) * tiles):
        token = tile * TOKENS + tl.arange(0, TOKENS)
        there = token < tokens
        mine = tl.zeros([TOKENS, EXPERTS], tl.int32)
        for choice in tl.static_range(CHOICES):
            entry = token * CHOICES + choice
            chosen = tl.load(experts + entry, mask=there, other=-1).to(tl.int32)
            hit = chosen[:, None] == rank * local + expert[None, :]
            mine += (hit & held[None, :]).to(tl.int32)
        free = begin[None, :] + tl.cumsum(mine, 0) - mine
        begin += tl.sum(mine, 0)
        for choice in tl.static_range(CHOICES):
            entry = token * CHOICES + choice
            chosen = tl.load(experts + entry, mask=there, other=-1).to(tl.int32)
            hit = chosen[:, None] == rank * local + expert[None, :]
            one = (hit & held[None, :]).to(tl.int32)
            tl.store(placed + entry, tl.sum(one * (free + 1), 1) - 1, mask=there)
            # A token may choose an expert twice.
            free += one


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
    needed,
    received,
    fits,
    tokens,
    room,
    width,
    rank,
    RANKS: tl.constexpr,
    CHOICES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Bring all ranks' tokens to their places, and zeros to the rows past the last.

    Tokens of this rank lie in `own`, [tokens, width], those of others in `sent`,
    [RANKS, tokens, width]. A token is read once. Writes in `fits` whether every rank
    has room for the rows that it receives, `needed`.
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
        read = wanted[:, None] & inside
        start = token.to(tl.int64)[:, None] * width + column[None, :]
        if sender == rank:
            taken = tl.load(own + start, mask=read)
        else:
            before = tl.cast(sender, tl.int64) * tokens * width
            taken = tl.load(sent + before + start, mask=read)
        for choice in tl.static_range(CHOICES):
            place = tl.load(places + entry + choice, mask=there, other=-1)
            mine = (place >= 0) & (place < room)
            target = place.to(tl.int64)[:, None] * width + column[None, :]
            tl.store(received + target, taken, mask=mine[:, None] & inside)
    total = tl.load(needed + rank)
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
            most = tl.maximum(most, tl.load(needed + receiver))
        tl.store(fits, most <= room)


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

    `entry`, [ROWS], is where the choices of each token begin in both `places` and
    `weights`. NARROW says that products are rounded to the dtype of `rows`, as PyTorch
    does where weights have no wider one.
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
    address of each rank's, for a share of each sender. `weights` have such shares as
    well. Tokens that chose no expert of this rank are left out: their rank knows.
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
    expert of theirs; this rank's own is made here. `weights` and `experts` are those of
    its tokens, [tokens, CHOICES]. The sums are added in float32; with ADD, that is
    rounded and the token's residual added.
    """
    kind = rows.dtype.element_ty
    column = tl.arange(0, BLOCK)
    inside = (column < width)[None, :]
    for tile in range(tl.program_id(0), tl.cdiv(tokens, ROWS), tl.num_programs(0)):
        token = tile * ROWS + tl.arange(0, ROWS)
        there = token < tokens
        entry = token * CHOICES
        start = token.to(tl.int64)[:, None] * width + column[None, :]
        total = tl.zeros([ROWS, BLOCK], tl.float32)
        for source in range(RANKS):
            if source == rank:
                total += weighted_sum(
                    rows,
                    places + rank * tokens * CHOICES,
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
