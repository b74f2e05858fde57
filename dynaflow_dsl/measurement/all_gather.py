"""An exchange between experts by all-gather and reduce-scatter, as engines capture it.

Everything that travels has a size that follows from the inputs'. In a graph of Dynamo
this exchange takes the place of `dispatch` and `combine` of
`dynaflow_dsl.models.exchange`, which read counts on the host, so that no CUDA graph can
hold a step with them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch._dynamo.backends.registry import lookup_backend
from torch.fx import GraphModule, Node

from dynaflow_dsl.kernels.exchange import receive
from dynaflow_dsl.kernels.routing import find_places
from dynaflow_dsl.measurement.exchanges import (
    gathered,
    programs_on,
    reduce_scatter,
    summed,
)
from dynaflow_dsl.runtime.groups import players

Gathered: TypeAlias = tuple[
    torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor
]


@torch.library.custom_op("dynaflow::measured_gather", mutates_args=())
def gather(
    tokens: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    room: int,
    local: int,
    ranks: int,
    role: str,
) -> Gathered:
    """Gather tokens, choices and weights on all ranks, each of which takes its rows.

    By one launch of NCCL, for equally many tokens on each rank. Returns what `dispatch`
    does and, for `scatter`, all weights and the places of all choices, -1 for other
    ranks' experts, both [ranks, tokens, choices]. More rows than a rank has room for
    stop the program on the device. After vLLM's all-to-all backend
    `allgather_reducescatter`.
    """
    own = tokens.contiguous()
    chosen = experts.contiguous()
    given = (own, chosen, weights.contiguous())
    everyones, choices, factors = gathered(given, ranks, role)
    places = find_places(chosen, choices, local, players()[role].rank())
    made = receive(own, everyones, places, room, programs_on(own.device))
    return *made, factors, places.of_choice


@gather.register_fake
def _(
    tokens: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    room: int,
    local: int,
    ranks: int,
    role: str,
) -> Gathered:
    return (
        tokens.new_empty(room, tokens.shape[1]),
        experts.new_empty(local, dtype=torch.int32),
        experts.new_empty(ranks, local),
        weights.new_empty(ranks, *weights.shape),
        experts.new_empty(ranks, *experts.shape, dtype=torch.int32),
    )


@torch.library.custom_op("dynaflow::measured_scatter", mutates_args=())
def scatter(
    rows: torch.Tensor, factors: torch.Tensor, places: torch.Tensor, role: str
) -> torch.Tensor:
    """Sum a rank's results for all tokens, and the sums of all ranks for each.

    `rows` is [room, width], and `factors` and `places` are those of `gather`. Each rank
    has a sum for every token, zero for those of others, in the dtype of `rows`; a
    reduce-scatter adds them. Returns [tokens, width].
    """
    sums = summed(rows.contiguous(), factors, places)
    combined = rows.new_empty(factors.shape[1], rows.shape[1])
    reduce_scatter(combined, sums, role)
    return combined


@scatter.register_fake
def _(
    rows: torch.Tensor, factors: torch.Tensor, places: torch.Tensor, role: str
) -> torch.Tensor:
    return rows.new_empty(factors.shape[1], rows.shape[1])


def inductor(module: GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
    """Inductor as a backend of `torch.compile`, for the graph with this exchange."""
    gather_instead(module)
    compiled: Callable[..., Any] = lookup_backend("inductor")(module, examples)
    return compiled


def gather_instead(module: GraphModule) -> None:
    """Put `gather` and `scatter` where a graph of Dynamo has `dispatch` and `combine`.

    Raises ValueError where a dispatch has not one combine in the same graph, or the
    weights of that are made behind it: then they cannot travel with the tokens.
    """
    for node in list(module.graph.nodes):
        if str(node.target) == "dynaflow.dispatch.default":
            _replace(module, node)
    module.graph.lint()
    module.recompile()


def _replace(module: GraphModule, dispatch: Node) -> None:
    place = {node: k for k, node in enumerate(module.graph.nodes)}
    arrived = _parts(dispatch, 2)
    users = {user for part in arrived for user in part.users}
    combines = [one for one in users if str(one.target) == "dynaflow.combine.default"]
    if len(combines) != 1:
        raise ValueError("a dispatch has not one combine in its graph")
    combine = combines[0]
    sent, back = _named(module, dispatch), _named(module, combine)
    weights = back["weights"]
    if place[weights] > place[dispatch]:
        raise ValueError("the weights of a combine are made behind its dispatch")
    given = (sent["tokens"], sent["experts"], weights)
    sizes = (sent["room"], sent["local"], sent["ranks"], sent["role"])
    with module.graph.inserting_before(dispatch):
        told = module.graph.call_function(
            torch.ops.dynaflow.measured_gather.default, (*given, *sizes)
        )
    dispatch.replace_all_uses_with(told)
    with module.graph.inserting_before(combine):
        factors, places = (
            module.graph.call_function(operator.getitem, (told, k)) for k in (3, 4)
        )
        scattered = module.graph.call_function(
            torch.ops.dynaflow.measured_scatter.default,
            (back["rows"], factors, places, back["role"]),
        )
    combine.replace_all_uses_with(scattered)
    module.graph.erase_node(combine)
    module.graph.erase_node(dispatch)


def _parts(node: Node, index: int) -> list[Node]:
    """Where a graph takes one of an operator's results."""
    return [
        user
        for user in node.users
        if user.target is operator.getitem and user.args[1] == index
    ]


def _named(module: GraphModule, node: Node) -> dict[str, Any]:
    """What an operator is given, by its names."""
    found = node.normalized_arguments(module, normalize_to_only_use_kwargs=True)
    assert found is not None
    return found.kwargs
