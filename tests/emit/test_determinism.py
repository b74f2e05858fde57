from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

from tests.emit.formatting import formatted
from tests.plan.layered import Layered
from tests.prove.schedules import TWO, Scheduled, order, scheduled, schedules

ROOT = Path(__file__).parents[2]


def printed(seed: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "tests.emit.probe"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
    )
    return done.stdout


def test_the_same_bytes_under_any_hash_seed() -> None:
    one, other = printed("1"), printed("4242")
    assert b"def step(self" in one
    assert one == other


def test_nothing_changes_by_itself() -> None:
    for name in ("halves", "three streams"):
        assert schedules()[name].text() == schedules()[name].text()
        assert str(ROOT) not in schedules()[name].text()


def four(*windows: str) -> Scheduled:
    return scheduled(TWO, {"attn": "side"}, 4, order(*windows), "side")


def test_exchanged_windows_change_their_blocks_alone() -> None:
    windows = [
        "attn[0] | prev.mlp[3]",
        "attn[1] | mlp[0]",
        "attn[2] | mlp[1]",
        "attn[3] | mlp[2]",
    ]
    before = four(*windows).text().split("\n")
    after = four(windows[0], windows[1], "attn[2]", "attn[3] | mlp[1]", "mlp[2]").text()
    changed = [
        line
        for line in difflib.unified_diff(before, after.split("\n"), lineterm="", n=0)
        if line[0] in "+-" and line[:3] not in ("+++", "---")
    ]
    # The schedule's digest in the header, and what the last three windows hold.
    text = "\n".join(changed)
    assert "schedule " in changed[0]
    for untouched in ("attn_0 =", "attn_1 =", "hidden_0 =", "def ", "Part("):
        assert untouched not in text, changed


def test_more_layers_change_numbers_alone() -> None:
    deep = Layered(TWO.shapes, 32, TWO.results, TWO.head)
    two = scheduled(TWO, {"attn": "side"}, 1, order("attn", "mlp"), "side").text()
    many = scheduled(deep, {"attn": "side"}, 1, order("attn", "mlp"), "side").text()
    assert formatted(many) == many
    assert len(two.split("\n")) == len(many.split("\n"))
    pairs = zip(two.split("\n"), many.split("\n"), strict=True)
    differing = [right for left, right in pairs if left != right]
    # The digests in the header; the loop's end; the number of layers; the last layer.
    header, *rest = differing
    assert header.startswith("# module format")
    assert rest
    assert all("31" in line or "32" in line for line in rest)
