from dataclasses import replace

from dynaflow_dsl.graph.model import Reference
from dynaflow_dsl.graph.operands import read_values
from tests.graph.sample import sample

GRAPH = sample().graphs[0]


def test_references_in_lists_and_keywords_are_reads() -> None:
    operation = replace(
        GRAPH.operations[0],
        arguments=((Reference("x"), (Reference("c"),)), 3, Reference("x")),
        keywords=(("out", Reference("keys.0")),),
    )
    assert read_values(operation) == ("x", "c", "keys.0")
