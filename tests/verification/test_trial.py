from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from dynaflow_dsl.verification.trial import run_trial

Steps = Mapping[str, Callable[..., Any]]


def counting(steps: Steps, rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    expected = torch.arange(rows * 4).reshape(rows, 4) + seed
    return steps["next"](expected), expected


def test_equal_rows_are_fine() -> None:
    report = run_trial(counting, {"next": torch.clone}, rows=(1, 3), seeds=(0, 5))
    assert report.ok
    assert [(run.rows, run.seed) for run in report.runs] == [
        (1, 0),
        (3, 0),
        (1, 5),
        (3, 5),
    ]
    assert str(report).splitlines()[0] == "the model's own loop with next scheduled: ok"
    assert "1 rows of 4 tokens, seed 0: equal, each with 4 or more different" in (
        str(report)
    )
    assert "warning" not in str(report)


def test_one_wrong_token_is_found() -> None:
    def wrong(expected: torch.Tensor) -> torch.Tensor:
        made = expected.clone()
        made[1, 2] += 1
        return made

    report = run_trial(counting, {"next": wrong}, rows=(3,))
    assert not report.ok
    assert report.runs[0].wrong_rows == 1
    assert "NOT equal in 1 rows" in str(report)


def test_another_shape_is_wrong() -> None:
    report = run_trial(counting, {"next": lambda tokens: tokens[:, :2]}, rows=(2,))
    assert report.runs[0].wrong_rows == 2


def test_a_trial_may_say_why_it_cannot_be_run() -> None:
    class Skipped:
        skipped = "nothing can be learnt"

        def __call__(self, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
            raise AssertionError

    report = run_trial(Skipped(), {"next": torch.clone}, rows=(1,))
    assert report.ok
    assert str(report) == (
        "the model's own loop with next scheduled: not run, since nothing can be learnt"
    )


def test_a_row_that_repeats_one_token_is_warned_of() -> None:
    def constant(steps: Steps, rows: int, seed: int) -> tuple[Any, torch.Tensor]:
        expected = torch.arange(8).reshape(2, 4)
        expected[1] = 7
        return steps["next"](expected), expected

    report = run_trial(constant, {"next": torch.clone}, rows=(2,))
    assert report.ok
    _, run, warning = str(report).splitlines()
    assert run.endswith("equal, but there is a row that repeats one token")
    assert warning.strip().startswith("warning: a row that repeats one token proves")
    # What is wrong needs no doubt about what is right.
    wrong = run_trial(constant, {"next": lambda tokens: tokens + 1}, rows=(2,))
    assert not wrong.ok
    assert "warning" not in str(wrong)
