"""Functions that choose: their text is Python, formatted, and means the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emit.formatting import formatted
from tests.emit.models import compiled, llama_traced

SCHEDULE = """
schedule halves:
    stream side
    split batch into 2 as half
    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest
        stagger half by 1:
            attn
            mlp
"""
CONDITIONS = {
    "batch >= 4": "batch >= 4",
    "not (batch < 4 or batch > 8)": "not (batch < 4 or batch > 8)",
    "not batch < 4 and batch != 6": "not batch < 4 and batch != 6",
    "batch - (3 - batch) > batch": "batch - (3 - batch) > batch",
    "batch - 3 - batch * 2 > 2 - 11": "batch - 3 - batch * 2 > -9",
    "batch // (batch + 1) * 2 == 0 and batch % 4 in [1, 2]": (
        "batch // (batch + 1) * 2 == 0 and batch % 4 in (1, 2)"
    ),
    "batch in [4]": "batch in (4,)",
    "layers == 3 and batch * seq >= 2 * layers": "batch * 1 >= 6",
    "(batch > 2 or layers == 4) and (batch < 6 or batch > 9)": (
        "batch > 2 and (batch < 6 or batch > 9)"
    ),
    "batch * 0.25 >= 1.5": "batch * Fraction(1, 4) >= Fraction(3, 2)",
}
LONG = " or ".join(f"batch % 100 in [{k}, {k + 1}, {k + 2}]" for k in range(0, 50, 10))


def module(condition: str) -> str:
    text = f"""dfs 1

select pick:
    when phase == decode and ({condition}): halves
    else: sequential
{SCHEDULE}"""
    return compiled(text, llama_traced()[1]).text


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_are_folded_and_written_with_few_brackets(condition: str) -> None:
    text = module(condition)
    assert f"    if {CONDITIONS[condition]}:\n" in text
    assert formatted(text) == text


def test_a_long_condition_goes_over_lines() -> None:
    text = module(LONG)
    assert (
        "    if (\n        batch % 100 in (0, 1, 2)\n        or batch % 100 in" in text
    )
    assert formatted(text) == text
    start = text.index("def choose_decode")
    names: dict[str, Any] = {}
    source = text[start : text.index("def choose_prefill")]
    source = source.replace("HalvesDecode.step", "True")
    exec(source.replace("HalvesDecode.sequential", "False"), names)
    for batch in range(1, 250):
        wanted = any(batch % 100 in (k, k + 1, k + 2) for k in range(0, 50, 10))
        assert names["choose_decode"](batch) is wanted
