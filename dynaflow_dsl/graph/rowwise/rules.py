"""The table of all rules, and the operators that never have one."""

from __future__ import annotations

from functools import cache

from dynaflow_dsl.graph.model import Operation
from dynaflow_dsl.graph.rowwise import (
    attention,
    collectives,
    convolution,
    cutting,
    factories,
    indexing,
    matmul,
    normalisation,
    pointwise,
    rearrange,
    reductions,
    transforms,
    views,
)
from dynaflow_dsl.graph.rowwise.declared import declared_rule
from dynaflow_dsl.graph.rowwise.model import Call, Fact, RefusedError, Rule, Shared
from dynaflow_dsl.graph.rowwise.sizes import mentions
from dynaflow_dsl.operations.rows import rows_of

RULES: dict[str, Rule] = {
    **pointwise.RULES,
    **views.RULES,
    **cutting.RULES,
    **rearrange.RULES,
    **reductions.RULES,
    **transforms.RULES,
    **matmul.RULES,
    **attention.RULES,
    **normalisation.RULES,
    **convolution.RULES,
    **indexing.RULES,
    **factories.RULES,
    **collectives.RULES,
}

_DATA_SHAPES = "makes a tensor whose size depends on the values of all rows"
_COUNTS = "counts the values of all rows"

_STATISTICS = "may update stored statistics, which each microbatch would do"

# Why some operators have no rule; others are only "no row rule for ...".
WITHOUT_RULE = {
    "aten._local_scalar_dense.default": "reads a number out of a tensor",
    "aten._unique2.default": _DATA_SHAPES,
    "aten._batch_norm_impl_index.default": _STATISTICS,
    "aten.bincount.default": _COUNTS,
    "aten.cudnn_batch_norm.default": _STATISTICS,
    "aten.histc.default": _COUNTS,
    "aten.item.default": "reads a number out of a tensor",
    "aten.masked_scatter.default": (
        "fills masked places with one value after the other, over all rows"
    ),
    "aten.masked_select.default": _DATA_SHAPES,
    "aten.miopen_batch_norm.default": _STATISTICS,
    "aten.native_batch_norm.default": _STATISTICS,
    "aten.nonzero.default": _DATA_SHAPES,
    "aten.repeat_interleave.self_Tensor": _DATA_SHAPES,
    "aten.repeat_interleave.Tensor": _DATA_SHAPES,
    "aten.where.default": _DATA_SHAPES,
}

RANDOM_TAGS = frozenset({"random", "nondeterministic_seeded"})


def _unknown(call: Call) -> Fact:
    """Hold what nothing differs in; only torch's own operators do nothing else."""
    operation = call.operation
    arguments = (*operation.arguments, *(item for _, item in operation.keywords))
    trusted = operation.operator.startswith("aten.") and not (
        # It may look beyond its argument, at rows.
        operation.operator.startswith("aten.as_strided")
    )
    sized = mentions(arguments, call.dimension)
    if trusted and call.tensors and call.all_shared() and not sized:
        return Shared()
    raise RefusedError(f"no row rule for {operation.operator}")


# `sizes` and `chance` leave every question to the function.
_UNKNOWN = Rule(_unknown, sizes=True, chance=True)
_POINTWISE = Rule(pointwise.pointwise, in_place=True)


def rule_for(operation: Operation) -> Rule | str:
    """Return the rule of an operator, or why there is none."""
    found = _own_rule(operation.operator, operation.tags)
    if found is _UNKNOWN:
        declared = rows_of(operation.operator)
        if declared is not None:
            return declared_rule(declared)
    return found


@cache
def _own_rule(operator: str, tags: tuple[str, ...]) -> Rule | str:
    rule = RULES.get(operator)
    tagged = operator.startswith("aten.") and "pointwise" in tags
    if rule is None and tagged and operator not in pointwise.NOT_POINTWISE:
        rule = _POINTWISE
    chance = rule is not None and rule.chance
    if not chance and RANDOM_TAGS.intersection(tags):
        return "draws random numbers, which are others in each microbatch"
    if rule is None:
        return WITHOUT_RULE.get(operator, _UNKNOWN)
    return rule
