"""Which last operations are compiled together with a copy of what they make.

What the rule says of a function is compared with the kernels that Inductor calls for it
with and without the copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch.nn.functional import layer_norm, linear

from dynaflow_dsl.bind.kernels import types_of
from dynaflow_dsl.graph.tails import takes_a_copy
from tests.graph.rowwise.tracing import rows, shared, traced

ROWS, TOKENS, WEIGHT = (8, 16), (8, 3, 16), (16, 16)

Made = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
FREE: dict[str, tuple[Made, tuple[int, ...]]] = {
    "pointwise": (lambda x, y, w: torch.relu(x + y), ROWS),
    "after a product": (lambda x, y, w: torch.relu(linear(x, w)), ROWS),
    "a view of it": (lambda x, y, w: torch.relu(x + y).view(-1, 4, 4), ROWS),
    "a product of rows of rows, added": (lambda x, y, w: y + linear(x, w), TOKENS),
    "a product, scaled and added": (lambda x, y, w: y + 2 * linear(x, w), ROWS),
    "a norm": (lambda x, y, w: layer_norm(x + y, [16]), ROWS),
    "a softmax": (lambda x, y, w: torch.softmax(x + y, -1), ROWS),
    "a mean": (lambda x, y, w: (x + y).mean(-1), ROWS),
    "another dtype": (lambda x, y, w: linear(x, w).to(torch.float64), ROWS),
}
NOT_FREE: dict[str, tuple[Made, tuple[int, ...]]] = {
    "a product": (lambda x, y, w: linear(x + y, w), ROWS),
    "a view of a product": (lambda x, y, w: linear(x, w).view(-1, 4, 4), ROWS),
    "a product, added": (lambda x, y, w: y + linear(x, w), ROWS),
    "a product, and something added": (lambda x, y, w: linear(x, w) + y, ROWS),
}


def fuses(made: Made, shape: tuple[int, ...]) -> bool:
    given = (rows(*shape[1:]), rows(*shape[1:]), shared(*WEIGHT))
    graph = traced(made, given)
    (value,) = graph.outputs
    return takes_a_copy(value, graph.operations, types_of(graph))


def launches(function: Callable[..., Any], *arguments: torch.Tensor) -> int:
    """The kernels that the compiled function calls, libraries' included."""
    torch._dynamo.reset()
    with torch.no_grad():
        _, (code, *_) = run_and_get_code(
            torch.compile(function, dynamic=True), *arguments
        )
    body = code.split("def call(")[1]
    return len(re.findall(r"^\s+(?:cpp_fused\w*|extern_kernels\.\w+)\(", body, re.M))


def further_launches(made: Made, shape: tuple[int, ...]) -> int:
    torch.manual_seed(0)
    given = [torch.randn(shape), torch.randn(shape), torch.randn(WEIGHT)]
    whole = torch.empty_like(made(*given).repeat(2, *[1] * (made(*given).dim() - 1)))

    def into(out: torch.Tensor, *arguments: torch.Tensor) -> None:
        out.copy_(made(*arguments))

    out = whole[len(whole) // 2 :]
    added = launches(into, out, *given) - launches(made, *given)
    assert torch.equal(out, torch.compile(made, dynamic=True)(*given))
    return added


@pytest.mark.parametrize("name", FREE)
def test_what_writes_a_copy_for_free(name: str) -> None:
    assert fuses(*FREE[name])


@pytest.mark.parametrize("name", NOT_FREE)
def test_what_does_not(name: str) -> None:
    assert not fuses(*NOT_FREE[name])


def test_what_is_handed_on_is_made_elsewhere() -> None:
    assert not fuses(lambda x, y, w: x.view(-1, 4, 4), ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("name", FREE)
def test_the_compiler_calls_no_further_kernel(name: str) -> None:
    assert further_launches(*FREE[name]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_FREE)
def test_the_compiler_calls_one_more_kernel(name: str) -> None:
    assert further_launches(*NOT_FREE[name]) == 1
