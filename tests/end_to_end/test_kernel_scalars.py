"""What a kernel takes beside tensors: numbers, texts and sizes that the model has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl.diagnostics import DiagnosticError, render
from dynaflow_dsl.runtime import kernel
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.end_to_end.building import build, run_verify


@torch.library.custom_op("dynaflow_test::spread", mutates_args=())
def spread(rows: torch.Tensor, room: int, ways: int, role: str) -> torch.Tensor:
    """`rows` once for each way, and zeros up to `room` rows."""
    assert role == "ep"
    made = rows.new_zeros(room, rows.shape[1])
    made[: ways * rows.shape[0]] = rows.repeat(ways, 1)
    return made


@spread.register_fake
def _(rows: torch.Tensor, room: int, ways: int, role: str) -> torch.Tensor:
    return rows.new_empty(room, rows.shape[1])


def spread_reference(
    hidden: torch.Tensor, room: int, ways: int, role: str
) -> torch.Tensor:
    rows = hidden.view(-1, hidden.shape[-1])
    made: torch.Tensor = torch.ops.dynaflow_test.spread(rows, room, ways, role)
    return made


given: list[tuple[int, int, str]] = []


@kernel(reference=spread_reference, mutates=())
def spread_kernel(
    hidden: torch.Tensor, room: int, ways: int, role: str
) -> torch.Tensor:
    given.append((room, ways, role))
    return spread_reference(hidden, room, ways, role)


def gathered(wide: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """`wide` has four rows for each of `hidden`, [batch, 2, width]."""
    return hidden + wide.view(2, *hidden.shape).sum(0)


gathered_kernel = kernel(reference=gathered, mutates=())(gathered)


def in_heads(
    wide: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, heads: int
) -> torch.Tensor:
    return torch.nn.functional.linear(wide, weight, bias).view(-1, heads, 4)


heads_kernel = kernel(reference=in_heads, mutates=())(in_heads)


class Spread(nn.Module):
    def forward(self, hidden: torch.Tensor) -> Any:
        rows = hidden.reshape(-1, hidden.shape[-1])
        return torch.ops.dynaflow_test.spread(rows, 4 * hidden.shape[0], 2, "ep")


class Gather(nn.Module):
    def forward(self, wide: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + wide.reshape(2, *hidden.shape).sum(0)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spread = Spread()
        self.up = nn.Linear(8, 8)
        self.gather = Gather()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        wide: torch.Tensor = self.up(self.spread(hidden))
        return self.gather(wide, hidden)  # type: ignore[no-any-return]


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def stack() -> TraceSpec:
    torch.manual_seed(0)
    return TraceSpec(
        model=Stack().eval(),
        entries={"run": Entry(lambda sizes: (torch.randn(sizes["batch"], 2, 8),))},
        dims={"hidden": ("batch", None, None)},
        dimensions={"batch": (1, None)},
    )


SCHEDULE = """dfs 1

kernel spread = "tests.end_to_end.test_kernel_scalars:spread_kernel"
kernel gather = "tests.end_to_end.test_kernel_scalars:gathered_kernel"

schedule scalars:
    each layer in .layers.*:
        part spread via spread{} = .spread
        part up = .up
        part gather via gather = rest

        order:
            spread
            up
            gather
"""


def test_what_the_model_has_there_is_bound(tmp_path: Path) -> None:
    built = build(stack(), SCHEDULE.format(""), tmp_path)
    assert "    batch = hidden_b.shape[0]\n" in built.compiled.text
    for argument in ("room=4 * batch", "ways=2", 'role="ep"'):
        assert argument in built.compiled.text
    given.clear()
    (report,) = run_verify(built, batches=(1, 3))
    assert report.ok, str(report)
    # The sizes are those of the step, not of the example that was traced.
    assert set(given) == {(4, 2, "ep"), (12, 2, "ep")}


def test_what_is_given_has_to_be_what_the_model_has(tmp_path: Path) -> None:
    with pytest.raises(DiagnosticError) as refused:
        build(stack(), SCHEDULE.format("(ways = 3)"), tmp_path)
    message = render(refused.value.diagnostics)
    assert "the part has 2 in dynaflow_test.spread.default" in message
    assert "the reference has 3" in message


def test_a_number_that_makes_shapes_has_to_be_given(tmp_path: Path) -> None:
    """Nothing fits a stand-in for it: the message says which number to give."""
    text = SCHEDULE.format("").replace("gathered_kernel", "heads_kernel")
    text = text.replace("part gather via gather = rest", "part gather = rest")
    text = text.replace("part up = .up", "part up via gather = .up")
    with pytest.raises(DiagnosticError) as refused:
        build(stack(), text, tmp_path)
    assert "via gather(heads = ...)" in render(refused.value.diagnostics)
