"""How a case of the row check is written and tested."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

import torch

from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.graph.rowwise import check_rows
from tests.graph.rowwise.interpreter import difference, leaking_row
from tests.graph.rowwise.tracing import Function, Given, inputs_for, traced
from tests.graph.rowwise.vmapped import NotVmappedError, vmapped_difference


@dataclass(frozen=True)
class Case:
    """A function and what the check has to say of it.

    `refused` is part of the one expected reason; None expects the function to be
    accepted. `leaks` says that a refused function really mixes rows, in which case
    running it in pieces or poisoning a row has to show it; otherwise the refusal is
    only careful, and neither may show anything.
    """

    name: str
    function: Function
    given: tuple[Given, ...]
    refused: str | None = None
    leaks: bool = True

    def __str__(self) -> str:
        return self.name


def accepted(name: str, function: Function, *given: Given) -> Case:
    return Case(name, function, given)


def refused(name: str, reason: str, function: Function, *given: Given) -> Case:
    return Case(name, function, given, refused=reason)


def careful(name: str, reason: str, function: Function, *given: Given) -> Case:
    return Case(name, function, given, refused=reason, leaks=False)


def check_case(case: Case) -> None:
    torch.manual_seed(0)
    graph = traced(case.function, case.given)
    region = [operation.name for operation in graph.operations]
    inputs = inputs_for(graph, case.given)
    poisoned = leaking_row(graph, inputs)
    check_graph(graph, region, inputs, case.refused, case.leaks, poisoned)
    if case.refused is None:
        # Torch cannot map every operator, such as one that looks at numbers.
        with suppress(NotVmappedError):
            assert vmapped_difference(graph, inputs) is None


def check_graph(
    graph: Graph,
    region: Collection[str],
    inputs: Mapping[str, torch.Tensor],
    refused: str | None = None,
    leaks: bool = True,
    poisoned: str | None = None,
) -> None:
    """Check a graph and compare the verdict with what running it in pieces shows."""
    reasons = [item.reason for item in check_rows(graph, "batch", region).refusals]
    shown = difference(graph, region, inputs) or poisoned
    if refused is None:
        assert reasons == []
        assert shown is None
    else:
        assert len(reasons) == 1, reasons
        assert refused in reasons[0]
        assert (shown is not None) == leaks, shown
