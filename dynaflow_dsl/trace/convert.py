"""Exported program to plain data."""

from __future__ import annotations

import re

import torch

from dynaflow_dsl.graph.model import (
    Graph,
    Input,
)
from dynaflow_dsl.trace.arguments import Call, InputSpec
from dynaflow_dsl.trace.calls import check_calls, operation
from dynaflow_dsl.trace.decisions import check_squeezes
from dynaflow_dsl.trace.export import (
    Exported,
    Node,
    factor_size,
)
from dynaflow_dsl.trace.failures import refuse
from dynaflow_dsl.trace.lines import line_of_stack
from dynaflow_dsl.trace.model import TraceSpec, multiple
from dynaflow_dsl.trace.normalise import (
    normalise,
)
from dynaflow_dsl.trace.program import Program, without_root
from dynaflow_dsl.trace.sizes import SizeReader

LARGEST_CONSTANT = 64
_CALL_NUMBER = re.compile(r"@\d+")
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"


def convert(exported: Exported, spec: TraceSpec, call: Call) -> Graph:
    """The graph of one entry; raises DiagnosticError for what a graph cannot hold."""
    program = exported.program
    nodes = list(program.graph_module.graph.nodes)
    check_calls(nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    state = Program(
        spec,
        call.entry,
        normalise(nodes),
        SizeReader(dimension_symbols(program, call)),
        exported.contexts,
    )
    check_squeezes(state, nodes)
    inputs = _inputs(state, program, placeholders, call)
    operations = tuple(operation(state, node) for node in state.normalised.operations)
    modules = spec.model.named_modules(remove_duplicate=False)
    axes = [axis for item in call.inputs for axis in item.dimensions if axis]
    named = {multiple(axis)[1] for axis in axes}
    return Graph(
        entry=call.entry,
        inputs=inputs,
        operations=operations,
        outputs=_outputs(state, program, nodes[-1]),
        dimensions=tuple(
            (name, *bounds)
            for name, bounds in sorted(spec.dimensions.items())
            if name in named
        ),
        signature=call.signature,
        modules=tuple(name for name, _ in modules),
        fixed=tuple(sorted(spec.entries[call.entry].fixed.items())),
        phases=tuple(
            (name, tuple(names))
            for name, names in sorted(spec.entries[call.entry].phases.items())
        ),
        context=spec.context is not None,
    )


def dimension_symbols(
    program: torch.export.ExportedProgram, call: Call
) -> dict[str, str]:
    """The named dimension that each symbol of the program stands for."""
    kinds = {item.arg.name: item for item in program.graph_signature.input_specs}
    placeholders = [
        node
        for node in program.graph_module.graph.nodes
        if node.op == "placeholder" and kinds[node.name].kind.name == "USER_INPUT"
    ]
    symbols: dict[str, str] = {}
    for node, item in zip(placeholders, call.inputs, strict=True):
        for size, name in zip(node.meta["val"].shape, item.dimensions, strict=True):
            if name is not None and isinstance(size, torch.SymInt):
                product = factor_size(size)
                if product is not None and len(product[1]) == 1:
                    symbols[product[1][0]] = multiple(name)[1]
    return symbols


def _inputs(
    state: Program,
    program: torch.export.ExportedProgram,
    placeholders: list[Node],
    call: Call,
) -> tuple[Input, ...]:
    """Inputs in the program's order, without parameters and buffers nobody reads."""
    kinds = {item.arg.name: item for item in program.graph_signature.input_specs}
    step = iter(call.inputs)
    taken = {node.name for node in state.normalised.operations}
    inputs: list[Input] = []
    for node in placeholders:
        item = kinds[node.name]
        if item.kind.name == "USER_INPUT":
            inputs.append(_step_input(state, node, next(step), taken))
            continue
        if node not in state.normalised.read:
            continue
        path = without_root(str(item.target), state.spec.root)
        state.names[node] = _free_name(path, taken)
        tensor = node.meta["val"]
        match item.kind.name:
            case "PARAMETER":
                inputs.append(Input(path, "parameter", state.value(node, tensor, None)))
            case "BUFFER":
                inputs.append(Input(path, "buffer", state.value(node, tensor, None)))
            case "CONSTANT_TENSOR":
                constant = program.constants[str(item.target)]
                inputs.append(_constant(state, node, path, constant))
            case other:
                refuse(f"the traced program has an input of kind {other} ({path})")
    return tuple(inputs)


def _step_input(state: Program, node: Node, item: InputSpec, taken: set[str]) -> Input:
    state.names[node] = _free_name(item.name, taken)
    value = state.value(node, node.meta["val"], None)
    disjoint = item.base in state.spec.disjoint
    if disjoint and any(size.dimensions for size in value.type.shape):
        refuse(
            f"'disjoint' names '{item.base}', which has named dimensions: "
            "its rows are places of their own already"
        )
    if (kept := state.spec.persistent.get(item.base)) is not None:
        return Input(
            item.name,
            "persistent",
            value,
            argument=item.position,
            capacity=kept.capacity,
            scratch=kept.padding == "scratch",
            disjoint=disjoint,
        )
    return Input(item.name, "step", value, argument=item.position, disjoint=disjoint)


def _constant(state: Program, node: Node, path: str, tensor: torch.Tensor) -> Input:
    if tensor.numel() > LARGEST_CONSTANT:
        reader = next(iter(node.users), node)
        refuse(
            f"the model makes a constant of {tensor.numel()} numbers ('{path}') while "
            f"it is traced; at most {LARGEST_CONSTANT} can be kept in a graph",
            line_of_stack(reader.meta.get("stack_trace")),
            helps=("register it as a buffer of the module that uses it",),
        )
    if tensor.is_complex():
        reader = next(iter(node.users), node)
        refuse(
            f"the model makes a constant of complex numbers ('{path}') while it is "
            "traced; a graph keeps integers, floats and truth values",
            line_of_stack(reader.meta.get("stack_trace")),
            helps=("register it as a buffer of the module that uses it",),
        )
    if tensor.is_meta:
        refuse(f"the constant '{path}' has no values: it is a meta tensor")
    state.constants.add(state.normalised.storage(node.meta["val"]))
    value = state.value(node, node.meta["val"], None)
    return Input(path, "constant", value, data=_nested(tensor.tolist()))


def _outputs(
    state: Program, program: torch.export.ExportedProgram, output: Node
) -> tuple[str, ...]:
    names: list[str] = []
    for value in output.args[0]:  # type: ignore[union-attr]
        if not isinstance(value, Node) or not isinstance(
            value.meta.get("val"), torch.Tensor
        ):
            refuse(
                f"{_returning(state)} returns something that is not a tensor",
                helps=("return a tensor, or a tuple of tensors", *_adapter(state)),
            )
        names.append(state.name(value))
    structure = program.call_spec.out_spec
    flat = structure.is_leaf() or (
        structure.type in (tuple, list)
        and all(child.is_leaf() for child in structure.children())
        and len(names) > 1
    )
    if not flat:
        kind = getattr(structure.type, "__name__", "structure")
        refuse(
            f"{_returning(state)} returns a nested structure, a {kind}",
            helps=(
                "return a tensor, or a tuple of at least two tensors",
                *_adapter(state),
            ),
        )
    return tuple(names)


def _returning(state: Program) -> str:
    return "the model" if state.spec.adapter is None else "the adapter"


def _adapter(state: Program) -> tuple[str, ...]:
    """A way out for a model that stays as it is."""
    if state.spec.adapter is not None:
        return ()
    return (
        "or write an adapter, a module that calls the model and returns its tensors: "
        "TraceSpec(adapter=...)",
    )


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "@input"
    taken.add(name)
    return name


def _nested(data: object) -> object:
    return tuple(map(_nested, data)) if isinstance(data, list) else data
