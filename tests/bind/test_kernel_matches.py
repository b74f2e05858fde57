"""Parts and references whose tensors may be paired in many ways."""

from __future__ import annotations

import random
from itertools import islice, permutations

import pytest

from dynaflow_dsl.bind.colours import Program, colours
from dynaflow_dsl.bind.kernels import Difference, assignments, match
from dynaflow_dsl.bind.model import Body, KernelCall
from dynaflow_dsl.graph.model import (
    Graph,
    Input,
    Operation,
    Reference,
    Size,
    TensorType,
    TracedKernel,
    Value,
)

ROWS = TensorType((Size(1, ("batch",)), Size(4)), (Size(4), Size(1)), "float32")


def operations(text: str) -> tuple[Operation, ...]:
    """`name = operator left right` on each line."""
    made = []
    for number, line in enumerate(text.strip().splitlines()):
        name, _, operator, *read = line.split()
        made.append(
            Operation(
                name,
                f"aten.{operator}",
                tuple(map(Reference, read)),
                (),
                (Value(name, ROWS, 100 + number),),
                False,
                (),
                False,
                (),
                "",
                None,
            )
        )
    return tuple(made)


def body(text: str, *outputs: str) -> Body:
    made = operations(text)
    names = {operation.name for operation in made}
    read = dict.fromkeys(
        item.name
        for operation in made
        for item in operation.arguments
        if isinstance(item, Reference) and item.name not in names
    )
    return Body(made, tuple(read), (), outputs)


def kernel(text: str, *outputs: str) -> TracedKernel:
    one = body(text, *outputs)
    inputs = tuple(
        Input(name, "step", Value(name, ROWS, k), k)
        for k, name in enumerate(one.inputs)
    )
    signature = tuple((name, None) for name in one.inputs)
    graph = Graph("", inputs, one.operations, outputs, (), signature, ())
    return TracedKernel(graph, (), None, "")


def test_twelve_outputs_in_any_order() -> None:
    """4.8e8 orders, one of which fits."""
    count = 12
    text = "\n".join(f"o{k} = sub.Tensor x{k} x{(k + 1) % count}" for k in range(count))
    text += "\np = relu.default x5"
    outputs = [*(f"o{k}" for k in range(count)), "p"]
    shuffled = [*outputs]
    random.Random(3).shuffle(shuffled)
    found = match(body(text, *outputs), kernel(text, *shuffled))
    assert isinstance(found, KernelCall)
    assert [shuffled[k] for k in found.outputs] == outputs
    assert all(mine == other for other, mine in found.tensors)


def test_outputs_that_are_alike_take_the_first_order() -> None:
    text = "\n".join(f"o{k} = relu.default x{k}" for k in range(9))
    outputs = [f"o{k}" for k in range(9)]
    found = match(body(text, *outputs), kernel(text, *outputs))
    assert isinstance(found, KernelCall)
    assert found.outputs == tuple(range(9))


def test_outputs_of_which_one_differs() -> None:
    text = "\n".join(f"o{k} = relu.default x{k}" for k in range(12))
    outputs = [f"o{k}" for k in range(12)]
    other = text.replace("o7 = relu.default", "o7 = tanh.default")
    found = match(body(text, *outputs), kernel(other, *outputs))
    assert isinstance(found, Difference)
    assert found.part.startswith("runs aten.relu.default")
    assert found.reference.startswith("runs aten.tanh.default")


def sums(depth: int, leaf: str, seed: int) -> str:
    """A tree of sums, the tensors of each in a random order."""
    generator = random.Random(seed)
    lines = [f"l{k} = {leaf} x{k}" for k in range(2**depth)]
    level = [f"l{k}" for k in range(2**depth)]
    for row in range(depth):
        pairs = list(zip(level[::2], level[1::2], strict=True))
        level = []
        for k, pair in enumerate(pairs):
            one, two = pair if generator.random() < 0.5 else pair[::-1]
            lines.append(f"s{row}_{k} = add.Tensor {one} {two}")
            level.append(f"s{row}_{k}")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(5))
def test_sums_in_any_order(seed: int) -> None:
    """Each leaf is read once more by another product, so that one pairing fits."""
    depth = 5
    tail = "\n".join(
        f"t{k} = sub.Tensor x{k} x{(k + 1) % 2**depth}" for k in range(2**depth)
    )
    top = f"s{depth - 1}_0"
    outputs = [top, *(f"t{k}" for k in range(2**depth))]
    mine = f"{sums(depth, 'relu.default', 0)}\n{tail}"
    other = f"{sums(depth, 'relu.default', seed)}\n{tail}"
    found = match(body(mine, *outputs), kernel(other, *outputs))
    assert isinstance(found, KernelCall)


def test_a_deep_sum_that_differs_at_one_leaf() -> None:
    """2**31 ways round, none of which fits."""
    mine = sums(5, "relu.default", 0)
    other = sums(5, "relu.default", 1).replace("l9 = relu", "l9 = tanh")
    found = match(body(mine, "s4_0"), kernel(other, "s4_0"))
    assert isinstance(found, Difference)


def brute(part: Body, traced: TracedKernel) -> bool:
    """Whether some order of outputs, and of the tensors of each sum, is equal."""
    graph = traced.graph

    def terms(operation_of: dict[str, Operation], name: str) -> object:
        operation = operation_of.get(name)
        if operation is None:
            return ("leaf", name)
        read = [
            terms(operation_of, item.name)
            for item in operation.arguments
            if isinstance(item, Reference)
        ]
        if operation.operator == "aten.add.Tensor":
            read.sort(key=repr)
        return (operation.operator, *read)

    mine = {operation.name: operation for operation in part.operations}
    theirs = {operation.name: operation for operation in graph.operations}
    for order in permutations(part.inputs):
        renamed = dict(zip((i.name for i in graph.inputs), order, strict=True))

        def leaves(term: object, names: dict[str, str] = renamed) -> object:
            assert isinstance(term, tuple)
            if term[0] == "leaf":
                return ("leaf", names[term[1]])
            read = [leaves(each) for each in term[1:]]
            if term[0] == "aten.add.Tensor":
                read.sort(key=repr)
            return (term[0], *read)

        one = sorted(repr(terms(mine, name)) for name in part.outputs)
        two = sorted(repr(leaves(terms(theirs, name))) for name in graph.outputs)
        if one == two:
            return True
    return False


def drawn(generator: random.Random, inputs: int, count: int) -> tuple[str, list[str]]:
    values = [f"x{k}" for k in range(inputs)]
    lines, unread = [], dict.fromkeys(values)
    for k in range(count):
        operator = generator.choice(["add.Tensor", "sub.Tensor", "relu.default"])
        read = [generator.choice(values) for _ in range(1 + ("relu" not in operator))]
        lines.append(f"v{k} = {operator} {' '.join(read)}")
        for name in read:
            unread.pop(name, None)
        unread[f"v{k}"] = None
        values.append(f"v{k}")
    outputs = [name for name in unread if name.startswith("v")]
    return "\n".join(lines), outputs


def test_what_is_found_is_what_trying_everything_finds() -> None:
    generator = random.Random(11)
    fitting = 0
    for _ in range(400):
        text, outputs = drawn(generator, 3, generator.randrange(2, 6))
        other = text
        if generator.random() < 0.5:
            swapped = [
                " ".join([*words[:3], *words[:2:-1]])
                if (words := line.split())[2] == "add.Tensor"
                else line
                for line in text.splitlines()
            ]
            other = "\n".join(swapped)
        if generator.random() < 0.4:
            other = other.replace("add", "sub", 1)
        one = body(text, *outputs)
        if len(one.inputs) != len(body(other, *outputs).inputs):
            continue
        shuffled = [*outputs]
        generator.shuffle(shuffled)
        traced = kernel(other, *shuffled)
        found = match(one, traced)
        assert isinstance(found, KernelCall) == brute(one, traced), (text, other)
        fitting += isinstance(found, KernelCall)
    assert 100 < fitting < 380


def test_colours_tell_apart_what_is_read_at_another_place() -> None:
    one = body("a = sub.Tensor x y", "a")
    program = Program(one.operations, one.outputs, True)
    mine, other = colours(program, program, {}, {})
    assert mine == other
    assert mine["x"] != mine["y"]
    alike = body("a = add.Tensor x y", "a")
    program = Program(alike.operations, alike.outputs, True)
    mine, _ = colours(program, program, {}, {})
    assert mine["x"] == mine["y"]


def types(*names: str) -> tuple[Body, dict[str, TensorType]]:
    inputs = tuple(f"x{k}" for k in range(len(names)))
    kinds = {
        x: TensorType((Size(4),), (Size(1),), name)
        for x, name in zip(inputs, names, strict=True)
    }
    return Body((), inputs, (), ()), kinds


@pytest.mark.parametrize(
    "names", [("a", "b", "a"), ("a", "a", "a"), ("b", "a", "b", "c"), ("a",)]
)
def test_lists_of_types_come_once_in_the_order_of_permutations(
    names: tuple[str, ...],
) -> None:
    part, kinds = types(*names)
    for count in range(1, len(names) + 1):
        every = permutations(kinds.values(), count)
        assert list(assignments(part, kinds, count)) == list(dict.fromkeys(every))


def test_thirty_tensors_of_one_type_are_one_list() -> None:
    part, kinds = types(*(["a"] * 30))
    assert len(list(assignments(part, kinds, 30))) == 1
    part, kinds = types(*(["a"] * 15), *(["b"] * 15))
    assert len(list(islice(assignments(part, kinds, 30), 24))) == 24
