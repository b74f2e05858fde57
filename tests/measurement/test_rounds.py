from collections import Counter
from itertools import pairwise

import pytest

from dynaflow_dsl.measurement.rounds import alternate, order, paired_ratio


def test_equal_times_give_ratio_one() -> None:
    ratio = paired_ratio([2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 3.0, 4.0, 5.0, 6.0])
    assert (ratio.median, ratio.low, ratio.high) == (1.0, 1.0, 1.0)


def test_drift_that_meets_both_leaves_the_ratio_alone() -> None:
    reference = [1.0, 2.0, 4.0, 8.0, 16.0]
    ratio = paired_ratio([time / 2 for time in reference], reference)
    assert (ratio.low, ratio.high) == (0.5, 0.5)


def test_interval_holds_the_median_and_is_repeatable() -> None:
    times, reference = [1.0, 1.2, 0.9, 1.4, 1.1, 1.0], [1.0] * 6
    ratio = paired_ratio(times, reference)
    assert ratio.low <= ratio.median <= ratio.high
    assert ratio.low < ratio.high
    assert ratio == paired_ratio(times, reference)


def test_rounds_of_different_number_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_ratio([1.0, 1.0], [1.0])


def test_every_contender_is_measured_in_every_round() -> None:
    calls: list[str] = []
    contenders = {name: lambda name=name: calls.append(name) for name in "abc"}
    times = alternate(contenders, rounds=5, seconds=0.0)
    assert {name: len(one.wall) for name, one in times.items()} == dict.fromkeys(
        "abc", 5
    )
    # Three calls each find the number of repeats; the rounds then take turns, with one
    # call on an idle device and one more.
    rounds = ["".join(calls[n : n + 6]) for n in range(9, 39, 6)]
    assert rounds == ["aabbcc", "bbccaa", "ccaabb", "ccbbaa", "aaccbb"]


@pytest.mark.parametrize("names", ["ab", "abc", "abcd", "abcdefg"])
def test_every_contender_comes_behind_every_other_equally_often(names: str) -> None:
    count = len(names)
    rounds = [order(names, number) for number in range(2 * count)]
    assert all(sorted(one) == sorted(names) for one in rounds)
    pairs = Counter(pair for one in rounds for pair in pairwise(one))
    assert len(pairs) == count * (count - 1)
    assert set(pairs.values()) == {2}
    firsts = Counter(one[0] for one in rounds)
    assert set(firsts.values()) == {2}


def test_few_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 5"):
        alternate({"a": lambda: None}, rounds=4, seconds=0.0)


def test_the_device_is_idle_before_a_call_and_its_work_counts() -> None:
    seen: list[str] = []
    times = alternate(
        {"a": lambda: seen.append("call")},
        rounds=5,
        seconds=0.0,
        synchronize=lambda: seen.append("wait"),
    )
    # Three to find the number of repeats, then two samples in each round.
    assert seen == ["wait", "call", "wait"] * 13
    rounds = zip(times["a"].wall, times["a"].host, strict=True)
    assert all(wall >= host > 0 for wall, host in rounds)


def test_of_ranks_the_slowest_counts_and_all_repeat_equally_often() -> None:
    others: list[object] = []

    def tell(word: object) -> list[object]:
        others.append(word)
        match word:
            case int():
                return [word, 3]
            case (_, _, _):
                return [word, (7.0, 0.0, 8.0)]
        return [word, word]

    calls: list[str] = []
    times = alternate({"a": lambda: calls.append("a")}, 5, 0.0, tell=tell)
    assert times["a"].wall == [7.0] * 5
    assert times["a"].steady == [8.0] * 5
    assert all(0.0 < one < 7.0 for one in times["a"].host)
    # Three to find the number of repeats, then two samples of three in each round.
    assert len(calls) == 3 + 5 * 2 * 3
    # The number, and a word before each sample and behind both.
    assert len(others) == 1 + 5 * 3
