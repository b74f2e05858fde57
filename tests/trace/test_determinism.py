import os
import subprocess
import sys
from typing import Any

import pytest

from dynaflow_dsl.graph.digest import graph_digest
from dynaflow_dsl.graph.snapshot import dump_snapshot
from dynaflow_dsl.trace import load_target, trace

TARGET = "dynaflow_dsl.models.llama:serve"
PROGRAM = f"""
from dynaflow_dsl.graph.snapshot import dump_snapshot
from dynaflow_dsl.trace import load_target, trace

spec = load_target({TARGET!r}, {{"layers": 1}}, None).unwrap()
print(dump_snapshot(trace(spec, {TARGET!r}, {{"layers": 1}}).unwrap()), end="")
"""


def snapshot_with_seed(seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_two_hash_seeds_give_one_snapshot() -> None:
    # Without the variable this process has a seed of its own.
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    first = snapshot_with_seed(other)
    spec = load_target(TARGET, {"layers": 1}, None).unwrap()
    assert dump_snapshot(trace(spec, TARGET, {"layers": 1}).unwrap()) == first


def digests(function: str = "decode", **arguments: Any) -> list[str]:
    target = f"dynaflow_dsl.models.llama:{function}"
    spec = load_target(target, {"layers": 1, **arguments}, None).unwrap()
    return [graph_digest(graph) for graph in trace(spec, target, {}).unwrap().graphs]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_without_memory_gives_the_graph_of_a_real_one(dtype: str) -> None:
    real, meta = (digests("serve", dtype=dtype, meta=meta) for meta in (False, True))
    assert real == meta


def test_weights_do_not_matter_and_shapes_do() -> None:
    assert digests() == digests(seed=1, initializer_range=0.5)
    assert digests() != digests(intermediate=64)


def test_layers_have_equal_operations() -> None:
    spec = load_target(TARGET, {"layers": 3, "meta": True}, None).unwrap()
    for graph in trace(spec, TARGET, {}).unwrap().graphs:
        layers = [
            [
                (item.operator, item.module.removeprefix(f"model.layers.{layer}"))
                for item in graph.operations
                if f"{item.module}.".startswith(f"model.layers.{layer}.")
            ]
            for layer in range(3)
        ]
        # The first layer is the first to read the rotary tables, with the same calls.
        assert layers[0] == layers[1] == layers[2]
        assert len(layers[0]) > 50
