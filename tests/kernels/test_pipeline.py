from __future__ import annotations

import pytest
import torch

from dynaflow_dsl.kernels.host_memory import SLOTS, Layout
from dynaflow_dsl.kernels.lanes import add_in_order
from dynaflow_dsl.kernels.pipeline import WHOLE, chunks_of, cut, shares
from tests.kernels.devices import Machine

RANKS = [2, 3, 4]
DTYPES = [torch.float32, torch.bfloat16]

# Elements, and chunks: none, one, fewer than ranks, odd, many chunks for the slots.
SIZES = [(0, 1), (1, 1), (3, 2), (640, 3), (1000, 7), (4099, 13)]


def numbers(ranks: int, *shape: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.randn(shape).to(dtype) for _ in range(ranks)]


def total(parts: list[torch.Tensor]) -> torch.Tensor:
    summed = torch.empty_like(parts[0])
    add_in_order(parts, summed)
    return summed


def added(addends: list[torch.Tensor]) -> torch.Tensor:
    return total(addends) if len(addends) == 2 else addends[0]


def finish(machine: Machine, seed: int) -> None:
    if seed % 2:
        machine.run_in_single_file(seed)
    else:
        machine.run(seed)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "chunks"), SIZES)
@pytest.mark.parametrize("ranks", RANKS)
def test_sums_are_sums_in_the_order_of_ranks(
    ranks: int, size: int, chunks: int, dtype: torch.dtype, seed: int
) -> None:
    machine = Machine(ranks)
    first = numbers(ranks, size, dtype=dtype)
    second = numbers(ranks, size, dtype=dtype)
    made = [
        (each.addends(first[k], chunks), each.addends(second[k], chunks))
        for k, each in enumerate(map(machine.collectives, range(ranks)))
    ]
    finish(machine, seed)
    for one, other in made:
        assert torch.equal(added(one), total(first))
        assert torch.equal(added(other), total(second))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "chunks"), [(0, 1), (1, 4), (5, 1), (33, 6)])
@pytest.mark.parametrize("ranks", RANKS)
def test_what_moves_arrives(
    ranks: int, rows: int, chunks: int, dtype: torch.dtype, seed: int
) -> None:
    """One call after the other uses the same slots for other messages."""
    width = 24
    machine = Machine(ranks)
    wide = numbers(ranks, ranks * rows, width, dtype=dtype)
    own = numbers(ranks, rows, width, dtype=dtype)
    made = [
        (
            each.reduce_scatter(wide[k], chunks),
            each.all_gather(own[k], chunks),
            each.all_to_all(wide[k], chunks),
            each.addends(own[k].view(-1), chunks),
        )
        for k, each in enumerate(map(machine.collectives, range(ranks)))
    ]
    finish(machine, seed)
    for k, (scattered, gathered, exchanged, reduced) in enumerate(made):
        mine = slice(k * rows, (k + 1) * rows)
        assert torch.equal(scattered, total(wide)[mine])
        assert torch.equal(gathered, torch.cat(own))
        assert torch.equal(exchanged, torch.cat([one[mine] for one in wide]))
        assert torch.equal(added(reduced), total(own).view(-1))


def test_one_number() -> None:
    machine = Machine(2)
    given = [torch.tensor([k + 1.0]) for k in range(2)]
    made = [machine.collectives(k).addends(given[k], 1) for k in (0, 1)]
    machine.run(0)
    assert [added(one).item() for one in made] == [3.0, 3.0]


def test_whole_numbers_keep_their_dtype() -> None:
    machine = Machine(3)
    given = [torch.arange(5, dtype=torch.int32) * k for k in range(3)]
    made = [machine.collectives(k).addends(given[k], 1) for k in range(3)]
    machine.run(1)
    for one in made:
        assert torch.equal(added(one), torch.arange(5, dtype=torch.int32) * 3)


def test_a_missing_rank_keeps_the_others_waiting() -> None:
    """The devices wait, and nothing is read that was not written."""
    machine = Machine(2)
    machine.collectives(0).addends(torch.ones(8), 1)
    with pytest.raises(AssertionError, match="every lane waits"):
        machine.run(0)


def test_chunks_follow_from_the_size() -> None:
    sizes = (0, 1, 1 << 20, 2 << 20, 5 << 20, 8 << 20, 12 << 20)
    assert [chunks_of(size, 0) for size in sizes] == [1, 1, 1, 1, 2, 4, 4]
    assert chunks_of(100 << 20, 0) == 26
    assert chunks_of(100 << 20, 3) == 3


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("nbytes", [1 << 20, 7654322, 64 << 20, (64 << 20) + 2])
def test_chunks_by_default_fit_the_slots(ranks: int, nbytes: int) -> None:
    """Larger slots would be twice as large."""
    elements = nbytes // 2
    parts = cut(elements, chunks_of(nbytes, 0))
    largest = 2 * (parts[0].stop - parts[0].start)
    layout = Layout(ranks, WHOLE)
    assert largest <= layout.capacity
    share = shares(parts[0], ranks)[0]
    assert 2 * (share.stop - share.start) <= layout.stride


@pytest.mark.parametrize(("length", "parts"), [(0, 3), (1, 1), (63, 2), (1000, 7)])
def test_cuts_cover_a_length(length: int, parts: int) -> None:
    found = cut(length, parts)
    assert len(found) <= parts
    covered = [k for one in found for k in range(one.start, one.stop)]
    assert covered == list(range(length))
    for chunk in found:
        divided = shares(chunk, 4)
        assert len(divided) == 4
        assert [k for one in divided for k in range(one.start, one.stop)] == list(
            range(chunk.start, chunk.stop)
        )


@pytest.mark.parametrize("ranks", RANKS)
def test_flags_and_slots_lie_apart(ranks: int) -> None:
    layout = Layout(ranks, 1000)
    flags = [
        layout.flag(sender, slot, reader)
        for sender in range(ranks)
        for slot in range(SLOTS)
        for reader in range(ranks)
    ]
    assert len(set(flags)) == len(flags)
    assert max(flags) + 4 <= layout.head
    places = [layout.place(sender, k) for sender in range(ranks) for k in range(SLOTS)]
    assert min(places) >= layout.head
    ends = [one + 1000 for one in places]
    assert all(end <= begin for end, begin in zip(ends, places[1:], strict=False))
    assert ends[-1] <= layout.size
    assert ranks * layout.stride <= 1000
