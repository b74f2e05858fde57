from collections.abc import Callable
from dataclasses import replace

import pytest

from dynaflow_dsl.graph.digest import graph_digest
from dynaflow_dsl.graph.model import Graph, Reference, TensorType, Value
from tests.graph.sample import ROWS, sample

GRAPH = sample().graphs[0]


def operation(index: int, **changes: object) -> Graph:
    """The sample with one operation changed."""
    operations = list(GRAPH.operations)
    operations[index] = replace(operations[index], **changes)  # type: ignore[arg-type]
    return replace(GRAPH, operations=tuple(operations))


def given(index: int, **changes: object) -> Graph:
    """The sample with one input changed."""
    inputs = list(GRAPH.inputs)
    inputs[index] = replace(inputs[index], **changes)  # type: ignore[arg-type]
    return replace(GRAPH, inputs=tuple(inputs))


def renamed() -> Graph:
    linear, copy, turn = GRAPH.operations
    product = Value("product", ROWS, 4)
    assert turn.results[0] is not None
    return replace(
        GRAPH,
        operations=(
            replace(linear, name="product", results=(product,)),
            replace(copy, arguments=(Reference("keys.0"), Reference("product"))),
            replace(
                turn,
                arguments=(Reference("product"),),
                results=(replace(turn.results[0], name="turned"),),
            ),
        ),
        outputs=("turned",),
    )


SAME: dict[str, Callable[[], Graph]] = {
    "source": lambda: operation(0, source=None),
    "functions": lambda: operation(0, functions=("package.model.renamed",)),
    "marks": lambda: operation(0, marks=()),
    "operation name": lambda: operation(0, name="other"),
    "value names": renamed,
    "modules that run nothing": lambda: replace(GRAPH, modules=()),
}
DIFFERENT: dict[str, Callable[[], Graph]] = {
    "entry": lambda: replace(GRAPH, entry="prefill"),
    "operator": lambda: operation(0, operator="aten.mm.default"),
    "arguments": lambda: operation(0, arguments=(Reference("x"), Reference("x"))),
    "number type": lambda: operation(1, keywords=(("non_blocking", 0),)),
    "keywords": lambda: operation(1, keywords=()),
    "writes": lambda: operation(1, writes=()),
    "view": lambda: operation(2, view=False),
    "tags": lambda: operation(1, tags=()),
    "module": lambda: operation(0, module=""),
    "multiple": lambda: operation(0, multiple=True),
    "type": lambda: operation(2, results=(Value("t", ROWS, 4),)),
    "storage": lambda: operation(2, results=(Value("t", _turned(), 9),)),
    "input name": lambda: given(0, name="other.weight"),
    "input kind": lambda: given(0, kind="buffer"),
    "constant": lambda: given(1, data=(1.5, 2.5)),
    "output": lambda: replace(GRAPH, outputs=("linear",)),
    "bounds": lambda: replace(GRAPH, dimensions=(("batch", 1, 64),)),
    "signature": lambda: replace(GRAPH, signature=(("y", None), ("keys", 1))),
    "order": lambda: replace(
        GRAPH,
        operations=(GRAPH.operations[0], *reversed(GRAPH.operations[1:])),
    ),
}


def _turned() -> TensorType:
    result = GRAPH.operations[2].results[0]
    assert result is not None
    return result.type


def test_a_digest_is_twelve_hex_digits() -> None:
    digest = graph_digest(GRAPH)
    assert len(digest) == 12
    int(digest, 16)


@pytest.mark.parametrize("what", SAME)
def test_what_says_nothing_about_the_computation_does_not_count(what: str) -> None:
    assert SAME[what]() != GRAPH
    assert graph_digest(SAME[what]()) == graph_digest(GRAPH)


@pytest.mark.parametrize("what", DIFFERENT)
def test_everything_else_counts(what: str) -> None:
    assert graph_digest(DIFFERENT[what]()) != graph_digest(GRAPH)
