from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dynaflow_dsl.graph.model import Size
from dynaflow_dsl.trace import Entry
from tests.trace.specs import graph_of, module, refusal, spec_of


def spread(rows: int) -> Any:
    """An entry whose first tensor has `rows` rows for each of the second's."""

    def arguments(sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
        batch = sizes["batch"]
        return torch.rand(rows * batch, 4), torch.rand(batch, 4)

    return {"run": Entry(arguments)}


def options(axis: str, rows: int = 3) -> dict[str, Any]:
    return {
        "entries": spread(rows),
        "dims": {"many": (axis, None), "few": ("batch", None)},
        "dimensions": {"batch": (1, None)},
    }


def repeated(self: Any, many: torch.Tensor, few: torch.Tensor) -> torch.Tensor:
    return many + few.repeat(3, 1)


def test_an_axis_may_be_a_multiple_of_a_dimension() -> None:
    graph = graph_of(module(repeated), **options("3 * batch"))
    many, few = graph.inputs
    assert many.value.type.shape == (Size(3, ("batch",)), Size(4))
    assert few.value.type.shape == (Size(1, ("batch",)), Size(4))
    assert graph.dimensions == (("batch", 1, None),)


def test_the_multiple_alone_names_the_dimension() -> None:
    def doubled(self: Any, many: torch.Tensor) -> torch.Tensor:
        return many.view(-1, 3, 4) * 2

    given = options("3 * batch")
    given["entries"] = {"run": Entry(lambda sizes: spread(3)["run"].make(sizes)[:1])}
    del given["dims"]["few"]
    graph = graph_of(module(doubled), **given)
    assert graph.operations[-1].results[0] is not None
    assert graph.operations[-1].results[0].type.shape[0] == Size(1, ("batch",))


def test_examples_have_as_many_rows() -> None:
    said = refusal(spec_of(module(repeated), **options("2 * batch")))
    assert "should be 2 * batch, 6 in this example, but is 9" in said.message


def test_the_dimension_of_a_multiple_needs_bounds() -> None:
    said = refusal(spec_of(module(repeated), **options("3 * rows")))
    assert "names rows, a dimension without bounds" in said.message
