import pytest
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
from tests.graph.rowwise.interpreter import leaking_row
from tests.graph.rowwise.tracing import Given, rows, shared

IMAGE = rows(3, 8, 8)

CASES = [
    accepted(
        "conv2d",
        lambda a, b, c: functional.conv2d(a, b, c, 2, 1),
        IMAGE,
        shared(4, 3, 3, 3),
        shared(4),
    ),
    accepted("conv1d", functional.conv1d, rows(3, 8), shared(4, 3, 3)),
    accepted(
        "conv2d, same",
        lambda a, b: functional.conv2d(a, b, padding="same"),
        IMAGE,
        shared(4, 3, 3, 3),
    ),
    accepted("transposed", functional.conv_transpose2d, IMAGE, shared(3, 4, 3, 3)),
    accepted("max_pool2d", lambda a: functional.max_pool2d(a, 2), IMAGE),
    accepted("avg_pool2d", lambda a: functional.avg_pool2d(a, 2), IMAGE),
    accepted("adaptive", lambda a: functional.adaptive_avg_pool2d(a, 2), IMAGE),
    accepted(
        "avg_pool1d of rows as channels", lambda a: functional.avg_pool1d(a, 2), rows(8)
    ),
    accepted("nearest", lambda a: functional.interpolate(a, scale_factor=2), IMAGE),
    accepted(
        "bilinear",
        lambda a: functional.interpolate(a, size=(4, 4), mode="bilinear"),
        IMAGE,
    ),
    refused(
        "rows as width",
        "convolves over",
        lambda a, b: functional.conv1d(a, b, padding=1),
        Given((2, 3, "batch")),
        shared(4, 3, 3),
    ),
    refused(
        "rows as height",
        "convolves over",
        lambda a, b: functional.conv2d(a.transpose(0, 2), b, padding=1),
        rows(3, 2, 4),
        shared(4, 3, 3, 3),
    ),
    refused(
        "pool over rows",
        "pools or resamples",
        lambda a: functional.avg_pool1d(a.transpose(0, 2), 3, 1, 1),
        rows(3, 2),
    ),
    careful(
        "split weight",
        "weight of the convolution",
        functional.conv1d,
        shared(1, 3, 8),
        rows(3, 3),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution(case: Case) -> None:
    check_case(case)


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("scale", "reason"), [(0.5, "do not fit"), (3.0, None)])
def test_scales_of_antialiased_images(
    kind: str, scale: float, reason: str | None
) -> None:
    build = Builder()
    image = build.input(rows(4, 3, 1))
    operator = f"aten._upsample_{kind}2d_aa.default"
    result = build.call(operator, image, (3, 3), False, 1.0, scale)
    graph, inputs = build.graph(result), build.tensors()
    # What is read of the next row has weight 0, which only NaN shows.
    shown = leaking_row(graph, inputs)
    check_graph(graph, build.names(), inputs, reason, poisoned=shown)
