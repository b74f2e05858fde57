"""The simulated tables are those of the saved runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["simulated_slow_links", "simulated_moe_two_batch"])
def test_tables_are_those_of_the_saved_runs(name: str) -> None:
    path = f"benchmarks/results/{name}.json"
    saved = json.loads((ROOT / path).read_text(encoding="utf-8"))
    assert saved["simulated"] is True
    _, link, after = TEXT.partition(f"](../{path})")
    assert link
    lines = after.splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("| ranks"))
    table = lines[first + 2 : first + 2 + len(saved["points"])]
    assert table == [
        f"| {point['ranks']} | {point['sequential'] * 1e3:.2f} ms "
        f"| {point['scheduled'] * 1e3:.2f} ms | {point['speedup']:.3f} "
        f"| {point['bound']:.3f} |"
        for point in saved["points"]
    ]
    said = f"Two ranks have measured {saved['measured']['speedup']:.3f}."
    assert lines[first + 2 + len(table) + 1] == said
