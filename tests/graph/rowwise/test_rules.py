"""The whole table: every operator exists, and those without a case elsewhere hold."""

from typing import Any

import pytest
import torch

from dynaflow_dsl.graph.model import Argument, Constant, Reference, Size
from dynaflow_dsl.graph.rowwise import check_rows
from dynaflow_dsl.graph.rowwise.pointwise import RULES as POINTWISE
from dynaflow_dsl.graph.rowwise.rules import RULES, WITHOUT_RULE
from tests.graph.rowwise.building import BATCH, Builder, Unsized
from tests.graph.rowwise.cases import check_graph
from tests.graph.rowwise.tracing import Given, flags, rows, shared, whole_numbers


def overload(operator: str) -> Any:
    namespace, name, form = operator.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), form)


@pytest.mark.parametrize("operator", sorted({*RULES, *WITHOUT_RULE}))
def test_operator_exists(operator: str) -> None:
    schema = overload(operator)._schema
    rule = RULES.get(operator)
    # What is written in place is the first argument, and the rule says so.
    writes = [
        position
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    assert writes in ([], [0])
    assert not writes or (rule is not None and rule.in_place)


def operands(build: Builder, operator: str, content: Given) -> tuple[Argument, ...]:
    """Make rows for every tensor and numbers for everything else."""
    made: list[Argument] = []
    for argument in overload(operator)._schema.arguments:
        if argument.kwarg_only or (argument.has_default_value() and made):
            break
        kind = str(argument.type)
        if kind == "Tensor" and argument.name in ("mask", "condition"):
            made.append(build.input(flags(*content.shape)))
        elif kind == "Tensor" and argument.name == "value":
            made.append(build.input(Given((), content.below, content.flags)))
        elif kind == "Tensor":
            made.append(build.input(content))
        else:
            made.append(2)
    return tuple(made)


NUMBER_TYPES = (
    rows(4),
    whole_numbers(9, "batch", 4),
    flags("batch", 4),
)
NOT_ALIKE = {
    # These take more than tensors and numbers, and have cases elsewhere.
    "aten._to_copy.default",
    "aten.bucketize.Tensor",
    "aten.dropout.default",
    "aten.imag.default",
    "aten.to.device",
    "aten.to.dtype",
    "aten.to.dtype_layout",
}


@pytest.mark.parametrize("operator", sorted(POINTWISE.keys() - NOT_ALIKE))
def test_pointwise(operator: str) -> None:
    torch.manual_seed(0)
    for content in NUMBER_TYPES:
        build = Builder()
        try:
            result = build.call(operator, *operands(build, operator, content))
        except Unsized:
            continue
        check_graph(build.graph(result), build.names(), build.tensors())
        return
    raise AssertionError("runs on no kind of number")


INDEX = whole_numbers(4, "batch", 4)
CALLS: list[tuple[str, Given, tuple[Any, ...]]] = [
    ("_fused_rms_norm.default", rows(4), ((4,), shared(4), 1e-5)),
    ("_log_softmax.default", rows(4), (1, False)),
    ("_softmax.default", rows(4), (1, False)),
    ("_to_copy.default", rows(4), ()),
    ("_reshape_copy.default", rows(4), ((BATCH, 2, 2),)),
    ("_unsafe_view.default", rows(4), ((BATCH, 2, 2),)),
    ("adaptive_avg_pool1d.default", rows(2, 4), ((2,),)),
    ("adaptive_avg_pool3d.default", rows(2, 4, 4, 4), ((2, 2, 2),)),
    ("adaptive_max_pool2d.default", rows(2, 4, 4), ((2, 2),)),
    ("addmv.default", rows(), (rows(4), shared(4))),
    ("all.dims", flags("batch", 4), ((1,),)),
    ("any.dims", flags("batch", 4), ((1,),)),
    ("argsort.stable", rows(4), ()),
    ("avg_pool3d.default", rows(2, 4, 4, 4), ((2, 2, 2),)),
    ("broadcast_to.default", rows(1), ((BATCH, 4),)),
    ("constant_pad_nd.default", rows(4), ((1, 1),)),
    ("conv1d.padding", rows(3, 8), (shared(2, 3, 3), None, (1,), "same")),
    ("conv3d.default", rows(2, 4, 4, 4), (shared(3, 2, 2, 2, 2),)),
    ("conv_transpose1d.default", rows(3, 8), (shared(3, 2, 3),)),
    (
        "convolution.default",
        rows(3, 8),
        (shared(2, 3, 3), None, (1,), (0,), (1,), False, (0,), 1),
    ),
    ("count_nonzero.dim_IntList", rows(4), ((1,),)),
    ("cummin.default", rows(4), (1,)),
    ("empty_like.default", rows(4), ()),
    ("index_add_.default", rows(4), (1, whole_numbers(4, 2), rows(2))),
    ("index_fill.int_Tensor", rows(4), (1, whole_numbers(4, 2), shared())),
    ("index_fill_.int_Tensor", rows(4), (1, whole_numbers(4, 2), shared())),
    ("max_pool1d.default", rows(2, 4), ((2,),)),
    ("max_pool2d_with_indices.default", rows(2, 4, 4), ((2, 2),)),
    ("max_pool3d.default", rows(2, 4, 4, 4), ((2, 2, 2),)),
    ("mode.default", whole_numbers(3, "batch", 4), ()),
    ("moveaxis.int", rows(3, 4), (0, 1)),
    ("moveaxis.intlist", rows(3, 4), ((0, 1), (1, 2))),
    ("nansum.default", rows(4), ((1,),)),
    ("nanmean.default", rows(4), ((1,),)),
    ("native_layer_norm.default", rows(4), ((4,), shared(4), shared(4), 1e-5)),
    ("new_ones.default", rows(4), ((BATCH, 3),)),
    ("norm.ScalarOpt_dim", rows(4), (2, (1,))),
    ("norm.ScalarOpt_dim_dtype", rows(4), (2, (1,), True)),
    ("numpy_T.default", rows(3, 4), ()),
    ("pixel_unshuffle.default", rows(2, 4, 4), (2,)),
    ("reshape_as.default", rows(4), (rows(2, 2),)),
    ("scatter_.value", rows(4), (1, INDEX, 2.0)),
    ("special_log_softmax.default", rows(4), (1,)),
    ("special_softmax.default", rows(4), (1,)),
    ("split.sizes", rows(4), ((1, 3), 1)),
    ("squeeze.dims", rows(1, 4, 1), ((1, 3),)),
    ("std.dim", rows(4), ((1,), False, True)),
    ("std_mean.dim", rows(4), ((1,), False, True)),
    ("std_mean.correction", rows(4), ((1,),)),
    ("var_mean.dim", rows(4), ((1,), False, True)),
    ("swapaxes.default", rows(3, 4), (0, 2)),
    ("swapdims.default", rows(3, 4), (-1, 1)),
    ("unsafe_chunk.default", rows(4), (2, 1)),
    ("unsafe_split.Tensor", rows(4), (2, 1)),
    ("upsample_bicubic2d.default", rows(2, 4, 4), ((8, 8), False)),
    ("upsample_bilinear2d.default", rows(2, 4, 4), ((8, 8), False)),
    ("upsample_nearest1d.default", rows(2, 4), ((8,),)),
    ("upsample_nearest2d.default", rows(2, 4, 4), ((8, 8),)),
]
# Keywords that these cannot be called without.
KEYWORDS: dict[str, dict[str, Argument]] = {
    "argsort.stable": {"stable": True, "dim": 1},
    "norm.ScalarOpt_dim_dtype": {"dtype": Constant("dtype", "float32")},
    "std_mean.correction": {"correction": 0, "keepdim": True},
}


@pytest.mark.parametrize(
    ("operator", "first", "rest"), CALLS, ids=[operator for operator, *_ in CALLS]
)
def test_rows_in_front(operator: str, first: Given, rest: tuple[Any, ...]) -> None:
    torch.manual_seed(0)
    build = Builder()
    arguments: list[Argument] = [build.input(first)]
    for item in rest:
        arguments.append(build.input(item) if isinstance(item, Given) else item)
    result = build.call(f"aten.{operator}", *arguments, **KEYWORDS.get(operator, {}))
    results = result if isinstance(result, tuple) else (result,)
    if operator == "empty_like.default":
        # Its content is whatever the memory holds.
        results = (build.call("aten.zero_.default", *results),)
    check_graph(build.graph(*results), build.names(), build.tensors())


@pytest.mark.parametrize("overloads", ["reduce", "value_reduce"])
@pytest.mark.parametrize("form", ["scatter", "scatter_"])
def test_scatter_with_a_reduction(form: str, overloads: str) -> None:
    build = Builder()
    target, index = build.input(rows(4)), build.input(INDEX)
    source: Argument = build.input(rows(4)) if overloads == "reduce" else 2.0
    result = build.call(
        f"aten.{form}.{overloads}", target, 1, index, source, reduce="add"
    )
    check_graph(build.graph(result), build.names(), build.tensors())


@pytest.mark.parametrize("form", ["scatter_reduce", "scatter_reduce_"])
def test_scatter_reduce(form: str) -> None:
    build = Builder()
    target, index = build.input(rows(4)), build.input(INDEX)
    source = build.input(rows(4))
    result = build.call(f"aten.{form}.two", target, 1, index, source, "amax")
    check_graph(build.graph(result), build.names(), build.tensors())


@pytest.mark.parametrize(
    "operator",
    "all any max median min norm.Scalar prod std sum var".split(),
)
def test_reduction_of_everything(operator: str) -> None:
    build = Builder()
    source = build.input(rows(4))
    name = operator if "." in operator else f"{operator}.default"
    if operator in ("all", "any"):
        source = build.call("aten.gt.Scalar", source, 0.0)
    total = build.call(f"aten.{name}", source)
    check = check_rows(build.graph(total), "batch", build.names())
    (refusal,) = check.refusals
    assert "over all axes" in refusal.reason


def test_eval_batch_norm() -> None:
    build = Builder()
    source = build.input(rows(4, 3))
    weights = [build.input(shared(4)) for _ in range(3)]
    variance = build.call("aten.exp.default", weights[0])
    operator = "aten._native_batch_norm_legit_no_training.default"
    result = build.call(operator, source, *weights, variance, 0.1, 1e-5)
    check_graph(build.graph(result[0]), build.names(), build.tensors())


def test_joined_under_other_names() -> None:
    build = Builder()
    one, other = build.input(rows(4)), build.input(rows(2))
    first = build.call("aten.concat.default", (one, other), 1)
    second = build.call("aten.concatenate.default", (one, other), -1)
    check_graph(build.graph(first, second), build.names(), build.tensors())


def test_positions_from_a_start() -> None:
    build = Builder()
    source: Reference = build.input(rows(4))
    positions = build.call("aten.arange.start", 1, 5)
    matrix = build.call("aten.eye.m", 4, 4)
    empty = build.call("aten.new_empty.default", source, (BATCH, 4))
    more = build.call("aten.empty.memory_format", (Size(1, ("batch",)), 4))
    build.call("aten.fill_.Scalar", empty, 1.0)
    build.call("aten.copy_.default", more, empty)
    result = build.call("aten.addmm.default", more, source, matrix)
    total = build.call("aten.add.Tensor", result, positions)
    check_graph(build.graph(total), build.names(), build.tensors())
