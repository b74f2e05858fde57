"""One engine in one process: starts that fail, caches, and steps that stay whole."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.vllm.engines import (
    generate,
    ran_in_pieces,
    scheduled,
    tokens,
    written,
)

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

HALVES = "std:vllm/halves.dfs"

_drawn = random.Random(2)
# One token, a prompt that fills blocks, and two of middling length.
PROMPTS = [_drawn.choices(range(512), k=length) for length in (1, 150, 40, 73)]
UNSCHEDULED: Mapping[str, Any] = {"compilation_config": {"mode": 0}}


@pytest.fixture(scope="module")
def expected(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    folder = tmp_path_factory.mktemp("unscheduled")
    return tokens(generate(model, folder, UNSCHEDULED, PROMPTS))


def test_it_is_loaded_from_the_engines_cache(
    model: Path, tmp_path: Path, expected: list[list[int]]
) -> None:
    config = scheduled(HALVES, tmp_path, compile=False)
    first = generate(model, tmp_path, config, PROMPTS)
    assert tokens(first) == expected
    assert ran_in_pieces(first.stdout + first.stderr)
    assert "saved AOT compiled function" in first.stdout + first.stderr
    again = generate(model, tmp_path, config, PROMPTS)
    assert tokens(again) == expected
    said = again.stdout + again.stderr
    assert "Directly load AOT compilation" in said
    assert ran_in_pieces(said)
    # A module that somebody changed is no longer what the cache speaks of.
    module = tmp_path / "executors" / "vllm_tokens.py"
    module.write_text(module.read_text() + "# changed\n")
    edited = generate(model, tmp_path, config, PROMPTS)
    assert edited.returncode != 0
    said = edited.stdout + edited.stderr
    assert "is not what it was compiled to" in said
    assert "error[DFS504]" in said


def test_metadata_of_another_piece_is_noticed(
    model: Path, tmp_path: Path, expected: list[list[int]]
) -> None:
    config = scheduled(HALVES, tmp_path, compile=False)
    # An even number of tokens: both halves are of one size.
    prompts = PROMPTS[1:3]
    assert sum(map(len, prompts)) % 2 == 0
    done = generate(model, tmp_path, config, prompts, EXCHANGED="1")
    assert tokens(done) != expected[1:3]


def test_without_its_cache(
    model: Path, tmp_path: Path, expected: list[list[int]]
) -> None:
    config = scheduled(HALVES, tmp_path, compile=False)
    done = generate(model, tmp_path, config, PROMPTS, VLLM_USE_AOT_COMPILE="0")
    assert tokens(done) == expected
    assert "AOT" not in done.stdout + done.stderr
    assert ran_in_pieces(done.stdout + done.stderr)


def test_weights_that_are_made_up(model: Path, tmp_path: Path) -> None:
    config = scheduled(HALVES, tmp_path, compile=False)
    done = generate(model, tmp_path, {**config, "load_format": "dummy"}, PROMPTS)
    plain = generate(model, tmp_path, {**UNSCHEDULED, "load_format": "dummy"}, PROMPTS)
    assert tokens(done) == tokens(plain)
    assert ran_in_pieces(done.stdout + done.stderr)


def test_a_prompt_that_another_one_writes_stays_with_it(
    model: Path, tmp_path: Path
) -> None:
    # The second is found in the blocks that the first one fills in the same step.
    prompts = [PROMPTS[1], [*PROMPTS[1], 3, 5, 7]]
    more = {"block_size": 32, "enable_prefix_caching": True}
    plain = generate(model, tmp_path, {**UNSCHEDULED, **more}, prompts)
    config = scheduled(HALVES, tmp_path, compile=False)
    done = generate(model, tmp_path, {**config, **more}, prompts)
    assert tokens(done) == tokens(plain)
    said = done.stdout + done.stderr
    assert "runs whole: a request reads blocks that another one writes" in said


@pytest.mark.parametrize("family", ["Qwen3", "Mistral"])
def test_other_decoders(tmp_path: Path, family: str) -> None:
    model = written(tmp_path, family)
    plain = generate(model, tmp_path / "plain", UNSCHEDULED, PROMPTS)
    folder = tmp_path / "halves"
    config = scheduled(HALVES, folder, compile=False)
    done = generate(model, folder, config, PROMPTS)
    assert tokens(done) == tokens(plain)
    assert ran_in_pieces(done.stdout + done.stderr)


WRONG = """dfs 1

schedule wrong:
    each layer in .layers.*:
        part attn = .self_attention
        part mlp  = rest

        order:
            attn
            mlp
"""


def test_a_schedule_that_does_not_fit_stops_the_start(
    model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.dfs"
    file.write_text(WRONG)
    done = generate(model, tmp_path, scheduled(str(file), tmp_path), PROMPTS)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "error[DFS201]" in said
    assert "wrong.dfs:5:21" in said
    assert "self_attn" in said
    assert not (tmp_path / "executors").exists()


def test_an_engine_whose_steps_cannot_be_cut_does_not_start(
    model: Path, tmp_path: Path
) -> None:
    drafts = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}
    config = scheduled(HALVES, tmp_path) | {"speculative_config": drafts}
    done = generate(model, tmp_path, config, PROMPTS[:1])
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "error[DFS821]" in said
    assert "cannot be cut: tokens are drafted (speculative decoding)" in said


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "the engine was given this backend and no schedule"),
        (
            {"dynaflow": {"schedule": HALVES, "disjoint": ["keys"]}},
            "'dynaflow' of --additional-config has no option 'disjoint'",
        ),
        ({"dynaflow": {"schedule": "nowhere.dfs"}}, "nowhere.dfs cannot be read"),
    ],
)
def test_what_is_missing_or_wrong_stops_the_start(
    model: Path, tmp_path: Path, config: dict[str, Any], reason: str
) -> None:
    whole = scheduled(HALVES, tmp_path) | {"additional_config": config}
    done = generate(model, tmp_path, whole, PROMPTS[:1])
    assert done.returncode != 0
    assert reason in done.stdout + done.stderr


def test_the_module_is_the_same_in_every_process(model: Path, tmp_path: Path) -> None:
    made = []
    for name in ("one", "other"):
        folder = tmp_path / name
        config = scheduled(HALVES, folder, compile=False)
        tokens(
            generate(model, folder, config, PROMPTS[:1], PYTHONHASHSEED=str(len(name)))
        )
        made.append((folder / "executors" / "vllm_tokens.py").read_text())
    assert made[0] == made[1]
    assert sys.executable not in made[0]
