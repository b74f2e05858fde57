from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from dynaflow_dsl.verification.reference import run_reference
from tests.runtime.toy_model import Toy, make_arguments

HALVES = (slice(0, 3), slice(3, 5))


def export(model: nn.Module, *shapes: Any, arguments: tuple[Any, ...]) -> Any:
    with torch.no_grad():
        return torch.export.export(
            model.eval(), arguments, dynamic_shapes=shapes, strict=False
        )


def whole_nodes(exported: ExportedProgram, *operators: str) -> set[str]:
    return {
        node.name
        for node in exported.graph_module.graph.nodes
        if str(node.target) in operators
    }


def batch(minimum: int = 1) -> Any:
    return {0: Dim("batch", min=minimum, max=4096)}


def test_without_pieces_it_is_the_program(exported: ExportedProgram, toy: Toy) -> None:
    arguments = make_arguments(5)
    with torch.no_grad():
        expected = toy(*arguments)
    assert torch.equal(run_reference(exported, {}, arguments, (), ()), expected)


def test_weights_that_are_given_are_used(exported: ExportedProgram) -> None:
    weights = {"head.weight": torch.zeros(32, 16)}
    result = run_reference(exported, weights, make_arguments(2), (), ())
    assert torch.equal(result, torch.zeros(2, 1, 32))


def test_pieces_write_into_the_caller_s_tensors(
    exported: ExportedProgram, toy: Toy, whole: frozenset[str]
) -> None:
    arguments, expected = make_arguments(5), make_arguments(5)
    for one, other in zip(arguments[:3], expected[:3], strict=True):
        other.copy_(one)  # type: ignore[attr-defined]
    for k in (3, 4):
        for one, other in zip(arguments[k], expected[k], strict=True):  # type: ignore[call-overload]
            other.copy_(one)
    with torch.no_grad():
        logits = toy(*expected)
    result = run_reference(exported, {}, arguments, whole, HALVES)
    torch.testing.assert_close(result, logits)
    torch.testing.assert_close(arguments[3], expected[3])


def test_each_node_runs_on_its_side() -> None:
    class Sums(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x - x.amax(0), x * 2

    exported = export(Sums(), batch(), arguments=(torch.randn(4, 3),))
    x = torch.randn(5, 3)
    per_piece, doubled = run_reference(exported, {}, [x], (), HALVES)
    joined = torch.cat([x[:3] - x[:3].amax(0), x[3:] - x[3:].amax(0)])
    assert torch.equal(per_piece, joined)
    assert torch.equal(doubled, x * 2)
    once = whole_nodes(exported, "aten.amax.default")
    shared, _ = run_reference(exported, {}, [x], once, HALVES)
    assert torch.equal(shared, x - x.amax(0))


def test_views_and_sizes_are_taken_on_both_sides() -> None:
    class Views(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            flat = x.view(x.shape[0] * 3)
            return flat + 1, (flat * 2).sum()

    exported = export(Views(), batch(), arguments=(torch.randn(4, 3),))
    x = torch.randn(5, 3)
    once = whole_nodes(exported, "aten.mul.Tensor", "aten.sum.default")
    plus, total = run_reference(exported, {}, [x], once, HALVES)
    assert torch.equal(plus, x.view(15) + 1)
    assert torch.equal(total, (x.view(15) * 2).sum())


def test_writes_show_through_views_of_both_sides() -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            cache = x * 0  # whole
            before = cache + 1  # whole
            cache.add_(x)  # per piece
            return before, cache * 2  # whole

    exported = export(Writes(), batch(), arguments=(torch.randn(4, 3),))
    x = torch.randn(5, 3)
    once = whole_nodes(exported, "aten.mul.Tensor", "aten.add.Tensor")
    before, after = run_reference(exported, {}, [x], once, HALVES)
    assert torch.equal(before, torch.ones(5, 3))
    assert torch.equal(after, x * 2)


def test_joined_copies_do_not_outlive_a_later_write() -> None:
    class Late(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x + 1  # per piece
            early = y * 2  # whole
            y.neg_()  # per piece
            return early, y * 3  # whole

    exported = export(Late(), batch(), arguments=(torch.randn(4, 3),))
    x = torch.randn(5, 3)
    once = whole_nodes(exported, "aten.mul.Tensor")
    early, late = run_reference(exported, {}, [x], once, HALVES)
    assert torch.equal(early, (x + 1) * 2)
    assert torch.equal(late, -(x + 1) * 3)


def test_several_results_of_one_operation() -> None:
    class Sorts(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            values, order = x.sort(1)
            first, second = values.chunk(2, 1)
            return first + second, order + 1

    exported = export(Sorts(), batch(), arguments=(torch.randn(4, 4),))
    x = torch.randn(5, 4)
    for once in (set(), whole_nodes(exported, "aten.sort.default")):
        added, order = run_reference(exported, {}, [x], once, HALVES)
        values, expected = x.sort(1)
        assert torch.equal(added, values[:, :2] + values[:, 2:])
        assert torch.equal(order, expected + 1)


def test_another_axis_and_another_dimension() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x * 2)[:, :, None] + y.sum()

    exported = export(
        Two(),
        {1: Dim("tokens", min=1, max=99)},
        {0: Dim("rows", min=1, max=99)},
        arguments=(torch.randn(2, 7), torch.randn(3)),
    )
    x, y = torch.randn(2, 5), torch.randn(5)
    with pytest.raises(ValueError, match="has 2 dimensions: name one"):
        run_reference(exported, {}, [x, y], (), HALVES)
    result = run_reference(exported, {}, [x, y], (), HALVES, split_input=(0, 1))
    assert torch.equal(result, (x * 2)[:, :, None] + y.sum())
    with pytest.raises(ValueError, match="axis 0 of input 0 is not symbolic"):
        run_reference(exported, {}, [x, y], (), HALVES, split_input=(0, 0))


def test_values_that_cannot_be_cut() -> None:
    class Outer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x[:, None] * x[None, :]).relu()

    exported = export(Outer(), batch(), arguments=(torch.randn(4),))
    once = whole_nodes(exported, "aten.mul.Tensor")
    with pytest.raises(ValueError, match="cannot be cut along one dimension"):
        run_reference(exported, {}, [torch.randn(5)], once, HALVES)


def test_a_wrong_number_of_arguments(exported: ExportedProgram) -> None:
    with pytest.raises(ValueError, match="takes 9 tensors, 1 were given"):
        run_reference(exported, {}, [torch.zeros(1)], (), ())
