"""The table of all rules, and the operators that never have one."""

from __future__ import annotations

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
    views,
)
from dynaflow_dsl.graph.rowwise.model import Rule

RULES: dict[str, Rule] = {
    **pointwise.RULES,
    **views.RULES,
    **cutting.RULES,
    **rearrange.RULES,
    **reductions.RULES,
    **matmul.RULES,
    **attention.RULES,
    **normalisation.RULES,
    **convolution.RULES,
    **indexing.RULES,
    **factories.RULES,
    **collectives.RULES,
}

_DATA_SHAPES = "makes a tensor whose size depends on the values of all rows"

# Why some operators have no rule; others are only "no row rule for ...".
WITHOUT_RULE = {
    "aten._local_scalar_dense.default": "reads a number out of a tensor",
    "aten.item.default": "reads a number out of a tensor",
    "aten.masked_select.default": _DATA_SHAPES,
    "aten.nonzero.default": _DATA_SHAPES,
    "aten.repeat_interleave.self_Tensor": _DATA_SHAPES,
    "aten.repeat_interleave.Tensor": _DATA_SHAPES,
    "aten.where.default": _DATA_SHAPES,
}

RANDOM_TAGS = frozenset({"random", "nondeterministic_seeded"})

_POINTWISE = Rule(pointwise.pointwise, in_place=True)


def rule_for(operation: Operation) -> Rule | str:
    """Return the rule of an operator, or why there is none."""
    operator = operation.operator
    rule = RULES.get(operator)
    tagged = operator.startswith("aten.") and "pointwise" in operation.tags
    if rule is None and tagged and operator not in pointwise.NOT_POINTWISE:
        rule = _POINTWISE
    chance = rule is not None and rule.chance
    if not chance and RANDOM_TAGS.intersection(operation.tags):
        return "draws random numbers, which are others in each microbatch"
    if rule is None:
        return WITHOUT_RULE.get(operator, f"no row rule for {operator}")
    return rule
