"""The exchanges that steps are measured with, on real ranks over gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dynaflow_dsl.measurement.contenders import EXCHANGES

ROOT = Path(__file__).parents[2]

ROUTINGS = (
    "uneven",
    "an expert without tokens",
    "a rank without tokens",
    "all to one rank's",
)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks says of each case."""
    store = tmp_path_factory.mktemp("ranks") / "store"
    words = ["-W", "error::FutureWarning", "-m", "tests.measurement.exchange_worker"]
    ranks = [
        subprocess.Popen(
            [sys.executable, *words, str(rank), "2", str(store)],
            cwd=ROOT,
            env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ended = [rank.communicate(timeout=300) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], ended
    lines = [map(json.loads, out.splitlines()) for out, _ in ended]
    return [{one.pop("case"): one for one in rank} for rank in lines]


@pytest.mark.parametrize("case", [*ROUTINGS, "bfloat16"])
def test_they_do_what_the_operators_do(said: list[dict[str, Any]], case: str) -> None:
    # Rounded to bfloat16 once for each rank, and in another order.
    near = 0.02 if case == "bfloat16" else 1e-6
    for rank in said:
        found = rank[case]
        assert all(found[way] <= near for way in EXCHANGES)
        assert found["afterwards"] == 0


@pytest.mark.parametrize("case", ROUTINGS)
def test_counts_of_another_routing_are_seen_in_what_is_printed(
    said: list[dict[str, Any]], case: str
) -> None:
    for rank in said:
        assert rank[case]["other counts"] > 0.05


def test_too_little_room_stops_all_ranks(said: list[dict[str, Any]]) -> None:
    for rank in said:
        assert rank["no room"] == {
            "all-to-all": "a rank gets 18 rows and has room for 17",
            "all-gather": "a rank has no room for its experts' tokens",
        }


def test_weights_travel_with_tokens_or_nothing_does(said: list[dict[str, Any]]) -> None:
    for rank in said:
        assert rank["unpaired"]["said"] == [
            "the weights of a combine are made behind its dispatch",
            "a dispatch has not one combine in its graph",
        ]
