from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from dynaflow_dsl.runtime import LoadError
from dynaflow_dsl.runtime.inductor import COMPILING
from dynaflow_dsl.runtime.sizes import MOST, Compilations, all_hold, sample_sizes

SAMPLED = list(sample_sizes(("batch",), {}))


@dataclass(frozen=True)
class Made:
    conditions: tuple[str, ...]


def made(
    first: Made, make: Callable[[Mapping[str, int]], Made]
) -> list[tuple[str, ...]]:
    compilations = Compilations(lambda sizes: make(sizes) if sizes else first, SAMPLED)
    return [one.conditions for one in compilations.made]


def never(sizes: Mapping[str, int]) -> Made:
    raise AssertionError(sizes)


def test_conditions_over_sizes() -> None:
    assert all_hold((), {})
    assert all_hold(("batch >= 16", "Eq(Mod(batch, 2), 0)"), {"batch": 18})
    assert not all_hold(("batch >= 16", "Eq(Mod(batch, 2), 0)"), {"batch": 17})
    assert not all_hold(("s0 >= 16",), {"batch": 18})


def test_samples_stay_within_bounds() -> None:
    assert list(sample_sizes((), {})) == []
    assert list(sample_sizes(("a",), {"a": (1, 4)})) == [{"a": 2}, {"a": 3}, {"a": 4}]
    assert list(sample_sizes(("a", "b"), {"a": (1, 1), "b": (40, 40)})) == [
        {"a": 2, "b": 40}
    ]


def test_large_samples_are_those_of_bounds_and_captures() -> None:
    def largest(*given: object) -> int:
        return max(one["a"] for one in sample_sizes(("a",), *given))  # type: ignore[arg-type]

    assert largest({}) == largest({"a": (1, None)}) == 1024
    assert largest({"a": (1, 4096)}) == 4096
    assert largest({}, {"a": (8, 3000)}) == 3000
    assert largest({"a": (5000, None)}) == 5000


def test_a_size_is_compiled_for_when_it_comes() -> None:
    def make(sizes: Mapping[str, int]) -> Made:
        large = sizes.get("batch", 0) > 2000
        return Made(("batch > 2000",) if large else ("batch <= 2000",))

    compilations = Compilations(make, SAMPLED)
    assert len(compilations.made) == 1
    assert compilations.fitting({"batch": 1}) is compilations.made[0]
    large = compilations.fitting({"batch": 3000})
    assert large == Made(("batch > 2000",))
    assert compilations.fitting({"batch": 4000}) is large
    assert len(compilations.made) == 2


def test_without_conditions_once_is_enough() -> None:
    assert made(Made(()), never) == [()]


def test_each_side_of_a_bound_is_made() -> None:
    def make(sizes: Mapping[str, int]) -> Made:
        return Made(("batch >= 16",) if sizes["batch"] >= 16 else ("batch < 16",))

    assert made(Made(("batch >= 16",)), make) == [("batch >= 16",), ("batch < 16",)]


def test_there_is_an_end() -> None:
    def make(sizes: Mapping[str, int]) -> Made:
        return Made((f"Eq(batch, {sizes['batch']})",))

    assert len(made(Made(("Eq(batch, 16)",)), make)) == MOST


@pytest.mark.parametrize("conditions", [("batch < 3",), ("s0 > 3",)])
def test_conditions_that_their_own_sizes_break_end_it(
    conditions: tuple[str, ...],
) -> None:
    assert made(Made(conditions), never) == [conditions]
    usual = Made(("batch >= 16",))
    assert made(usual, lambda _: Made(("batch > 99",))) == [usual.conditions]


def test_what_cannot_be_compiled_ends_it() -> None:
    def make(sizes: Mapping[str, int]) -> Made:
        raise LoadError("DFS805", "no")

    assert made(Made(("batch >= 16",)), make) == [("batch >= 16",)]


def test_steps_that_compile_take_the_one_lock_of_loads() -> None:
    """A load that has it may ask for more sizes: two locks would be taken crosswise."""
    free: list[bool] = []

    def try_to_compile() -> None:
        free.append(COMPILING.acquire(blocking=False))
        if free[-1]:
            COMPILING.release()

    def make(sizes: Mapping[str, int]) -> Made:
        other = threading.Thread(target=try_to_compile)
        other.start()
        other.join()
        return Made(("batch < 20",) if not sizes else ())

    assert len(Compilations(make, SAMPLED).made) == 2
    assert free == [True, False]
