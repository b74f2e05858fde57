"""A server under load gives the tokens that it gives without a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.vllm.engines import ran_in_pieces, scheduled, serve

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

REQUESTS = 200

# Prompts longer than a step are cut by the engine, and blocks are small enough for many
# prompts to find their beginnings in the cache.
FLAGS = (
    *("--max-model-len", "512"),
    *("--max-num-batched-tokens", "160"),
    *("--max-num-seqs", "64"),
    *("--block-size", "32"),
    "--enable-prefix-caching",
    "--enable-chunked-prefill",
)

Answers = list[dict[str, Any]]


def served(
    model: Path, folder: Path, config: Mapping[str, Any], load: str = "mixed"
) -> tuple[Answers, float, str]:
    """The answers, how many tokens were found in the cache, and the server's log."""
    with serve(model, folder, config, *FLAGS) as server:
        answers = server.send_load(REQUESTS, load)
        cached = server.metric("vllm:prefix_cache_hits_total")
    return answers, cached, server.log.read_text()


@pytest.fixture(scope="module")
def unscheduled(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    answers, cached = by_itself(model, tmp_path_factory.mktemp("unscheduled"), "mixed")
    assert cached > 1000
    return answers


def by_itself(model: Path, folder: Path, load: str) -> tuple[Answers, float]:
    """What the engine gives by itself: it runs the model's code."""
    plain = {"compilation_config": {"mode": 0}}
    answers, cached, _ = served(model, folder, plain, load)
    complete(answers)
    return answers, cached


def complete(answers: Answers) -> None:
    """None is lost, and each has all its tokens."""
    assert len(answers) == REQUESTS
    assert [answer for answer in answers if "error" in answer] == []
    assert all(len(answer["tokens"]) == answer["wanted"] for answer in answers)


def sure(answer: Mapping[str, Any]) -> int:
    """How many tokens come before one that is almost as likely as another.

    Two engines that round differently need not choose the same one there, and what
    follows is another text.
    """
    gaps = (first - second for first, second in answer["likeliest"])
    ties = (number for number, gap in enumerate(gaps) if gap < 1e-4)
    return next(ties, len(answer["tokens"]))


def equal(answers: Answers, expected: Answers) -> None:
    complete(answers)
    counts = [sure(each) for each in expected]
    whole = sum(n == len(e["tokens"]) for n, e in zip(counts, expected, strict=True))
    assert whole >= 0.97 * REQUESTS
    furthest = 0.0
    for given, wanted, count in zip(answers, expected, counts, strict=True):
        assert given["tokens"][:count] == wanted["tokens"][:count]
        pairs = zip(given["chosen"][:count], wanted["chosen"][:count], strict=True)
        furthest = max([furthest, *(abs(one - other) for one, other in pairs)])
    assert furthest < 1e-3


@pytest.mark.parametrize("compiled", [False, True], ids=["text", "compiled"])
def test_without_a_split(
    model: Path, tmp_path: Path, unscheduled: Answers, compiled: bool
) -> None:
    config = scheduled("std:vllm/decoder.dfs", tmp_path, compile=compiled)
    answers, _, log = served(model, tmp_path, config)
    equal(answers, unscheduled)
    assert "vllm_decoder.py" in log


@pytest.mark.parametrize("compiled", [False, True], ids=["text", "compiled"])
def test_tokens_in_halves(
    model: Path, tmp_path: Path, unscheduled: Answers, compiled: bool
) -> None:
    config = scheduled("std:vllm/halves.dfs", tmp_path, compile=compiled)
    answers, cached, log = served(model, tmp_path, config)
    equal(answers, unscheduled)
    assert cached > 1000
    assert ran_in_pieces(log)


@pytest.mark.parametrize("load", ["prompts", "answers"])
def test_other_loads_in_halves(model: Path, tmp_path: Path, load: str) -> None:
    expected, _ = by_itself(model, tmp_path / "plain", load)
    config = scheduled("std:vllm/halves.dfs", tmp_path, compile=False)
    answers, _, log = served(model, tmp_path / "halves", config, load)
    equal(answers, expected)
    assert ran_in_pieces(log)
