from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dynaflow_dsl.measurement import measure as measuring
from dynaflow_dsl.measurement.contenders import (
    EVERYWHERE,
    EXCHANGES,
    ON_CUDA,
    REFERENCES,
    Case,
    Kind,
    known_for,
    largest_difference,
    make,
    names_for,
)
from dynaflow_dsl.measurement.measure import Failure, Row, lines, measure

CPU = torch.device("cpu")


def case() -> Case:
    return Case(
        adapted=lambda: torch.nn.Linear(2, 2),
        load=lambda: pytest.fail("nothing is loaded"),
        arguments=(torch.ones(1, 2),),
        in_place=(),
        device=CPU,
    )


def test_a_contender_that_fails_is_told_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(_: Case, name: str) -> Callable[[], Any]:
        if name == "broken":
            raise RuntimeError("no such kernel\nmore lines")
        return lambda: torch.full((2,), 1.0 if name == "one" else 1.5)

    monkeypatch.setattr(measuring, "make", made)
    ticks = iter(range(100))
    names = ("one", "broken", "two")
    rows = measure(case(), names, ("one", "broken"), 5, 1e-6, lambda: next(ticks))
    assert list(rows) == list(names)
    assert rows["broken"] == Failure("RuntimeError: no such kernel")
    first, second = rows["one"], rows["two"]
    assert isinstance(first, Row)
    assert isinstance(second, Row)
    assert (first.apart, second.apart) == (0.0, 0.5)
    assert list(second.ratios) == ["one"]
    assert first.first == 1
    head, *table = lines(rows, ("one", "broken"))
    assert "of one [95%]" in head
    assert "of broken" not in head
    assert [line.split(" MB")[1].split()[0] for line in (table[0], table[2])] == [
        "0.0e+00",
        "5.0e-01",
    ]
    assert table[1] == "broken  could not run: RuntimeError: no such kernel"
    assert table[3].startswith("  steady")
    assert len(second.wall) == len(second.steady) == 5
    assert list(second.steady_ratios) == ["one"]


def test_what_fails_on_another_rank_is_left_out_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measuring, "make", lambda *_: lambda: torch.ones(2))
    told: list[object] = []

    def tell(word: object) -> list[object]:
        told.append(word)
        return [word, "RuntimeError: not here" if len(told) == 1 else word]

    rows = measure(case(), ("one", "two"), (), 5, 1e-6, lambda: 0.0, tell)
    assert rows["one"] == Failure("RuntimeError: not here")
    assert isinstance(rows["two"], Row)


def test_differences_are_relative_to_the_largest_magnitude() -> None:
    given = (torch.tensor([1.0, 9.0]), torch.tensor([3]))
    expected = (torch.tensor([1.0, 10.0]), torch.tensor([4]))
    assert largest_difference(given, expected) == pytest.approx(0.1)


def test_a_result_that_is_no_number_is_far_from_one_that_is() -> None:
    some, none = torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0])
    assert largest_difference(some, none) == float("inf")
    assert largest_difference(some, some) == 0.0
    assert largest_difference(none[:0], none[:0]) == 0.0
    # A masked logit hides nothing of the others.
    masked = torch.tensor([1.0, float("-inf")])
    assert largest_difference(torch.tensor([2.0, float("-inf")]), masked) == 1.0
    assert largest_difference(none, masked) == float("inf")
    assert largest_difference(-masked, masked) == float("inf")


def test_ranks_do_not_begin_a_step_that_one_of_them_has_not() -> None:
    """They would wait in its collectives."""
    called: list[str] = []

    def made(name: str) -> Callable[[], Any]:
        return lambda: called.append(name)

    def tell(word: object) -> list[object]:
        return [word, None if called else "OutOfMemoryError: not here"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "make", lambda _, name: made(name))
        rows = measure(case(), ("one",), (), 5, 1e-6, lambda: 0.0, tell)
    assert rows["one"] == Failure("OutOfMemoryError: not here")
    assert not called


def test_contenders_of_a_step() -> None:
    gpu = torch.device("cuda", 0)
    assert names_for(Kind(CPU)) == known_for(Kind(CPU)) == EVERYWHERE
    assert names_for(Kind(gpu)) == known_for(Kind(gpu)) == ON_CUDA
    assert set(EVERYWHERE) < set(ON_CUDA)
    # What reads counts on the host is captured by those that do without.
    moe = Kind(gpu, waits=True, exchanges=True)
    left = ("eager", "torch.compile", "sequential", "scheduled", "scheduled, copying")
    assert names_for(moe) == (*left, *EXCHANGES)
    assert known_for(moe) == (*ON_CUDA, *EXCHANGES)
    # Nobody to exchange with.
    assert names_for(Kind(gpu, waits=True)) == left
    assert set(EXCHANGES) < set(REFERENCES) < {*ON_CUDA, *EXCHANGES}
    with pytest.raises(ValueError, match="no contender is named eagre"):
        make(case(), "eagre")
