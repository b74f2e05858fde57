"""How a value lies in memory."""

from __future__ import annotations

from dynaflow_dsl.graph.model import Graph, Size, TensorType, Value

_ONE = Size(1, ())


def memory_order(graph: Graph, name: str) -> tuple[int, ...]:
    """The axes of a value as they lie in memory, outermost first.

    Empty where they lie from the first to the last, and for values with gaps or
    repetitions, whose memory is no permutation. Raises KeyError for an unknown name.
    """
    for value in _values(graph):
        if value.name == name:
            return _order(value.type)
    raise KeyError(name)


def _order(layout: TensorType) -> tuple[int, ...]:
    # The stride of an axis with one element means nothing.
    single = [axis for axis, size in enumerate(layout.shape) if size == _ONE]
    others = [axis for axis, size in enumerate(layout.shape) if size != _ONE]
    axes = sorted(others, key=lambda axis: _extent(layout.strides[axis]), reverse=True)
    step = _ONE
    for axis in reversed(axes):
        if layout.strides[axis] != step:
            return ()
        step = step * layout.shape[axis]
    return () if axes == others else (*single, *axes)


def _extent(stride: Size) -> tuple[int, int]:
    """Sorts strides of dense tensors: those with more dimensions lie further out."""
    return len(stride.dimensions), stride.factor


def _values(graph: Graph) -> list[Value]:
    made = [value for one in graph.operations for value in one.results if value]
    return [*(item.value for item in graph.inputs), *made]
