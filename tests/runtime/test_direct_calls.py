"""The compiler's wrapper is left out only where it has nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import compile as compile_room
from dynaflow_dsl.runtime import inductor
from dynaflow_dsl.runtime.inductor import Boxed
from tests.runtime.test_compile import ROWS, compiled, plain

pytestmark = pytest.mark.slow

aten = torch.ops.aten


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each compiled part went without its wrapper."""
    seen: list[bool] = []

    def watch(boxed: Boxed, outputs: int) -> Boxed:
        inner = inductor.without_wrapper(boxed, outputs)
        seen.append(inner is not boxed)
        return inner

    monkeypatch.setattr(compile_room, "without_wrapper", watch)
    return seen


def new_tensors(w: Any, x: torch.Tensor) -> Any:
    return aten.relu.default(x), aten.add.Tensor(x, 1.0)


def write_and_read(w: Any, x: torch.Tensor) -> Any:
    aten.add_.Tensor(x, 1.0)
    return aten.mul.Tensor(x, 2.0)


def an_input(w: Any, x: torch.Tensor) -> Any:
    aten.add_.Tensor(x, 1.0)
    return x


def views_of_one(w: Any, x: torch.Tensor) -> Any:
    y = aten.relu.default(x)
    return y, aten.transpose.int(y, 0, 1)


@pytest.mark.parametrize("function", [new_tensors, write_and_read])
def test_new_outputs_need_no_wrapper(
    function: Callable[..., Any], tmp_path: Path, direct: list[bool]
) -> None:
    part = compiled(tmp_path, function, plain, x=ROWS)
    assert direct == [True]
    for batch in (1, 2, 5):
        given = torch.randn(batch, 4)
        own, other = given.clone(), given.clone()
        torch.testing.assert_close(part(own), function(None, other))
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize("function", [an_input, views_of_one])
def test_outputs_that_share_memory_keep_it(
    function: Callable[..., Any], tmp_path: Path, direct: list[bool]
) -> None:
    part = compiled(tmp_path, function, plain, x=ROWS)
    assert direct == []
    given = torch.randn(3, 4)
    own, other = given.clone(), given.clone()
    torch.testing.assert_close(part(own), function(None, other))
    torch.testing.assert_close(own, other)


def test_another_number_of_outputs_keeps_the_wrapper() -> None:
    class Code:
        current_callable = staticmethod(lambda given: given)
        output_strides = ((1,), (1,))

    code: Any = Code()
    assert inductor.without_wrapper(code, 2) is code.current_callable
    assert inductor.without_wrapper(code, 1) is code
