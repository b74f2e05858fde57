"""Graphs that a Dynamo graph calls, written out where they are called.

Dynamo keeps what `torch.utils.checkpoint` calls as a graph of its own, which is run
again in a backward pass. A step has none, and to a schedule its calls are like others.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Argument, map_arg

# Calls that return what their first argument, a graph, returns for the others. Not
# `invoke_subgraph`: one graph of that kind may be called for many layers, and would
# count for the first of them.
_CALLS = ("tag_activation_checkpoint", "wrap_activation_checkpoint")


def without_inner_graphs(module: GraphModule) -> GraphModule:
    """A graph with the calls of those that it only calls; itself where it has none.

    Calls keep what Dynamo knows of them: the modules in which they ran, and stack
    traces. Inputs stay as they are.
    """
    if not any(_body(node, module) is not None for node in module.graph.nodes):
        return module
    graph = Graph()
    graph.output(_copied(graph, module, "", {}))
    return GraphModule(module, graph)


def _copied(
    graph: Graph, module: GraphModule, path: str, given: Mapping[str, Argument]
) -> Argument:
    """Add the calls of a module's graph; what it returns.

    `path` is the module's, with a dot after it, in the outermost one. `given` are its
    inputs by name, for which the outermost one has nodes of its own.
    """
    known: dict[Node, Argument] = {}

    def found(node: Node) -> Argument:
        return known[node]

    for node in module.graph.nodes:
        if node.op == "output":
            returned: Argument = map_arg(node.args[0], found)
            return returned
        if node.op == "placeholder" and node.name in given:
            known[node] = given[node.name]
        elif (body := _body(node, module)) is not None:
            name, inner = body
            inputs = [each for each in inner.graph.nodes if each.op == "placeholder"]
            values = [map_arg(each, found) for each in node.args[1:]]
            names = (each.name for each in inputs)
            known[node] = _copied(
                graph, inner, f"{path}{name}.", dict(zip(names, values, strict=True))
            )
        elif node.target is operator.getitem and isinstance(
            results := map_arg(node.args[0], found), list | tuple
        ):
            known[node] = results[node.args[1]]
        elif node.op == "get_attr" and _is_graph(module, node):
            continue
        else:
            copied = graph.node_copy(node, found)
            if node.op == "get_attr":
                copied.target = f"{path}{node.target}"
            known[node] = copied
    return None


def _body(node: Node, module: GraphModule) -> tuple[str, GraphModule] | None:
    """The graph that a call only calls, and its name in the module."""
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return None
    if str(node.target) not in _CALLS or not isinstance(node.args[0], Node):
        return None
    name = str(node.args[0].target)
    inner = getattr(module, name, None)
    return (name, inner) if isinstance(inner, GraphModule) else None


def _is_graph(module: GraphModule, node: Node) -> bool:
    """Whether a node is a graph that only such calls use."""
    inner = getattr(module, str(node.target), None)
    return isinstance(inner, GraphModule) and all(
        _body(user, module) is not None for user in node.users
    )
