"""T5 by its own steps: encoder, first token, 32 tokens, against the whole model."""

from __future__ import annotations

import copy

import pytest
import torch

from dynaflow_dsl.models import t5
from dynaflow_dsl.trace import export_entry, trace
from tests.models.rounding import assert_only_rounded

ROWS, LENGTHS, STEPS = 5, (12, 1, 7, 3, 10), 32
SIZES = {"layers": 2, "vocab": 96, "sequence": 12, "capacity": 36}


@torch.no_grad()
def test_answers_step_by_step_are_those_of_the_whole_model() -> None:
    specs = {name: getattr(t5, name)(**SIZES) for name in ("encode", "start", "decode")}
    model = specs["encode"].model
    steps = {name: export_entry(spec, name).module() for name, spec in specs.items()}
    torch.manual_seed(0)
    ids = torch.randint(1, 96, (ROWS, 12))
    mask = torch.arange(12)[None] < torch.tensor(LENGTHS)[:, None]
    _, _, _, *caches = specs["decode"].entries["decode"].arguments({"batch": ROWS})
    hidden = steps["encode"](ids, mask)
    # Random ones: with random weights greedy answers repeat a token.
    answers = torch.randint(1, 96, (ROWS, STEPS + 1))
    first = torch.tensor([0])
    logits = [steps["start"](answers[:, :1], mask, hidden, first, *caches)]
    for place in range(1, STEPS + 1):
        token, slot = answers[:, place : place + 1], torch.tensor([place])
        logits.append(steps["decode"](token, mask, slot, *caches))
    given = torch.cat(logits, 1)
    assert given.std() > 0.1
    double = copy.deepcopy(model).double()
    for row, length in enumerate(LENGTHS):
        whole = {
            "input_ids": ids[row : row + 1, :length],
            "decoder_input_ids": answers[row : row + 1],
        }
        expected, exact = model(**whole).logits, double(**whole).logits
        assert_only_rounded(given[row], expected[0], exact[0])


@torch.no_grad()
def test_translate_is_the_whole_model() -> None:
    spec = t5.translate(**SIZES)
    arguments = spec.entries["translate"].arguments({"batch": 3})
    made = export_entry(spec, "translate").module()(*arguments)
    ids, mask, answers = arguments
    output = spec.model(
        input_ids=ids, attention_mask=mask, decoder_input_ids=answers
    ).logits
    torch.testing.assert_close(made, output)


@pytest.mark.parametrize("entry", ["start", "decode"])
def test_caches_are_written_where_a_step_makes_them(entry: str) -> None:
    graph = trace(getattr(t5, entry)(**SIZES), "target", {}).unwrap().graphs[0]
    written = {name for operation in graph.operations for name in operation.writes}
    own = {f"{kind}.{layer}" for kind in ("keys", "values") for layer in range(2)}
    cross = {f"cross_{name}" for name in own}
    assert written == (own | cross if entry == "start" else own)
