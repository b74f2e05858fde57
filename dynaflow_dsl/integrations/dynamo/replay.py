"""Dynamo's graph, run call by call under the tracer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from dynaflow_dsl.integrations.dynamo.sources import Owner
from dynaflow_dsl.trace.export import storage_of
from dynaflow_dsl.trace.normalise import same_layout, tensors_of

# What Dynamo writes for `tensor.data`.
_DATA = getattr(torch._C._autograd, "_get_data_attr", None)

_WAITS = (
    torch.ops._c10d_functional.wait_tensor,
    torch.ops._c10d_functional.wait_tensor.default,
)


class ReplayInterpreter(Interpreter):
    """Runs a Dynamo graph call by call.

    Executors run without gradients, whatever the model's code says in between: what
    switches them does nothing, and a tensor without its gradient is the tensor.
    """

    def __init__(self, graph: GraphModule, model: torch.nn.Module) -> None:
        super().__init__(graph)
        self._model = model
        self._owner = Owner(model)
        # Memory that is not the graph's: of its inputs, and of what it holds itself.
        self._outside: set[int] = set()

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An input of the graph."""
        value = super().placeholder(target, args, kwargs)
        self._outside.update(map(storage_of, tensors_of(value)))
        return value

    def run_node(self, n: Node) -> Any:
        """What a node stands for."""
        brought_back = self._brought_back(n)
        return super().run_node(n) if brought_back is None else brought_back

    def _brought_back(self, node: Node) -> torch.Tensor | None:
        """The result of a collective that a call only copies to where its tensor was.

        Dynamo writes `torch.distributed.all_reduce(x)`, which is in place, as a
        collective with new memory and a copy into x. Where x is the graph's own and
        nothing is left that views it otherwise, all that follows may read the new
        memory: there is no copy, and a part can hold the collective alone.
        """
        if node.op != "call_method" or node.target != "copy_" or len(node.args) != 2:
            return None
        into, source = node.args
        if not isinstance(into, Node) or not isinstance(source, Node):
            return None
        if source.target not in _WAITS or len(source.users) > 1:
            return None
        written, result = self.env[into], self.env[source]
        memory = storage_of(written)
        if memory in self._outside:
            return None
        others = {
            each: value
            for each, value in self.env.items()
            if memory in map(storage_of, tensors_of(value))
        }
        if not all(same_layout(value, result) for value in others.values()):
            return None
        for each in others:
            self.env[each] = result
        assert isinstance(result, torch.Tensor)
        return result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What a call returns."""
        if target is torch._C._set_grad_enabled:
            return None
        if target is torch.amp.autocast_mode._enter_autocast:
            context: Any = torch.autocast(*args)
            return context.__enter__()
        if target is torch.amp.autocast_mode._exit_autocast:
            return args[0].__exit__(None, None, None)
        if target is _DATA:
            return args[0]
        if target is torch.Size:
            return tuple(args[0])
        if target is torch.chunk and args:
            return _chunks(*args, **kwargs)
        return super().call_function(target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What a call of a tensor's method returns."""
        if target == "chunk":
            return _chunks(*args, **kwargs)
        if target == "item" and isinstance(args[0], int | float):
            # A number of the model, for which Dynamo makes a tensor.
            return args[0]
        return super().call_method(target, args, kwargs)

    def fetch_attr(self, target: str) -> Any:
        """What a graph holds itself; a weight among it is the model's."""
        value = super().fetch_attr(target)
        self._outside.update(map(storage_of, tensors_of(value)))
        path = self._owner.tensor(value)
        if path is None:
            return value
        weight = tensor_at(self._model, path)
        self._outside.add(storage_of(weight))
        return weight


def _chunks(whole: torch.Tensor, chunks: int, dim: int = 0) -> Sequence[torch.Tensor]:
    """The chunks of a tensor.

    Torch finds out by the sizes how many there are, and cannot prove of an open one
    what is plain where the size is a multiple.
    """
    size = whole.shape[dim]
    if not isinstance(size, torch.SymInt) or not statically_known_true(
        size % chunks == 0
    ):
        return whole.chunk(chunks, dim)
    if chunks == 1:
        return (whole,)
    length, before = size // chunks, (slice(None),) * (dim % whole.ndim)
    return tuple(
        whole[(*before, slice(number * length, (number + 1) * length))]
        for number in range(chunks)
    )


def tensor_at(model: torch.nn.Module, path: str) -> Any:
    """The tensor with a path in a model."""
    module, _, name = path.rpartition(".")
    return getattr(model.get_submodule(module), name)
