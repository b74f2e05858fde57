from __future__ import annotations

import pytest

from dynaflow_dsl.graph.memory import memory_order
from dynaflow_dsl.graph.model import Graph, Input, Size, TensorType, Value

BATCH = Size(1, ("batch",))


def order(shape: tuple[int | Size, ...], strides: tuple[int | Size, ...]) -> object:
    def sizes(given: tuple[int | Size, ...]) -> tuple[Size, ...]:
        return tuple(Size(one, ()) if isinstance(one, int) else one for one in given)

    layout = TensorType(sizes(shape), sizes(strides), "float32")
    value = Value("x", layout, 0)
    graph = Graph("run", (Input("x", "step", value, argument=0),), (), (), (), (), ())
    return memory_order(graph, "x")


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((BATCH, 12, 64), (768, 64, 1), ()),
        ((BATCH, 12, 64), (768, 1, 12), (0, 2, 1)),
        ((BATCH, 3, 4, 5), (60, 1, 15, 3), (0, 2, 3, 1)),
        # The batch lies inside.
        ((12, BATCH, 64), (Size(64, ("batch",)), 64, 1), ()),
        ((BATCH, 12, 64), (64, Size(64, ("batch",)), 1), (1, 0, 2)),
        # The stride of one element means nothing.
        ((BATCH, 1, 64), (64, 8192, 1), ()),
        ((BATCH, 1, 3, 4), (12, 1, 1, 3), (1, 0, 3, 2)),
        # A repetition, and a gap.
        ((BATCH, 12, 64), (64, 0, 1), ()),
        ((BATCH, 12, 64), (1536, 1, 24), ()),
    ],
)
def test_axes_as_they_lie(
    shape: tuple[int | Size, ...],
    strides: tuple[int | Size, ...],
    expected: tuple[int, ...],
) -> None:
    assert order(shape, strides) == expected


def test_an_unknown_value_is_a_defect() -> None:
    graph = Graph("run", (), (), (), (), (), ())
    with pytest.raises(KeyError):
        memory_order(graph, "y")
