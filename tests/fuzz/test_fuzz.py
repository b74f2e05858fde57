"""Mutated schedules and snapshots through the commands that run no model.

Whatever the bytes, a command ends, with findings in words. The runs here are short; a
longer one takes its length in seconds from the environment:

    DFSC_FUZZ_SECONDS=600 python -m pytest tests/fuzz/test_fuzz.py -s

prints how many inputs were tried and what came of them. One with DFSC_FUZZ_SECONDS=90
for each test, on two cores shared with other work, tried 12252 schedules, 14141 with a
model, 20107 pairs and 18534 snapshots: 65034 inputs, no defect, none that took long.
"""

from __future__ import annotations

import json
import os
import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.graph.snapshot import dump_snapshot
from dynaflow_dsl.resources import folder
from tests.fuzz.mutate import mutate_bytes, mutate_json
from tests.fuzz.watching import diagnose
from tests.project.test_language_document import stand_in

EXAMPLES = Path(__file__).parents[1] / "syntax" / "examples"
FILES = sorted([*EXAMPLES.rglob("*.dfs"), *folder("schedules").rglob("*.dfs")])
TEXTS = [file.read_bytes() for file in FILES]

SCHEDULE = b"""\
dfs 1

parts block:
    part attn on side = .input_layernorm + .self_attn
    part mlp = rest

schedule halves(ways = 2):
    require layers >= ways
    stream side
    split batch into ways as half (align = 2)

    each layer in .model.layers.*:
        use block

        stagger half by 1:
            attn
            mlp
"""

SECONDS = float(os.environ.get("DFSC_FUZZ_SECONDS", "0"))
SCHEDULES, SNAPSHOTS = 250, 120
MEMORY = 400 * 2**20


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")


@pytest.fixture(scope="module")
def snapshot() -> str:
    model = TracedModel(
        target="package.module:function",
        arguments=(),
        model_class="Model",
        device="cpu",
        dtype="float32",
        captured_by="export",
        facts=(("layers", 4),),
        fingerprint=(),
        graphs=(stand_in(),),
    )
    return dump_snapshot(model)


def seeds(least: int) -> Iterator[int]:
    """So many seeds, or new ones for as long as the environment says."""
    if not SECONDS:
        yield from range(least)
        return
    start = random.SystemRandom().randrange(2**40)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield start
        start += 1


def fuzz(least: int, attempt: Callable[[random.Random], int]) -> None:
    """Try seeds; say which one failed, and hold the memory that they may take."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    codes: Counter[int] = Counter()
    for seed in seeds(least):
        try:
            codes[attempt(random.Random(seed))] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MEMORY
    listed = sorted((int(code), count) for code, count in codes.items())
    print(f"{codes.total()} inputs, by exit code {dict(listed)}")
    # Mutations that never get past the first line would try nothing.
    assert len(codes) > 1


def test_schedules_through_check_fmt_and_show() -> None:
    commands = (["check"], ["fmt", "--check"], ["fmt"], ["show"])

    def attempt(chance: random.Random) -> int:
        data = mutate_bytes(chance.choice(TEXTS), TEXTS, chance)
        Path("a.dfs").write_bytes(data)
        code, _ = diagnose(*chance.choice(commands), "a.dfs")
        return code

    fuzz(SCHEDULES, attempt)


def test_schedules_with_a_model(snapshot: str) -> None:
    Path("a.graph.json").write_text(snapshot)

    def attempt(chance: random.Random) -> int:
        Path("a.dfs").write_bytes(mutate_bytes(SCHEDULE, [SCHEDULE], chance))
        command = chance.choice((["check"], ["show"], ["show", "--parts"]))
        code, _ = diagnose(*command, "a.dfs")
        return code

    fuzz(SCHEDULES, attempt)


def test_pairs_of_schedules_through_diff() -> None:
    def attempt(chance: random.Random) -> int:
        data = chance.choice(TEXTS)
        Path("a.dfs").write_bytes(data)
        Path("b.dfs").write_bytes(mutate_bytes(data, TEXTS, chance))
        form = chance.choice(("text", "markdown", "json"))
        code, _ = diagnose("diff", "a.dfs", "b.dfs", "--as", form)
        return code

    fuzz(SCHEDULES, attempt)


def test_snapshots(snapshot: str) -> None:
    Path("a.dfs").write_bytes(SCHEDULE)

    def attempt(chance: random.Random) -> int:
        if chance.random() < 0.7:
            data = mutate_json(snapshot, chance).encode()
        else:
            data = mutate_bytes(snapshot.encode(), [snapshot.encode()], chance)
        Path("g.json").write_bytes(data)
        command = chance.choice((["check"], ["show"], ["show", "--parts"]))
        code, _ = diagnose(*command, "a.dfs", "--graph", "g.json")
        return code

    fuzz(SNAPSHOTS, attempt)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=300))
def test_any_bytes_as_a_schedule(data: bytes) -> None:
    Path("a.dfs").write_bytes(data)
    diagnose("check", "a.dfs")


@settings(deadline=None, max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    )
)
def test_any_json_as_a_snapshot(document: object) -> None:
    Path("a.dfs").write_bytes(SCHEDULE)
    Path("g.json").write_text(json.dumps(document))
    code, _ = diagnose("check", "a.dfs", "--graph", "g.json")
    assert code in (1, 2)
