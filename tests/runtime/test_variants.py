from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import Executor, LoadError, Part, TensorSpec
from dynaflow_dsl.runtime.inputs import InputSpecs
from dynaflow_dsl.runtime.traced_text import trace_text
from dynaflow_dsl.runtime.variants import (
    Literal,
    SizeInput,
    TensorLayout,
    Variant,
    dimensions_of,
    observe,
)

aten = torch.ops.aten
CPU = torch.device("cpu")
TABLE = torch.arange(4.0)


class WithoutKernels(Executor):
    """The parts of these tests are handed over as functions; none is a kernel."""

    @staticmethod
    def parts() -> dict[str, Part]:
        return {}


def executor_of(run: Callable[..., Any], **inputs: TensorSpec) -> type[Executor]:
    """An executor whose `sequential` is `run(self, ...)`."""
    body = {"entry": "test", "inputs": inputs, "sequential": run, "step": run}
    return type("Tested", (WithoutKernels,), body)


def observed(
    function: Callable[..., Any],
    run: Callable[..., Any],
    iterations: int = 1,
    **inputs: TensorSpec,
) -> dict[tuple[str, int], Variant]:
    weights: list[dict[str, torch.Tensor]] = [{} for _ in range(iterations)]
    return observe(
        executor_of(run, **inputs),
        {"part": [function] * iterations},
        {"part": weights},
        CPU,
    ).variants


def variant_of(function: Callable[..., Any], *arguments: Any) -> Variant:
    return Variant(function, (), arguments)


ROWS = TensorLayout(("batch", 4), (4, 1), torch.float32, CPU)


def targets(variant: Variant) -> list[str]:
    graph = trace_text(variant, "part").graph.graph
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def test_layouts_are_written_over_the_dimensions() -> None:
    def part(w: object, hidden: torch.Tensor) -> torch.Tensor:
        batch = hidden.shape[0]
        flat: torch.Tensor = aten.view.default(hidden, [4 * batch])
        return flat

    def run(self: Any, hidden: torch.Tensor) -> Any:
        return self.part(1, self.part(0, hidden).view(hidden.shape[0], 4))

    found = observed(part, run, 2, hidden=TensorSpec("float32", "batch", 4))
    assert found["part", 0].arguments == (ROWS,)
    assert found["part", 0] == found["part", 1]


def test_repeated_layers_run_once() -> None:
    ran: list[int] = []

    def part(w: object, hidden: torch.Tensor) -> torch.Tensor:
        ran.append(1)
        return hidden + 1

    def run(self: Any, hidden: torch.Tensor) -> Any:
        for i in range(50):
            hidden = self.part(i, hidden)
        return hidden

    assert len(observed(part, run, 50, hidden=TensorSpec("float32", "batch", 4))) == 50
    assert len(ran) == 1


def test_an_expanded_input_keeps_its_zero_stride() -> None:
    def part(w: object, bias: torch.Tensor) -> torch.Tensor:
        return bias + 1

    def run(self: Any, mask: torch.Tensor) -> Any:
        return self.part(0, mask[:, None, :].expand(-1, 2, -1))

    found = observed(part, run, mask=TensorSpec("float32", "batch", 3))
    (layout,) = found["part", 0].arguments
    assert layout == TensorLayout(("batch", 2, 3), (3, 0, 1), torch.float32, CPU)


def test_sizes_and_literals_are_told_apart() -> None:
    def part(w: object, size: int, fill: float, *, name: None = None) -> torch.Tensor:
        filled: torch.Tensor = aten.full.default([size, 2], fill)
        return filled

    def run(self: Any, ids: torch.Tensor) -> Any:
        return self.part(0, ids.shape[0], 0.5)

    found = observed(part, run, ids=TensorSpec("int64", "batch"))
    assert found["part", 0].arguments == (SizeInput("batch"), Literal(0.5))


def test_dimensions_in_order_of_appearance() -> None:
    inputs: InputSpecs = {
        "a": TensorSpec("float32", "rows", 3),
        "b": [TensorSpec("float32", "2 * batch", "rows")],
    }
    assert dimensions_of(inputs) == ("rows", "batch")


def test_one_size_only_is_refused() -> None:
    def part(w: object, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.view(16, 4) + torch.zeros(16, 4)

    def run(self: Any, hidden: torch.Tensor) -> Any:
        return self.part(0, hidden)

    with pytest.raises(LoadError, match="only hold for batch = 16") as caught:
        observed(part, run, hidden=TensorSpec("float32", "batch", 4))
    assert caught.value.code == "DFS805"


def test_writes_to_shared_memory_are_refused() -> None:
    def part(w: object, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        one.add_(1)
        return other + 1

    def run(self: Any, hidden: torch.Tensor) -> Any:
        return self.part(0, hidden[:, :2], hidden[:, 2:])

    with pytest.raises(LoadError, match=r"share \(inputs 0, 1"):
        observed(part, run, hidden=TensorSpec("float32", "batch", 4))


def test_reads_of_shared_memory_are_fine() -> None:
    def part(w: object, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one + other

    def run(self: Any, hidden: torch.Tensor) -> Any:
        return self.part(0, hidden[:, :2], hidden[:, 2:])

    assert observed(part, run, hidden=TensorSpec("float32", "batch", 4))


def test_other_arguments_are_refused() -> None:
    def run(self: Any, hidden: torch.Tensor) -> Any:
        return self.part(0, [hidden])

    with pytest.raises(LoadError, match="called with a list"):
        observed(print, run, hidden=TensorSpec("float32", "batch", 4))


def test_operators_without_traced_inputs_are_recorded() -> None:
    def part(w: object, hidden: Any) -> Any:
        batch = hidden.shape[0]
        zeros = aten.zeros.default([4])
        aten.fill_.Scalar(zeros, 2)
        rows = aten.full.default([batch, 4], 1.0)
        return aten.add.Tensor(aten.add.Tensor(hidden, zeros), rows)

    assert targets(variant_of(part, ROWS))[-5:] == [
        "aten.zeros.default",
        "aten.fill_.Scalar",
        "aten.full.default",
        "aten.add.Tensor",
        "aten.add.Tensor",
    ]


def test_tensors_of_the_text_become_inputs() -> None:
    def part(w: object, hidden: Any) -> Any:
        return aten.add.Tensor(aten.mul.Tensor(hidden, TABLE), TABLE)

    traced = trace_text(variant_of(part, ROWS), "part")
    assert [constant is TABLE for constant in traced.constants] == [True]
    nodes = [node.name for node in traced.graph.graph.nodes if node.op == "placeholder"]
    assert nodes == ["input_0", "constant_0"]
    hidden = torch.randn(3, 4)
    (result,) = traced.graph(hidden, *traced.constants)
    torch.testing.assert_close(result, hidden * TABLE + TABLE)


def test_writes_to_a_tensor_of_the_text_are_refused() -> None:
    def part(w: object, hidden: Any) -> Any:
        return aten.add_.Tensor(TABLE, hidden)

    with pytest.raises(LoadError, match="writes into a constant"):
        trace_text(variant_of(part, ROWS), "part")


def test_decisions_by_size_are_refused() -> None:
    def part(w: object, hidden: Any) -> Any:
        return hidden if hidden.shape[0] > 2 else aten.relu.default(hidden)

    with pytest.raises(LoadError, match="decides by a tensor or a size"):
        trace_text(variant_of(part, ROWS), "part")


@pytest.mark.parametrize(
    ("returned", "outputs"),
    [
        (lambda hidden: None, "none"),
        (lambda hidden: hidden, "tensor"),
        (lambda hidden: (hidden,), "tuple"),
    ],
)
def test_what_a_function_returns(returned: Callable[[Any], Any], outputs: str) -> None:
    def part(w: object, hidden: Any) -> Any:
        return returned(hidden)

    assert trace_text(variant_of(part, ROWS), "part").outputs == outputs
