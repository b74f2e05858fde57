"""Collectives in place, as models for ranks have them, in graphs of Dynamo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from dynaflow_dsl.integrations import report
from dynaflow_dsl.integrations.dynamo.replay import ReplayInterpreter
from tests.integrations.dynamo.compiling import compiled
from tests.integrations.dynamo.models import Block, Stack, write

REDUCED = """dfs 1

schedule reduced:
    stream comm

    split batch into 2 as half

    each layer in .layers.*:
        part reduce on comm = all_reduce in .
        part compute = .norm + .up + .down

        stagger half by 1:
            compute
            reduce
"""


@pytest.fixture(autouse=True)
def two_ranks() -> Iterator[None]:
    """As if this were the first process of two."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    distributed.destroy_process_group()


class ReducingBlock(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(torch.relu(self.up(self.norm(x))))
        distributed.all_reduce(y.contiguous())
        return x + y


def test_a_reduction_in_place_is_a_part(tmp_path: Path) -> None:
    model = Stack()
    model.layers = torch.nn.ModuleList(ReducingBlock() for _ in range(3))
    model.eval()
    step = compiled(model, write(tmp_path, REDUCED, "reduced.dfs"))
    x = torch.randn(6, 8)
    torch.testing.assert_close(step(x), model(x))
    (graph,) = report().graphs
    assert [name for name, _ in graph.parts] == ["compute", "reduce"]
    text = (tmp_path / "executors" / "reduced.py").read_text()
    assert "all_reduce" in text
    assert "copy_" not in text


def fresh(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    y = x * 3
    distributed.all_reduce(y)
    return y + cache


def the_same_tensor(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    y = x * 3
    distributed.all_reduce(y.contiguous())
    return y + cache


def written_again(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    y = x * 3
    distributed.all_reduce(y)
    y.add_(1)
    return y + cache


def returned_too(x: torch.Tensor, cache: torch.Tensor) -> Any:
    y = x * 3
    distributed.all_reduce(y)
    return y, y + cache


def made_first(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x).fill_(2)
    distributed.all_reduce(y)
    return y + x


def seen_through_a_view(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    y = x * 3
    row = y[1]
    distributed.all_reduce(y)
    return y + row


def a_view(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    y = x * 3
    distributed.all_reduce(y[:2])
    return y + cache


def an_input(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    distributed.all_reduce(cache)
    return x + cache


def a_view_of_an_input(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    distributed.all_reduce(cache.view(-1))
    return x + cache


def transposed(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    y = (x * 3).t()
    distributed.all_reduce(y)
    return y + cache.t()


class OfTwoRanks(ReplayInterpreter):
    """As if the other rank had the same numbers; keeps what is called."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph, torch.nn.Module())
        self.copies = 0

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if "all_reduce" in str(target):
            return args[0].contiguous() * 2
        return super().call_function(target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        self.copies += target == "copy_"
        return super().call_method(target, args, kwargs)


@pytest.mark.parametrize(
    ("function", "copies"),
    [
        (fresh, 0),
        (the_same_tensor, 0),
        (written_again, 0),
        (returned_too, 0),
        (made_first, 0),
        (seen_through_a_view, 1),
        (a_view, 1),
        (an_input, 1),
        (a_view_of_an_input, 1),
        (transposed, 1),
    ],
)
def test_what_is_copied_back(
    function: Callable[..., Any], copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[tuple[torch.fx.GraphModule, list[Any]]] = []

    def backend(graph: torch.fx.GraphModule, examples: list[Any]) -> Any:
        handed.append((graph, examples))
        return graph.forward

    given = torch.randn(4, 4), torch.randn(4, 4)
    captured = [each.clone() for each in given]
    torch.compile(function, backend=backend, fullgraph=True)(*captured)
    ((graph, examples),) = handed
    replayed = [each.clone() for each in given]
    places = {id(each): place for place, each in enumerate(captured)}
    interpreter = OfTwoRanks(graph)
    found = interpreter.run(*(replayed[places[id(each)]] for each in examples))
    monkeypatch.setattr(distributed, "all_reduce", lambda tensor: tensor.mul_(2))
    eager = [each.clone() for each in given]
    expected = function(*eager)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted)
    for got, wanted in zip(replayed, eager, strict=True):
        torch.testing.assert_close(got, wanted)
    assert interpreter.copies == copies
