"""Whatever a program does: if it is accepted, pieces compute what the whole does."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynaflow_dsl.graph.rowwise import check_rows
from tests.graph.rowwise.interpreter import difference, leaking_row
from tests.graph.rowwise.programs import INPUTS, KINDS, Step, program
from tests.graph.rowwise.signatures import OPERATORS

NUMBERS = st.integers(0, 11)
STEPS = st.builds(
    Step,
    kind=st.integers(0, len(KINDS) - 1),
    first=NUMBERS,
    second=NUMBERS,
    one=NUMBERS,
    other=NUMBERS,
    inside=st.sampled_from([True, True, True, True, True, False]),
)


def test_accepted_programs_keep_rows_apart() -> None:
    verdicts: Counter[bool] = Counter()

    @settings(
        max_examples=200,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.lists(st.integers(0, len(INPUTS) - 1), min_size=2, max_size=4),
        st.lists(STEPS, min_size=3, max_size=12),
    )
    def run(inputs: list[int], steps: list[Step]) -> None:
        torch.manual_seed(0)
        graph, region, build = program(tuple(inputs), steps)
        accepted = not check_rows(graph, "batch", region).refusals
        verdicts[accepted] += 1
        if accepted:
            tensors = build.tensors()
            assert difference(graph, region, tensors) is None
            if len(region) == len(graph.operations):
                assert leaking_row(graph, tensors) is None

    run()
    # A check that refused everything, or nothing, would pass so far.
    assert verdicts[True] > 30
    assert verdicts[False] > 30


def test_each_operator_once(tmp_path: Path) -> None:
    """In a process of its own, where torch can be told to compute without vectors."""
    output = tmp_path / "found.json"
    # Three of five are calls, and some regions begin behind the operator.
    examples = 4 * len(OPERATORS)
    command = "tests.graph.rowwise.random_graphs", "--examples", str(examples)
    done = subprocess.run(
        [sys.executable, "-m", *command, "--output", str(output)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    found = json.loads(output.read_text())
    assert found["examples"] == examples
    assert found["leaking and accepted"] == []
    counts = found["programs with each operator: accepted, refused"]
    assert set(OPERATORS) - set(counts) == set()
    verdicts = found["verdicts"]
    assert verdicts["accepted, does not leak"] > examples // 4
    assert verdicts["refused, leaks"] > examples // 10
