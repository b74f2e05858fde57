"""What Triton makes of the shipped kernels for a GPU, which need not be there.

How it moves rows between ranks, which are long. Of an address that it loads it knows
nothing, and would go by single numbers.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from dynaflow_dsl.kernels import exchange_launches, launches  # noqa: E402

pytestmark = pytest.mark.slow

ROWS, NUMBERS, LONG, SHORT = "*bf16", "*fp32", "*i64", "*i32"
TILE = {"ROWS": 4, "BLOCK": 2048}
EXCHANGE = {"CHOICES": 2, **TILE}
CASES: list[tuple[Any, dict[str, str], dict[str, Any]]] = [
    (
        launches.add_norm_of_partials,
        {"partials": LONG, "epsilon": "fp32"},
        {"RANKS": 2, "ALIGNED": True, "BLOCK": 2048},
    ),
    (
        launches.add_partials_everywhere,
        {"partials": LONG, "outputs": LONG},
        {"RANKS": 4, "ALIGNED": True, "BLOCK": 2048},
    ),
    (
        exchange_launches.push_tokens,
        {"experts": LONG, "peers": LONG},
        {"ALIGNED": True, **EXCHANGE},
    ),
    (
        exchange_launches.spread_rows,
        {"places": SHORT, "needed": SHORT, "fits": "*i1"},
        {"RANKS": 2, **EXCHANGE},
    ),
    *(
        (
            exchange_launches.sum_for_others,
            {"places": SHORT, "weights": NUMBERS, "targets": LONG if push else ROWS},
            {"RANKS": 2, "NARROW": False, "PUSH": push, "ALIGNED": True, **EXCHANGE},
        )
        for push in (False, True)
    ),
    (
        exchange_launches.add_sums,
        {"places": SHORT, "weights": NUMBERS, "experts": LONG},
        {"RANKS": 4, "NARROW": False, **EXCHANGE},
    ),
]
SIZES = ("rows", "width", "tokens", "room", "local", "first", "last", "rank")


@pytest.mark.parametrize(
    ("function", "kinds", "constants"),
    CASES,
    ids=[f"{k}-{case[0].__name__}" for k, case in enumerate(CASES)],
)
def test_rows_are_moved_by_16_bytes(
    function: Any, kinds: dict[str, str], constants: dict[str, Any]
) -> None:
    signature, hints = {}, {}
    for place, name in enumerate(function.arg_names):
        size = "i32" if name in SIZES and name not in kinds else ROWS
        # `rows` are a number for all-reduces, and a tensor in exchanges.
        if name == "rows" and "CHOICES" in constants:
            size = ROWS
        signature[name] = "constexpr" if name in constants else kinds.get(name, size)
        if name == "width" or signature[name].startswith("*"):
            hints[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(function, signature, constants, hints)
    options = {"num_warps": 8, "enable_fp_fusion": True}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    moved = re.findall(r"\b(?:ld|st)\.global\S*\.(\w+)\s", made.asm["ptx"])
    whole = re.findall(r"\b(?:ld|st)\.global\S*\.v4\.b32\s", made.asm["ptx"])
    assert whole
    # A number of a row alone has 16 bits.
    assert not {"b16", "u16"} & set(moved), moved
