"""Schedules of several shapes on one model: right results however they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.models import llama
from tests.end_to_end.building import Built, build, halves, run_verify

NANO = """dfs 1

schedule nano:
    stream memory

    split batch into [0.4, 0.3, 0.3] as nb

    each layer in .model.layers.*:
        part qkv = (
            .input_layernorm + .self_attn.q_proj + .self_attn.k_proj + .self_attn.v_proj
        )
        part o = .self_attn.o_proj
        part attn on memory = .self_attn - qkv - o
        part ffn = .post_attention_layernorm + .mlp

        order:
            qkv[0]
            qkv[1] | attn[0]
            qkv[2] | attn[1]
            o[0]   | attn[2]
            o[1]
            o[2]
            ffn
"""

FOUR = """dfs 1

schedule four:
    stream side

    split batch into 4 as q

    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest

        order:
            attn[0] | prev.mlp[3]
            attn[1] | mlp[0]
            attn[2] | mlp[1]
            attn[3] | mlp[2]
"""

STAGES = """dfs 1

schedule stages:
    stream a
    stream b

    split batch into [3, 2, 1] as t

    each layer in .model.layers.*:
        part attn on a = .input_layernorm + .self_attn
        part up on b = (
            .post_attention_layernorm + .mlp.gate_proj + .mlp.up_proj + .mlp.act_fn
        )
        part down = rest

        stagger t by 1:
            attn
            up
            down
"""

BESIDE = """dfs 1

schedule beside:
    stream side

    each layer in .model.layers.*:
        part attn = .input_layernorm + .self_attn
        part norm = .post_attention_layernorm
        part gate = .mlp.gate_proj + .mlp.act_fn
        part up on side = .mlp.up_proj
        part down = rest

        order:
            attn, norm
            gate | up
            down
"""

PLAIN = """dfs 1

schedule plain:
    each layer in .model.layers.*:
        part attn = .input_layernorm + .self_attn
        part mlp = rest

        order:
            attn, mlp
"""

SCHEDULES = {
    "halves": halves(),
    "both": halves("both", attn="[main, side]", mlp="[main, side]"),
    "uneven": halves("uneven", pieces="[2, 1]"),
    "nano": NANO,
    "four": FOUR,
    "stages": STAGES,
    "beside": BESIDE,
    "plain": PLAIN,
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("layers", [1, 2, 5])
def test_text_equals_the_reference_bit_for_bit(
    name: str, layers: int, tmp_path: Path
) -> None:
    built = build(llama.decode(layers=layers), SCHEDULES[name], tmp_path)
    for report in run_verify(built, batches=(1, 2, 3, 7)):
        assert report.ok, str(report)


def test_prefill_and_decode_in_one_module(tmp_path: Path) -> None:
    built = build(llama.serve(layers=3), halves(), tmp_path)
    reports = run_verify(built, batches=(1, 3))
    assert [report.entry for report in reports] == ["decode", "prefill"]
    assert all(report.ok for report in reports), "\n".join(map(str, reports))


@pytest.mark.slow
def test_compiled_halves(tmp_path: Path) -> None:
    built = build(llama.decode(layers=3), halves(), tmp_path)
    (report,) = run_verify(built, batches=(1, 2, 5), compiled=True)
    assert report.ok, str(report)
    assert any(c.what == "compiled" for c in report.comparisons)


def claims(built: Built) -> set[frozenset[str]]:
    (report,) = run_verify(built, batches=(4,))
    return {frozenset(pair) for pair in report.recordings[0].concurrent}


def test_windows_are_really_unordered(tmp_path: Path) -> None:
    built = build(llama.decode(layers=3), halves(), tmp_path)
    assert claims(built) == {
        frozenset({"attn[0]", "prev.mlp[1]"}),
        frozenset({"attn[1]", "mlp[0]"}),
    }
