import pytest

from dynaflow_dsl.bind.model import (
    Binding,
    Body,
    BoundPart,
    BoundSection,
    Instance,
    Iteration,
)
from dynaflow_dsl.graph.model import Graph, Operation, SourceLine
from dynaflow_dsl.views.data import parts_data
from dynaflow_dsl.views.parts import numbers, parts
from tests.bind.graphs import bound, graph, repeat
from tests.prove.schedules import weighted, written
from tests.views.sample import halves

BROUGHT = """fetch: layer 0 to 2, on copy, 2 weights from host memory
    .a.w  float32[4]
    .b.w  float32[4]

body: layer 0 to 2, on main, 3 operations
"""
FETCHING = """    stream copy
    each layer in .layers.*:
        part fetch on copy = weights in .
        part body = rest
        order:
            fetch | prev.body
"""


def operation(name: str, module: str, view: bool = False) -> Operation:
    return Operation(
        name=name,
        operator=f"aten.{name.rstrip('_0123456789')}.default",
        arguments=(),
        keywords=(),
        results=(),
        multiple=False,
        writes=(),
        view=view,
        tags=(),
        module=module,
        source=SourceLine("model.py", 7, "y = f(x)") if name == "linear" else None,
    )


def part(
    name: str, *bodies: tuple[Operation, ...], runs: tuple[int, ...], attached: str = ""
) -> BoundPart:
    return BoundPart(
        name=name,
        bodies=tuple(
            Body(body, (), (), (), example=runs.index(index))
            for index, body in enumerate(bodies)
        ),
        instances=tuple(Instance(index, (), (), (), (), ()) for index in runs),
        roles=(),
        attached=frozenset(attached.split()),
    )


@pytest.fixture
def binding() -> Binding:
    layer = "model.layers.0"
    norm = operation("norm", f"{layer}.input_layernorm")
    linear = operation("linear", f"{layer}.self_attn.q_proj")
    view = operation("view", f"{layer}.self_attn", view=True)
    cosine = operation("cos", "model.rotary")
    add = operation("add", layer)
    other = operation("mul", "model.layers.2.mlp")
    return Binding(
        schedule=halves(),
        graph=Graph("decode", (), (), (), (), (), ()),
        sections=(
            BoundSection(
                halves().sections[0],
                tuple(Iteration(n, f"model.layers.{n}") for n in range(3)),
                (
                    part("attn", (norm, linear, view, cosine), runs=(0, 0, 0)),
                    part("mlp", (add,), (other,), runs=(0, 0, 1), attached="add"),
                ),
            ),
        ),
        before=part("before", (operation("embedding", "model.embed"),), runs=(0,)),
        gaps=None,
        after=None,
        axes={},
        variables={},
        joined=frozenset(),
        results=(),
    )


def test_operations_are_grouped_by_module_relative_to_the_iteration(
    binding: Binding,
) -> None:
    assert (
        parts(binding)
        == """\
before: once on the whole batch, on main, 1 operation
    .model.embed
        embedding  aten.embedding.default

attn: layer 0 to 2, on side, 3 operations and 1 view
    .input_layernorm
        norm    aten.norm.default
    .self_attn.q_proj
        linear  aten.linear.default  model.py:7: y = f(x)
    .self_attn
        view    aten.view.default
    root.model.rotary
        cos     aten.cos.default

mlp: layer 0 to 1, on main, 1 operation
    .
    +   add  aten.add.default

mlp: layer 2, on main, 1 operation
    .mlp
        mul  aten.mul.default

+ attached: an operation of the layer itself, in the part that reads it first
"""
    )


LAYER = """
    a%i = linear(h%i) @ layers.%i.attn.q
    b%i = relu(a%i) @ layers.%i.attn
    c%i = linear(b%i) @ layers.%i.mlp
    d%i = relu(c%i) @ layers.%i.mlp marked gate
    h%n = relu(d%i) @ layers.%i
"""
CLAIMED = """\
attn: layer 0 to 1, on main, 2 operations
    1   .attn.q: 1 operation
    2   own in .attn: 1 operation
    .attn.q
    1   a0  aten.linear.default
    .attn
    2   b0  aten.relu.default

up: layer 0 to 1, on main, 1 operation
    1   matmul in .mlp: 1 operation
    .mlp
    1   c0  aten.linear.default

down: layer 0 to 1, on main, 2 operations
    .mlp
        d0  aten.relu.default
    .
    +   h1  aten.relu.default
"""


def claimed_binding() -> Binding:
    made = graph(f"input h0\n{repeat(LAYER, 2)}\nreturn h2")
    selectors = """
        attn = .attn.q + (own in .attn) + .mlp - .mlp
        up = (softmax in .mlp) or (matmul in .mlp)
        down = rest
    """
    return bound(selectors, made)


def test_a_number_names_the_term_that_selected_an_operation() -> None:
    assert CLAIMED in parts(claimed_binding())


def test_data_has_the_term_and_the_marks_of_each_operation() -> None:
    listed = parts_data(claimed_binding())["parts"]
    assert isinstance(listed, list)
    found = {
        operation["name"]: (operation["selector"], operation["marks"])
        for item in listed
        for operation in item["bodies"][0]
        if item["part"] != "after"
    }
    assert found == {
        "a0": (".attn.q", []),
        "b0": ("own in .attn", []),
        "c0": ("matmul in .mlp", []),
        "d0": ("rest", ["gate"]),
        "h1": (None, []),
    }


def test_data_names_the_program_of_each_iteration(binding: Binding) -> None:
    data = parts_data(binding)
    listed = data["parts"]
    assert isinstance(listed, list)
    assert [item["part"] for item in listed] == ["before", "attn", "mlp"]
    assert listed[2]["instances"] == [0, 0, 1]
    assert listed[2]["bodies"][0][0]["attached"] is True


@pytest.mark.parametrize(
    ("values", "text"),
    [([0], "0"), ([0, 1], "0 to 1"), ([5, 0, 1, 2], "0 to 2, 5"), ([0, 2], "0, 2")],
)
def test_numbers_join_neighbours(values: list[int], text: str) -> None:
    assert numbers(values) == text


def test_weights_that_a_part_brings() -> None:
    made = written(weighted(3), FETCHING)
    assert parts(made.plan.binding).startswith(BROUGHT)
    data = parts_data(made.plan.binding)
    listed = data["parts"]
    assert isinstance(listed, list)
    (fetch,) = [one for one in listed if one["part"] == "fetch"]
    assert fetch == {
        "part": "fetch",
        "instances": [0, 0, 0],
        "bodies": [[]],
        "weights": [["layers.0.a.w", "layers.0.b.w"]],
    }
    assert all("weights" not in one for one in listed if one is not fetch)
