from dataclasses import replace

from dynaflow_dsl.graph.index import index_graph, read_values
from dynaflow_dsl.graph.model import Reference
from tests.graph.sample import sample

GRAPH = sample().graphs[0]


def test_producers_readers_and_order() -> None:
    index = index_graph(GRAPH)
    assert dict(index.producers) == {"linear": "linear", "t": "t"}
    assert index.readers["x"] == ("linear",)
    assert index.readers["linear"] == ("copy_", "t")
    assert index.readers["t"] == ()
    assert dict(index.order) == {"linear": 0, "copy_": 1, "t": 2}
    assert index.operations["t"] is GRAPH.operations[2]
    assert index.inputs["keys.0"] is GRAPH.inputs[3]
    assert set(index.values) == {"linear.weight", "c", "x", "keys.0", "linear", "t"}


def test_values_of_one_memory_are_found() -> None:
    index = index_graph(GRAPH)
    assert index.sharing("t") == ("linear", "t")
    assert index.sharing("x") == ("x",)


def test_references_in_lists_and_keywords_are_reads() -> None:
    operation = replace(
        GRAPH.operations[0],
        arguments=((Reference("x"), (Reference("c"),)), 3, Reference("x")),
        keywords=(("out", Reference("keys.0")),),
    )
    assert read_values(operation) == ("x", "c", "keys.0")
