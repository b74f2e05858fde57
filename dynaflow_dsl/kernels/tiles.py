"""How Triton kernels that move rows cut them into tiles."""

from __future__ import annotations

from dataclasses import dataclass

# Of a row, or several of a narrow one, so many bytes are under way per program: a few
# programs can then use much of the memory's bandwidth.
_TILE = 32 * 1024
_WARP_LOAD = 32 * 16
_MOST_ROWS = 32


@dataclass(frozen=True, slots=True)
class Tile:
    """Some whole rows that a program moves at a time.

    `block` is the power of two that holds a row's width, `rows` how many rows are in
    the tile, a power of two as well, and `warps` how many warps a program has.
    """

    block: int
    rows: int
    warps: int

    @classmethod
    def of(cls, width: int, itemsize: int, size: int = _TILE) -> Tile:
        """The tile for rows of `width` elements, of `size` bytes or of one row."""
        block = power_of_two(width)
        rows = min(max(1, size // (block * itemsize)), _MOST_ROWS)
        loads = rows * block * itemsize // _WARP_LOAD
        # About four loads of 16 bytes for each thread.
        return cls(block, rows, min(max(loads // 4, 4), 16))

    def programs(self, rows: int, most: int) -> int:
        """The size of a grid for so many rows, of `most` programs at most."""
        return max(1, min(most, -(-rows // self.rows)))


def power_of_two(count: int) -> int:
    """The smallest power of two that is no less; Triton's blocks are such."""
    return 1 << (count - 1).bit_length()


def aligned(width: int, itemsize: int) -> bool:
    """Whether every row begins at a multiple of 16 bytes where the first one does."""
    return width * itemsize % 16 == 0
