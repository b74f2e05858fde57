from __future__ import annotations

import gc

import pytest
import torch

from dynaflow_dsl.verification.memory import Memory, Place, extent_of

HERE = Place("test", "main", 0)
WHOLE = torch.zeros(6, 4)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (WHOLE, WHOLE, True),
        (WHOLE[:3], WHOLE[3:], False),
        (WHOLE[:3], WHOLE[2:], True),
        (WHOLE[:, :2], WHOLE[:, 2:], False),  # intervals overlap, bytes do not
        (WHOLE[:, :2], WHOLE[:, 1:], True),
        (WHOLE[::2], WHOLE[1::2], False),
        (WHOLE[:3].t(), WHOLE[3:].t(), False),
        (WHOLE[:3].t(), WHOLE, True),
        (WHOLE[:0], WHOLE, False),
        (WHOLE[2, None].expand(5, 4), WHOLE[3], False),
        (WHOLE[2, None].expand(5, 4), WHOLE[2], True),
    ],
)
def test_overlap_is_exact(
    one: torch.Tensor, other: torch.Tensor, *, expected: bool
) -> None:
    assert extent_of(one).overlaps(extent_of(other)) is expected
    assert extent_of(other).overlaps(extent_of(one)) is expected


def test_overlap_counts_bytes_not_elements() -> None:
    half = WHOLE.view(torch.float16)
    assert extent_of(half[0, :2]).overlaps(extent_of(WHOLE[0, :1]))
    assert not extent_of(half[0, 2:]).overlaps(extent_of(WHOLE[0, :1]))


def test_views_share_a_record_and_keep_it_alive() -> None:
    memory = Memory()
    whole = torch.zeros(4, 2)
    view = whole[1:]
    record = memory.add(whole, HERE)
    assert memory.find(view) is record
    del whole
    gc.collect()
    assert memory.expired() == []
    del view
    assert memory.expired() == [record]
    assert memory.expired() == []
