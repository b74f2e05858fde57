"""Results that parts write where all pieces are: the same bits as joined pieces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl.models import llama
from dynaflow_dsl.runtime import Executor, inductor
from dynaflow_dsl.runtime import compile as compile_room
from dynaflow_dsl.runtime.errors import CheckError
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.end_to_end.building import Built, build, halves, run_verify

TOGETHER = """dfs 1

schedule together:
    stream side

    split batch into [2, 1] as piece

    each layer in .layers.*:
        part spread on side = .norm + .up + .act
        part mix = rest

        order:
            spread
            mix[*]
"""
RETURNED = """dfs 1

schedule returned:
    stream side

    split batch into 3 as piece

    each layer in .layers.*:
        part spread on {spread} = .norm + .up + .act
        part mix on {mix} = rest

        stagger piece by 1:
            spread
            mix
"""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(16), nn.Linear(16, 32)
        self.act, self.down = nn.ReLU(), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spread = self.act(self.up(self.norm(x)))
        return x + torch.tanh(self.down(spread))


class Stack(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def stack() -> TraceSpec:
    torch.manual_seed(0)
    return TraceSpec(
        model=Stack(4).eval(),
        entries={"run": Entry(lambda sizes: (torch.rand(sizes["batch"], 16),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, 4096)},
    )


FORMS = {
    "together": TOGETHER,
    "returned": RETURNED.format(spread="side", mix="main"),
    "returned from aside": RETURNED.format(spread="main", mix="side"),
}


def joined(made: Built) -> str:
    """The module with plain parts, whose results are copied where they belong."""
    pattern = r"self\.(\w+)_into\((.*?), (\w+\[\w+\])\)\n"
    text = re.sub(r"\(\n\s+(.*)\n\s+\)\n", r"(\1)\n", made.compiled.text)
    text, count = re.subn(pattern, r"\3.copy_(self.\1(\2))\n", text)
    assert count >= 2
    return text


def equal_to_joined(made: Built, arguments: Any, *, compile: bool) -> None:  # noqa: A002
    step = made.module.load(made.spec.model, compile=compile)
    other = made.mutated(joined(made)).load(made.spec.model, compile=compile)
    for batch in (3, 8, 33):
        given = [arguments(batch), arguments(batch)]
        assert torch.equal(step(*given[0]), other(*given[1]))


@pytest.mark.parametrize("name", FORMS)
def test_the_same_bits_as_joined_pieces(name: str, tmp_path: Path) -> None:
    made = build(stack(), FORMS[name], tmp_path)
    assert "torch.cat" not in made.compiled.text
    for report in run_verify(made, batches=(1, 3, 5, 9)):
        assert report.ok, str(report)

    def arguments(batch: int) -> Any:
        torch.manual_seed(batch)
        return made.spec.entries["run"].arguments({"batch": batch})

    equal_to_joined(made, arguments, compile=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_the_same_bits_compiled(name: str, tmp_path: Path) -> None:
    made = build(stack(), FORMS[name], tmp_path)

    def arguments(batch: int) -> Any:
        torch.manual_seed(batch)
        return made.spec.entries["run"].arguments({"batch": batch})

    equal_to_joined(made, arguments, compile=True)


@pytest.mark.slow
def test_a_decoder_layer_ends_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = llama.decode(layers=3)
    made = build(spec, halves(), tmp_path)
    assert "self.mlp_into(2, hidden_1, attn_1, hidden_whole[half_1])" in (
        made.compiled.text
    )
    compiled: list[str] = []
    real = inductor.compile_graph

    def noted(graph: torch.fx.GraphModule, *rest: Any) -> bytes:
        compiled.append(str(graph.graph))
        return real(graph, *rest)

    monkeypatch.setattr(compile_room, "compile_graph", noted)
    step = made.module.load(spec.model, cache=tmp_path / "cache")
    # One more than the parts have: the last layer's is compiled with the copy.
    assert sum("aten.copy_.default" in text for text in compiled) == 1
    assert isinstance(step, Executor)
    (report,) = run_verify(made, batches=(2, 5), compiled=True)
    assert report.ok, str(report)


def test_steps_are_checked_where_they_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFSC_CHECK", "1")
    made = build(stack(), FORMS["returned"], tmp_path)
    step = made.module.load(made.spec.model, compile=False)
    given = torch.rand(6, 16)
    torch.testing.assert_close(step(given), made.spec.model(given))
    wrong = made.compiled.text.replace("_whole[piece_2]", "_whole[piece_1]")
    other = made.mutated(wrong).load(made.spec.model, compile=False)
    with pytest.raises(CheckError):
        other(given)


def test_what_parts_write_is_checked_for_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFSC_CHECK", "1")
    made = build(stack(), FORMS["returned"], tmp_path)
    copy = "    aten.copy_.default(out, result)\n"
    assert made.compiled.text.count(copy) == 1
    wrong = made.compiled.text.replace(copy, f"{copy}    aten.div_.Scalar(out, 0.0)\n")
    step = made.mutated(wrong).load(made.spec.model, compile=False)
    with pytest.raises(CheckError, match=r"result 0 of mix\[0\], layer 3"):
        step(torch.rand(6, 16))


def test_who_writes_has_waited_for_the_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFSC_CHECK", "1")
    made = build(stack(), FORMS["returned from aside"], tmp_path)
    text = made.compiled.text
    found = re.search(r" +with main:\n +hidden_whole = (?:.*\n){3}", text)
    assert found is not None
    # Below the event that the writer waits for.
    at = text.index("    def step("), text.index("self.mix_into(")
    last = text.rindex("        with side:", *at)
    late = text[:last] + found[0] + text[last:]
    step = made.mutated(late.replace(found[0], "", 1)).load(
        made.spec.model, compile=False
    )
    with pytest.raises(CheckError, match="for which side has not waited"):
        step(torch.rand(6, 16))
