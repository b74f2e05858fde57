import pytest
import torch
from torch.nn import functional

from tests.graph.rowwise.building import Builder
from tests.graph.rowwise.cases import (
    Case,
    accepted,
    careful,
    check_case,
    check_graph,
    refused,
)
from tests.graph.rowwise.tracing import Given, rows, shared


def batch_norm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(a, b, c.abs())


CASES = [
    accepted(
        "layer_norm",
        lambda a, b: functional.layer_norm(a, (4,), b, b),
        rows(3, 4),
        shared(4),
    ),
    accepted(
        "layer_norm of two axes", lambda a: functional.layer_norm(a, (3, 4)), rows(3, 4)
    ),
    accepted(
        "rms_norm", lambda a, b: functional.rms_norm(a, (4,), b), rows(3, 4), shared(4)
    ),
    accepted(
        "behind another axis",
        lambda a: functional.layer_norm(a, (4,)),
        Given((3, "batch", 4)),
    ),
    accepted(
        "group_norm",
        lambda a, b: functional.group_norm(a, 2, b, b),
        rows(4, 3),
        shared(4),
    ),
    accepted("batch_norm", batch_norm, rows(4, 3), shared(4), shared(4)),
    accepted("instance_norm", lambda a: functional.instance_norm(a), rows(4, 3)),
    refused(
        "batch statistics",
        "statistics over the split",
        lambda a: functional.batch_norm(a, None, None, training=True),
        rows(4, 3),
    ),
    refused(
        "group_norm over rows",
        "normalises over",
        lambda a: functional.group_norm(a.transpose(0, 2), 1),
        rows(4, 3),
    ),
    careful(
        "instance_norm with rows inside",
        "normalises over",
        lambda a: functional.instance_norm(a.transpose(0, 1)),
        rows(4, 3),
    ),
    careful(
        "batch_norm of split channels",
        "running_mean of the normalisation is split",
        lambda a, b: functional.batch_norm(a.t(), b, b.abs()),
        rows(4),
        rows(),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_normalisation(case: Case) -> None:
    check_case(case)


OPTIONS = (0.1, 1e-5, False)


@pytest.mark.parametrize("operator", ["batch_norm", "instance_norm"])
def test_stored_statistics_are_updated_once(operator: str) -> None:
    build = Builder()
    build.input(rows())
    image, mean, variance = (build.input(shared(*s)) for s in ((2, 4, 3), (4,), (4,)))
    result = build.call(
        f"aten.{operator}.default", image, None, None, mean, variance, True, *OPTIONS
    )
    # No operand is split, and the signature says that nothing is written.
    graph = build.graph(result)
    assert not any(item.writes for item in graph.operations)
    check_graph(graph, build.names(), build.tensors(), "updates stored statistics")


@pytest.mark.parametrize("operator", ["batch_norm", "instance_norm"])
def test_statistics_of_a_shared_input_are_shared(operator: str) -> None:
    build = Builder()
    build.input(rows())
    image = build.input(shared(2, 4, 3))
    result = build.call(
        f"aten.{operator}.default", image, None, None, None, None, True, *OPTIONS
    )
    check_graph(build.graph(result), build.names(), build.tensors())


def test_operator_without_a_rule_may_update_statistics() -> None:
    build = Builder()
    build.input(rows())
    image, mean, variance = (build.input(shared(*s)) for s in ((2, 4, 3), (4,), (4,)))
    result, _, _ = build.call(
        "aten.native_batch_norm.default",
        *(image, None, None, mean, variance, True, 0.1, 1e-5),
    )
    graph = build.graph(result)
    check_graph(graph, build.names(), build.tensors(), "may update stored statistics")
