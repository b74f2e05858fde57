"""T5 in three uneven pieces: texts, first tokens and 32 steps of answers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

from dynaflow_dsl.models import t5
from tests.end_to_end.building import build, run_verify
from tests.models.rounding import assert_only_rounded

SCHEDULES = Path(__file__).parents[2] / "schedules" / "t5"
LENGTHS, STEPS = (12, 1, 7, 3, 10, 2, 12), 32
ROWS = len(LENGTHS)


@torch.no_grad()
def test_answers_are_those_of_each_text_alone(tmp_path: Path) -> None:
    steps: dict[str, Any] = {}
    for name, file in (("encode", "encode"), ("start", "decode"), ("decode", "decode")):
        spec = getattr(t5, name)(layers=2, vocab=96, sequence=12, capacity=36)
        text = (SCHEDULES / f"{file}.dfs").read_text(encoding="utf-8")
        assert " into 2 " in text
        folder = tmp_path / name
        folder.mkdir()
        made = build(spec, text.replace(" into 2 ", " into [3, 2, 2] "), folder)
        for report in run_verify(made, batches=(1, 5)):
            assert report.ok, str(report)
        # Targets of one seed are one model.
        steps[name] = made.module.load(spec.model, compile=False)
    torch.manual_seed(0)
    ids = torch.randint(1, 96, (ROWS, 12))
    mask = torch.arange(12)[None] < torch.tensor(LENGTHS)[:, None]
    answers = torch.randint(1, 96, (ROWS, STEPS + 1))
    _, _, _, *caches = spec.entries["decode"].arguments({"batch": ROWS})
    hidden = steps["encode"](ids, mask)
    first = torch.tensor([0])
    logits = [steps["start"](answers[:, :1].clone(), mask, hidden, first, *caches)]
    for place in range(1, STEPS + 1):
        token, slot = answers[:, place : place + 1].clone(), torch.tensor([place])
        logits.append(steps["decode"](token, mask, slot, *caches))
    given = torch.cat(logits, 1)
    assert given.std() > 0.1
    double = copy.deepcopy(spec.model).double()
    for row, length in enumerate(LENGTHS):
        whole = {
            "input_ids": ids[row : row + 1, :length],
            "decoder_input_ids": answers[row : row + 1],
        }
        expected, exact = spec.model(**whole).logits, double(**whole).logits
        assert_only_rounded(given[row], expected[0], exact[0])
