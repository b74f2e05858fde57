from typing import Any

import pytest
import torch
from torch.nn import functional

from dynaflow_dsl.graph.rowwise import check_rows
from tests.graph.rowwise.building import Builder
from tests.graph.rowwise.cases import Case, accepted, check_case, check_graph, refused
from tests.graph.rowwise.tracing import Given, rows, shared

BEHIND = Given((3, "batch"))

CASES = [
    accepted("fftn, real", lambda a: torch.fft.fftn(a, dim=(1, 2)).real, rows(3, 4)),
    accepted("distances", lambda a, b: torch.cdist(a, b), rows(3, 4), shared(2, 4)),
    accepted(
        "cosine",
        lambda a, b: functional.cosine_similarity(a, b, -1),
        rows(3),
        shared(3),
    ),
    accepted("cross", torch.linalg.cross, rows(2, 3), rows(2, 3)),
    accepted("diff, more in front", lambda a: torch.diff(a, prepend=a[:, :1]), rows(4)),
    accepted(
        "unfold",
        lambda a: functional.unfold(a, 2),
        rows(3, 4, 4),
    ),
    accepted("fold", lambda a: functional.fold(a, (4, 4), 2, stride=2), rows(12, 4)),
    accepted(
        "sampled",
        lambda a, b: functional.grid_sample(a, b.tanh(), align_corners=False),
        rows(2, 4, 4),
        rows(3, 3, 2),
    ),
    accepted(
        "einsum with dots",
        lambda a, b: torch.einsum("...qd,...kd->...qk", a, b),
        rows(2, 3, 4),
        rows(2, 3, 4),
    ),
    accepted("norm", lambda a: torch.linalg.norm(a, ord=2, dim=-1), rows(4)),
    refused("fftn", "transforms over", lambda a: torch.fft.fftn(a).real, rows(3)),
    refused("vectors of rows", "distances over", torch.cdist, BEHIND, BEHIND),
    refused(
        "cosine of rows",
        "along the split dimension",
        lambda a, b: functional.cosine_similarity(a, b, 0),
        rows(3),
        rows(3),
    ),
    refused(
        "einsum that adds rows up",
        "adds up over",
        lambda a: torch.einsum("...d->d", a),
        rows(4),
    ),
    refused(
        "norm of rows",
        "linalg_norm over",
        lambda a: torch.linalg.norm(a, dim=0),
        rows(4),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transforms(case: Case) -> None:
    check_case(case)


MATRICES = rows(3, 3)
# Operators on the last axes of a batch of matrices or signals, with further arguments.
CALLS: list[tuple[str, Given, tuple[Any, ...]]] = [
    *(
        (f"fft_{name}.default", rows(2, 4), ())
        for name in "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2".split()
    ),
    *(
        (f"fft_{name}.default", rows(2, 4), (None, (1, 2)))
        for name in "fftn ifftn rfftn irfftn".split()
    ),
    ("fft_fftn.default", rows(2, 4), ((4,),)),
    ("fft_fftshift.default", rows(2, 4), ((1,),)),
    ("fft_ifftshift.default", rows(2, 4), ((-1,),)),
    ("linalg_inv.default", MATRICES, ()),
    ("linalg_det.default", MATRICES, ()),
    ("linalg_slogdet.default", MATRICES, ()),
    ("linalg_matrix_exp.default", MATRICES, ()),
    ("linalg_pinv.default", MATRICES, (1e-5,)),
    ("linalg_qr.default", MATRICES, ()),
    ("linalg_svd.default", MATRICES, ()),
    ("inverse.default", MATRICES, ()),
    ("matrix_exp.default", MATRICES, ()),
    ("cdist.default", rows(4), (shared(3, 4),)),
    ("cdist.default", shared(3, 4), (rows(4),)),
    ("cdist.default", rows(3, 4), (rows(2, 4),)),
    ("linalg_solve.default", MATRICES, (rows(3, 2),)),
    ("stft.default", rows(16), (4, 2, 4, shared(4), False, True, True)),
    ("searchsorted.Tensor", shared(4), (rows(3),)),
    ("searchsorted.Tensor", rows(4), (rows(3),)),
    ("tensor_split.sections", rows(4), (2, 1)),
    ("tensor_split.indices", rows(4), ((1, 3), 1)),
    ("reflection_pad2d.default", rows(2, 4, 4), ((1, 1, 1, 1),)),
    ("replication_pad3d.default", rows(2, 4, 4, 4), ((1,) * 6,)),
    ("upsample_linear1d.default", rows(2, 4), ((8,), False)),
    ("upsample_trilinear3d.default", rows(2, 2, 2, 2), ((4, 4, 4), False)),
    ("upsample_nearest3d.default", rows(2, 2, 2, 2), ((4, 4, 4),)),
    ("_upsample_bilinear2d_aa.default", rows(2, 4, 4), ((8, 8), False)),
    ("adaptive_max_pool1d.default", rows(2, 4), ((2,),)),
    ("adaptive_max_pool3d.default", rows(2, 4, 4, 4), ((2, 2, 2),)),
    ("max_pool1d_with_indices.default", rows(2, 4), ((2,),)),
    ("max_pool3d_with_indices.default", rows(2, 4, 4, 4), ((2, 2, 2),)),
    ("native_channel_shuffle.default", rows(4, 2, 2), (2,)),
]


@pytest.mark.parametrize(("operator", "first", "rest"), CALLS)
def test_rows_in_front(operator: str, first: Given, rest: tuple[Any, ...]) -> None:
    torch.manual_seed(0)
    build = Builder()
    source = build.input(first)
    more = [build.input(item) if isinstance(item, Given) else item for item in rest]
    result = build.call(f"aten.{operator}", source, *more)
    results = result if isinstance(result, tuple) else (result,)
    check_graph(build.graph(*results), build.names(), build.tensors())


@pytest.mark.parametrize(
    ("operator", "rest"),
    [
        ("fft_fft.default", (None, 1)),
        ("fft_fft2.default", (None, (0, 1))),
        ("fft_fftshift.default", ()),
        ("linalg_inv.default", ()),
        ("stft.default", (3, 1, 3, None, False, True, True)),
        ("reflection_pad1d.default", ((1, 1),)),
    ],
)
def test_rows_among_the_axes(operator: str, rest: tuple[Any, ...]) -> None:
    build = Builder()
    shape = ("batch",) if operator.startswith("stft") else (3, "batch")
    source = build.input(Given(shape))
    # Not run: a square matrix of rows and columns has the dimension twice.
    result = build.declare(f"aten.{operator}", source, *rest, given=Given(shape))
    graph = build.graph(result)
    (refusal,) = check_rows(graph, "batch", build.names()).refusals
    assert "over the split dimension" in refusal.reason or "pads" in refusal.reason


def test_distances_of_rows_to_rows() -> None:
    build = Builder()
    one, other = build.input(rows(4)), build.input(rows(4))
    result = build.call("aten.cdist.default", one, other)
    (refusal,) = check_rows(build.graph(result), "batch", build.names()).refusals
    assert "rows of the split dimension with rows" in refusal.reason


def test_channels_that_are_rows() -> None:
    build = Builder()
    source = build.input(Given((3, "batch", 2, 2)))
    result = build.declare(
        "aten.channel_shuffle.default", source, 2, given=Given((3, "batch", 2, 2))
    )
    (refusal,) = check_rows(build.graph(result), "batch", build.names()).refusals
    assert "as channels" in refusal.reason


@pytest.mark.parametrize("operator", ["linalg_matrix_exp", "matrix_exp"])
@pytest.mark.parametrize(
    ("shape", "inside", "reason"),
    [
        ((3, "batch", 4, 4), False, "merges the split dimension"),
        ((3, "batch", 4, 4), True, None),
        (("batch", 3, 4, 4), False, None),
    ],
)
def test_exponential_of_a_slice(
    operator: str, shape: tuple[int | str, ...], inside: bool, reason: str | None
) -> None:
    build = Builder()
    source = build.input(Given(shape))
    if inside:
        source = build.call("aten.tanh.default", source)
    result = build.call(f"aten.{operator}.default", source)
    check_graph(build.graph(result), build.names(), build.tensors(), reason)
