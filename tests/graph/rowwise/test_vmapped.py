"""The third oracle itself: it finds what mixes rows, and says where it cannot look."""

import pytest
import torch

from tests.graph.rowwise.tracing import Given, inputs_for, rows, shared, traced
from tests.graph.rowwise.vmapped import NotVmappedError, vmapped_difference


def judged(function: object, *given: Given) -> str | None:
    torch.manual_seed(0)
    graph = traced(function, given)  # type: ignore[arg-type]
    return vmapped_difference(graph, inputs_for(graph, given))


def test_rows_apart() -> None:
    given = rows(4), shared(4, 4)
    assert judged(lambda x, w: torch.tanh(x @ w).cumsum(-1), *given) is None
    assert judged(lambda x: x.t() * 2.0, Given((4, "batch"))) is None


@pytest.mark.parametrize(
    "mixing",
    [
        lambda x: x - x.mean(0),
        lambda x: x.cumsum(0),
        lambda x: x.flip(0),
        lambda x: x.softmax(0),
    ],
)
def test_rows_mixed(mixing: object) -> None:
    output = judged_output(mixing)
    said = judged(mixing, rows(4))
    assert said == f"output {output} of one row's program differs"


def judged_output(mixing: object) -> str:
    return traced(mixing, [rows(4)]).outputs[0]  # type: ignore[arg-type]


def test_a_result_without_rows_is_the_same_for_all() -> None:
    assert judged(lambda x: x.sum(0), rows(4)) is not None
    assert judged(lambda x, w: (x * 2.0, w * 2.0), rows(4), shared(4)) is None


def test_what_cannot_be_mapped() -> None:
    with pytest.raises(NotVmappedError, match="no output whose rows"):
        judged(lambda x: x.reshape(-1), rows(4))
    with pytest.raises(NotVmappedError, match="written to one place"):
        judged(lambda x, y: x.index_copy(1, torch.tensor([0, 0]), y), rows(4), rows(2))
