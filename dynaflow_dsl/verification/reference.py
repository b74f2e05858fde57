"""Runs an exported program node by node, some nodes whole and the others per piece.

It is the meaning that a schedule must keep: the same operations on the same slices, in
the model's own order, on one stream. It reads only the exported program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_flatten, tree_unflatten

# None is the whole batch, a number one of its pieces.
Side: TypeAlias = int | None

# From the rows of a piece to what its nodes run in.
Context: TypeAlias = Callable[[slice], AbstractContextManager[Any]]


def run_reference(
    exported: ExportedProgram,
    weights: Mapping[str, torch.Tensor],
    arguments: Sequence[Any],
    whole: Collection[str],
    pieces: Sequence[slice],
    *,
    split_input: tuple[int, int] | None = None,
    context: Context | None = None,
) -> Any:
    """What the exported program gives for `arguments`, computed in pieces.

    The nodes named in `whole` run once on the whole batch, every other node once for
    each slice of `pieces`, in turn; without pieces everything runs whole. `weights` are
    the program's parameters and buffers by the names that it knows them under; those
    left out are taken from the program. In-place writes land in `arguments`.
    `split_input` is the position among the flattened arguments, and the axis, of the
    dimension that is split; it is needed when there are several symbolic dimensions.
    Nodes of a piece run in `context` of its rows. Raises ValueError for values that
    cannot be cut or joined.
    """
    run = Reference(
        exported, weights, arguments, whole, pieces, split_input, context=context
    )
    return run.outputs()


@dataclass(frozen=True, slots=True)
class Poison:
    """What replaces one row of all that pieces are given.

    `fill` is given that row of a tensor's copy, to write, and the one before.
    """

    row: int
    fill: Callable[[torch.Tensor, torch.Tensor], None]


class Reference:
    """Values of nodes: one per node for the whole batch, and one per node and piece.

    Views and sizes are computed on the side that asks, when it asks: they read no data,
    so later writes show through them. Arguments are those of `run_reference`; a
    `poison` changes what enters pieces. With `blocks` an axis may hold several places
    for each row, one row's after the other's, and the last piece runs first.
    """

    def __init__(
        self,
        exported: ExportedProgram,
        weights: Mapping[str, torch.Tensor],
        arguments: Sequence[Any],
        whole: Collection[str],
        pieces: Sequence[slice],
        split_input: tuple[int, int] | None = None,
        poison: Poison | None = None,
        blocks: bool = False,
        context: Context | None = None,
    ) -> None:
        self._exported = exported
        self._poison = poison
        self._blocks = blocks
        self._context = context
        self._graph = exported.graph_module.graph
        self._pieces = pieces
        self._values: dict[tuple[Node, Side], Any] = {}
        flat = self._bind_inputs(weights, arguments)
        self._symbol = self._split_symbol(flat, split_input) if pieces else None
        self._homes: dict[Node, Literal["whole", "pieces", "either"]] = {}
        for node in self._graph.nodes:
            self._homes[node] = self._home(node, whole)

    def outputs(self) -> Any:
        """Run everything; the program's outputs in the form that the model gave."""
        with torch.no_grad():
            return self._outputs()

    def joined(self, name: str) -> torch.Tensor:
        """The whole value of a node after a run."""
        value = self._get(self._node(name), None)
        assert isinstance(value, torch.Tensor)
        return value

    def without_row(self, name: str, row: int) -> torch.Tensor:
        """The whole value of a node after a run, but for one row."""
        node, value = self._node(name), self.joined(name)
        axis = self._axis(node, exact=False)
        if axis is None:
            return value
        inner = value.shape[axis] // self._pieces[-1].stop
        before = value.narrow(axis, 0, row * inner)
        start = (row + 1) * inner
        behind = value.narrow(axis, start, value.shape[axis] - start)
        return torch.cat([before, behind], axis)

    def _node(self, name: str) -> Node:
        found: Node = next(node for node in self._graph.nodes if node.name == name)
        return found

    def _outputs(self) -> Any:
        for node in self._graph.nodes:
            if node.op != "call_function" or self._homes[node] == "either":
                continue
            written = written_arguments(node)
            if not node.users and not written:
                continue
            sides: Sequence[Side] = [None]
            if self._homes[node] == "pieces":
                # In whatever order: those that write one place twice differ then.
                order = range(len(self._pieces))
                sides = order[::-1] if self._blocks else order
            for side in sides:
                self._values[node, side] = self._call(node, side)
            for argument in written:
                self._forget_joined(argument)
        last = next(node for node in self._graph.nodes if node.op == "output")
        kinds = (spec.kind for spec in self._exported.graph_signature.output_specs)
        found = [
            self._get(value, None) if isinstance(value, Node) else value
            for value, kind in zip(last.args[0], kinds, strict=True)
            if kind is OutputKind.USER_OUTPUT
        ]
        return tree_unflatten(found, self._exported.call_spec.out_spec)

    def _bind_inputs(
        self, weights: Mapping[str, torch.Tensor], arguments: Sequence[Any]
    ) -> list[Node]:
        """Give placeholders their values; the placeholders of user inputs in order."""
        flat, _ = tree_flatten((tuple(arguments), {}))
        placeholders = [node for node in self._graph.nodes if node.op == "placeholder"]
        users: list[Node] = []
        specs = self._exported.graph_signature.input_specs
        taken = sum(spec.kind is InputKind.USER_INPUT for spec in specs)
        if taken != len(flat):
            message = f"the program takes {taken} tensors, {len(flat)} were given"
            raise ValueError(message)
        for node, spec in zip(placeholders, specs, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                value = flat[len(users)]
                users.append(node)
            else:
                value = self._weight(str(spec.target), weights)
            self._values[node, None] = value
        return users

    def _weight(self, name: str, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
        for known in (weights, self._exported.state_dict, self._exported.constants):
            if name in known:
                tensor = known[name]
                assert isinstance(tensor, torch.Tensor)
                return tensor.detach()
        raise ValueError(f"the program's tensor {name!r} is not among the weights")

    def _split_symbol(
        self, users: Sequence[Node], split_input: tuple[int, int] | None
    ) -> Any:
        if split_input is not None:
            position, axis = split_input
            size = users[position].meta["val"].shape[axis]
            if not isinstance(size, torch.SymInt):
                raise ValueError(f"axis {axis} of input {position} is not symbolic")
            return size.node.expr
        symbols = {
            symbol
            for node in users
            for size in node.meta["val"].shape
            if isinstance(size, torch.SymInt)
            for symbol in size.node.expr.free_symbols
        }
        if len(symbols) != 1:
            message = f"the program has {len(symbols)} dimensions: name one to split"
            raise ValueError(message)
        return symbols.pop()

    def _home(
        self, node: Node, whole: Collection[str]
    ) -> Literal["whole", "pieces", "either"]:
        if node.op != "call_function" or not self._pieces:
            return "whole"
        if node.target is operator.getitem:
            producer = node.args[0]
            assert isinstance(producer, Node)
            return self._homes[producer]
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | int) or _is_view(node):
            return "either"
        return "whole" if node.name in whole else "pieces"

    def _get(self, node: Node, side: Side) -> Any:
        """The value of a node as one side sees it."""
        base = _mutated(node)
        if base is not None:
            return self._get(base, side)
        if (node, side) in self._values:
            return self._values[node, side]
        home = self._homes[node]
        if home == "either":
            value = self._call(node, side)
            if isinstance(value, torch.SymInt | int | float):
                return value
        elif node.target is operator.getitem:
            producer, index = node.args
            assert isinstance(producer, Node)
            if (side is None) == (home == "whole"):
                value = self._get(producer, side)[index]
            else:
                value = self._cross(node, side)
        else:
            value = self._cross(node, side)
        self._values[node, side] = value
        return value

    def _cross(self, node: Node, side: Side) -> Any:
        """A value that the other side has computed, cut or joined."""
        if side is None:
            parts = [self._get(node, piece) for piece in range(len(self._pieces))]
            axis = self._axis(node, exact=False)
            return parts[0] if axis is None else torch.cat(parts, axis)
        value = self._get(node, None)
        axis = self._axis(node, exact=not self._blocks)
        if axis is None:
            return value
        piece = self._pieces[side]
        inner = value.shape[axis] // self._pieces[-1].stop if self._blocks else 1
        if self._poison is not None:
            value = value.clone()
            row = value.narrow(axis, self._poison.row * inner, inner)
            before = value.narrow(axis, (self._poison.row - 1) * inner, inner)
            self._poison.fill(row, before)
        cut = slice(piece.start * inner, piece.stop * inner)
        return value[(slice(None),) * axis + (cut,)]

    def _axis(self, node: Node, *, exact: bool) -> int | None:
        """The axis of a tensor that holds the split dimension; None if no axis does."""
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{node.name} is not a tensor and cannot be cut or joined")
        sizes: list[Any] = list(value.shape)
        found = [
            (axis, size.node.expr)
            for axis, size in enumerate(sizes)
            if isinstance(size, torch.SymInt)
            and self._symbol in size.node.expr.free_symbols
        ]
        if not found:
            return None
        if len(found) > 1 or (exact and found[0][1] != self._symbol):
            shape = ", ".join(map(str, value.shape))
            raise ValueError(f"{node.name} [{shape}] cannot be cut along one dimension")
        return found[0][0]

    def _call(self, node: Node, side: Side) -> Any:
        def value(argument: Node) -> Any:
            return self._get(argument, side)

        assert callable(node.target)
        arguments = map_arg(node.args, value)
        named = map_arg(node.kwargs, value)
        inside: AbstractContextManager[Any] = nullcontext()
        if self._context is not None and side is not None:
            inside = self._context(self._pieces[side])
        with inside:
            return node.target(*arguments, **named)

    def _forget_joined(self, written: Node) -> None:
        """Drop copies that were joined from pieces, once a piece is written again."""
        base = _mutated(written) or written
        if self._homes[base] == "pieces":
            self._values.pop((base, None), None)


def written_arguments(node: Node) -> list[Node]:
    """The arguments that a node writes in place, by its operator's schema."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return []
    found: list[Node] = []
    for position, argument in enumerate(target._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = (
            node.args[position]
            if position < len(node.args)
            else node.kwargs.get(argument.name)
        )
        listed = given if isinstance(given, list | tuple) else [given]
        found += [value for value in listed if isinstance(value, Node)]
    return found


def _mutated(node: Node) -> Node | None:
    """The argument that an in-place operation returns; None for other nodes."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    returns = target._schema.returns
    written = written_arguments(node)
    if len(written) != 1 or len(returns) != 1:
        return None
    alias = returns[0].alias_info
    return written[0] if alias is not None and alias.is_write else None


def _is_view(node: Node) -> bool:
    """Whether a node's results only show memory of its arguments."""
    if written_arguments(node):
        return False
    value = node.meta.get("val")
    results = value if isinstance(value, tuple | list) else [value]
    storages = {
        argument.meta["val"].untyped_storage()._cdata
        for argument in node.all_input_nodes
        if isinstance(argument.meta.get("val"), torch.Tensor)
    }
    return bool(results) and all(
        isinstance(result, torch.Tensor) and result.untyped_storage()._cdata in storages
        for result in results
    )
