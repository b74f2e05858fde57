"""Targets without a cache, and with one of another kind, in three uneven pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.models import bert, clip, mamba, vit, whisper
from dynaflow_dsl.trace import TraceSpec
from tests.end_to_end.building import Built, build, run_verify

SCHEDULES = Path(__file__).parents[2] / "schedules"
ROWS = 7


def built(schedule: str, spec: TraceSpec, folder: Path) -> Built:
    text = (SCHEDULES / schedule).read_text(encoding="utf-8")
    assert " into 2 " in text
    return build(spec, text.replace(" into 2 ", " into [3, 2, 2] "), folder)


def run(made: Built, *arguments: Any) -> Any:
    return made.module.load(made.spec.model, compile=False)(*arguments)


def check(made: Built) -> None:
    for report in run_verify(made, batches=(1, 5, 7)):
        assert report.ok, str(report)


def close(given: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_bert_says_of_padded_texts_what_it_says_of_each_alone(tmp_path: Path) -> None:
    made = built("bert/halves.dfs", bert.encode(layers=2, sequence=9), tmp_path)
    check(made)
    torch.manual_seed(0)
    ids = torch.randint(0, 512, (ROWS, 9))
    lengths = (9, 1, 4, 8, 2, 7, 3)
    mask = torch.arange(9)[None] < torch.tensor(lengths)[:, None]
    hidden, pooled = run(made, ids, mask)
    for row, length in enumerate(lengths):
        expected = made.spec.model(ids[row : row + 1, :length])
        close(hidden[row, :length], expected.last_hidden_state[0])
        close(pooled[row], expected.pooler_output[0])


@torch.no_grad()
def test_vit_in_pieces(tmp_path: Path) -> None:
    made = built("vit/halves.dfs", vit.classify(layers=2), tmp_path)
    check(made)
    torch.manual_seed(0)
    images = torch.randn(ROWS, 3, 32, 32)
    logits = run(made, images)
    for row in range(ROWS):
        close(logits[row], made.spec.model(images[row : row + 1]).logits[0])


@torch.no_grad()
def test_whisper_hears_each_recording_alone(tmp_path: Path) -> None:
    made = built("whisper/halves.dfs", whisper.encode(layers=2), tmp_path)
    check(made)
    torch.manual_seed(0)
    features = torch.randn(ROWS, 16, 24)
    hidden = run(made, features)
    encoder = made.spec.model.get_encoder()
    for row in range(ROWS):
        close(hidden[row], encoder(features[row : row + 1]).last_hidden_state[0])


@torch.no_grad()
def test_clip_reads_texts_up_to_their_end(tmp_path: Path) -> None:
    made = built("clip/text_halves.dfs", clip.text(layers=2, sequence=9), tmp_path)
    check(made)
    torch.manual_seed(0)
    ids = torch.randint(2, 511, (ROWS, 9))
    lengths = (9, 1, 4, 8, 2, 7, 3)
    for row, length in enumerate(lengths):
        ids[row, length - 1] = 511
    mask = torch.arange(9)[None] < torch.tensor(lengths)[:, None]
    features = run(made, ids, mask)
    assert features.std(0).min() > 1e-3
    for row, length in enumerate(lengths):
        expected = made.spec.model.get_text_features(ids[row : row + 1, :length])
        close(features[row], expected.pooler_output[0])


STEPS = 32


@torch.no_grad()
def test_mamba_goes_on_from_its_states(tmp_path: Path) -> None:
    """A prompt padded on the left, then 32 steps, against each whole text alone."""
    model = mamba.decode(layers=2, vocab=96).model
    spec = mamba.mamba_spec(model, sequence=5)
    made = built("mamba/halves.dfs", spec, tmp_path)
    check(made)
    executor = made.module.load(model, compile=False)
    torch.manual_seed(0)
    lengths = (5, 1, 4, 3, 2, 5, 3)
    ids = torch.randint(1, 96, (ROWS, 5))
    mask = torch.arange(5)[None] >= 5 - torch.tensor(lengths)[:, None]
    _, _, *states = spec.entries["decode"].arguments({"batch": ROWS})
    logits = [executor.prefill(ids, mask, *states)[:, -1]]
    tokens = []
    for _ in range(STEPS):
        tokens.append(logits[-1].argmax(-1)[:, None])
        here = torch.ones(ROWS, 1, dtype=torch.bool)
        logits.append(executor.decode(tokens[-1], here, *states)[:, -1])
    given, made_tokens = torch.stack(logits, 1), torch.cat(tokens, 1)
    for row, length in enumerate(lengths):
        text = torch.cat([ids[row, 5 - length :], made_tokens[row]])
        expected = model(text[None], use_cache=False).logits[0, -STEPS - 1 :]
        close(given[row], expected)
        assert len(set(made_tokens[row].tolist())) > 4


def test_a_prompt_of_mamba_has_two_tokens() -> None:
    with pytest.raises(ValueError, match="two tokens or more"):
        mamba.prefill(sequence=1)
