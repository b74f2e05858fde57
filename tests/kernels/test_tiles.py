from __future__ import annotations

import pytest

from dynaflow_dsl.kernels.tiles import Tile, aligned, power_of_two


@pytest.mark.parametrize("width", [1, 12, 77, 1000, 2048, 7168, 40000])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_a_tile_holds_whole_rows(width: int, itemsize: int) -> None:
    tile = Tile.of(width, itemsize)
    assert tile.block // 2 < width <= tile.block
    for size in (tile.block, tile.rows, tile.warps):
        assert size == power_of_two(size)
    assert tile.rows == 1 or tile.rows * tile.block * itemsize <= 32 * 1024


def test_a_grid_has_no_idle_programs() -> None:
    tile = Tile.of(2048, 2)
    assert tile.rows == 8
    assert tile.programs(17, 32) == 3
    assert tile.programs(1000, 32) == 32
    # A grid of nothing cannot be launched.
    assert tile.programs(0, 32) == 1


def test_rows_are_aligned_where_all_begin_at_16_bytes() -> None:
    assert aligned(8, 2)
    assert aligned(2048, 2)
    assert aligned(4, 4)
    assert not aligned(77, 2)
    assert not aligned(4, 2)
