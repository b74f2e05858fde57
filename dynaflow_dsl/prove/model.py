"""A plan that has been proved. Only `prove` makes one."""

from __future__ import annotations

from dataclasses import dataclass

from dynaflow_dsl.plan.model import Plan


@dataclass(frozen=True, slots=True)
class ProvedPlan:
    """`emit` takes nothing else, so a plan that was not proved cannot be emitted.

    `overlaps` counts the pairs of steps that windows claim and that nothing orders,
    over all iterations; `held` are variables whose tensors live until the join.
    """

    plan: Plan
    overlaps: int
    held: tuple[str, ...]
