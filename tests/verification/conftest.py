from __future__ import annotations

import pytest
from torch.export import ExportedProgram

from tests.runtime.conftest import compiled_folder, halves, lanes, own_caches, toy
from tests.runtime.toy_model import Toy, export_toy

__all__ = ["compiled_folder", "halves", "lanes", "own_caches", "toy"]


@pytest.fixture(scope="session")
def exported(toy: Toy) -> ExportedProgram:
    return export_toy(toy)


@pytest.fixture(scope="session")
def whole(exported: ExportedProgram) -> frozenset[str]:
    """Operations outside the layers: they run once on the whole batch."""

    def path(node: object) -> str:
        stack = node.meta.get("nn_module_stack")  # type: ignore[attr-defined]
        return str(list(stack.values())[-1][0]) if stack else ""

    return frozenset(
        node.name
        for node in exported.graph_module.graph.nodes
        if node.op == "call_function" and not path(node).startswith("layers.")
    )
