from __future__ import annotations

from dynaflow_dsl.bind import Carried, Outer, Produced
from tests.bind.graphs import bound, fault, graph, marked, repeat

PARTS = "a = .x\nb = .y"


def layers(layer: str, count: int = 3, head: str = "", tail: str = "") -> str:
    lines = ["input h0", head, repeat(layer, count), tail or f"return h{count}"]
    return "\n".join(line for line in lines if line)


def test_carried_produced_and_outer() -> None:
    layer = """
        a%i = mul.Tensor(h%i, m) @ layers.%i.x
        b%i = add.Tensor(a%i, keys.%i) @ layers.%i.y
        h%n = add.Tensor(b%i, h%i) @ layers.%i.y
    """
    model = graph(layers(layer, head="input m keys.0 keys.1 keys.2"))
    a, b = bound(PARTS, model).parts
    assert a.roles == (Carried("b", 0, "h0"), Outer(("m", "m", "m")))
    assert b.roles == (
        Carried("b", 0, "h0"),
        Produced("a", 0),
        Outer(("keys.0", "keys.1", "keys.2")),
    )
    assert [i.inputs for i in b.instances] == [
        ("h0", "a0", "keys.0"),
        ("h1", "a1", "keys.1"),
        ("h2", "a2", "keys.2"),
    ]
    assert [len(p.bodies) for p in (a, b)] == [1, 1]


def test_one_layer_carries_nothing() -> None:
    layer = "a%i = relu(h%i) @ layers.%i.x\nh%n = relu(a%i) @ layers.%i.y"
    a, b = bound(PARTS, graph(layers(layer, 1))).parts
    assert a.roles == (Outer(("h0",)),)
    assert b.roles == (Produced("a", 0),)


def test_two_carried_values_of_one_type() -> None:
    layer = """
        a%i = mul.Tensor(h%i, r%i) @ layers.%i.x
        r%n = relu(a%i) @ layers.%i.y
        h%n = add.Tensor(a%i, h%i) @ layers.%i.y
    """
    a, b = bound(PARTS, graph(layers(layer, head="input r0"))).parts
    assert a.roles == (Carried("b", 1, "h0"), Carried("b", 0, "r0"))
    assert b.instances[2].outputs == ("r3", "h3")
    assert b.roles == (Carried("b", 1, "h0"), Produced("a", 0))


def test_two_carried_values_where_the_first_layer_is_another_program() -> None:
    text = """
        input r0 h0
        a0 = add.Tensor(h0, r0) @ layers.0.x
        r1 = relu(a0) @ layers.0.y
        h1 = add.Tensor(a0, h0) @ layers.0.y
        a1 = mul.Tensor(r1, h1) @ layers.1.x
        r2 = relu(a1) @ layers.1.y
        h2 = add.Tensor(a1, h1) @ layers.1.y
        return h2 r2
    """
    a, b = bound(PARTS, graph(text)).parts
    # Each carried value starts as one value, whatever part reads it.
    starts = {
        (r.output, r.initial) for p in (a, b) for r in p.roles if isinstance(r, Carried)
    }
    assert len({output for output, _ in starts}) == len(starts)
    assert len(a.bodies) == 2


def test_one_carried_value_that_starts_as_two() -> None:
    text = """
        input p0 q0
        a0 = relu(p0) @ layers.0.x
        h1 = add.Tensor(a0, q0) @ layers.0.y
        a1 = relu(h1) @ layers.1.x
        h2 = add.Tensor(a1, h1) @ layers.1.y
        return h2
    """
    found = fault(PARTS, graph(text))
    assert found.code == "DFS205"
    assert marked(found) == ".y"
    assert found.message == (
        "b differs between layers.0 and layers.1: what b made before it starts as "
        "two values"
    )


def test_two_carried_values_that_start_as_one() -> None:
    layer = """
        a%i = relu(h%i) @ layers.%i.x
        r%n = relu(r%i) @ layers.%i.y
        h%n = relu(a%i) @ layers.%i.x
    """
    text = layers(layer).replace("relu(r0)", "relu(h0)")
    a, b = bound(PARTS, graph(text.replace("return h3", "return h3 r3"))).parts
    assert a.roles == (Carried("a", 0, "h0"),)
    assert b.roles == (Carried("b", 0, "h0"),)


def test_reading_this_and_the_previous_iteration() -> None:
    layer = """
        a%n = relu(h%i) @ layers.%i.x
        h%n = add.Tensor(a%n, a%i) @ layers.%i.y
    """
    _, b = bound(PARTS, graph(layers(layer, head="input a0"))).parts
    assert b.roles == (Carried("a", 0, "a0"), Produced("a", 0))
    assert [i.inputs for i in b.instances] == [("a0", "a1"), ("a1", "a2"), ("a2", "a3")]


def test_reading_two_iterations_back() -> None:
    layer = """
        a%n = relu(h%i) @ layers.%i.x
        h%n = add.Tensor(h%i, a%n) @ layers.%i.y
    """
    text = layers(layer).replace("add.Tensor(h2, a3)", "add.Tensor(h2, a1)")
    found = fault(PARTS, graph(text))
    assert found.code == "DFS205"
    assert found.message == (
        "b differs between layers.2 and layers.0: it reads what a made there"
    )
    assert marked(found) == ".y"
    assert found.secondary[0].span.text == ".layers.*"


MASKED = """
    a%i = mul.Tensor(h%i, MASK) @ layers.%i.x
    h%n = relu(a%i) @ layers.%i.y
"""


def masked(*masks: str) -> str:
    text = "input h0 m n"
    for i, mask in enumerate(masks):
        layer = repeat(MASKED.replace("MASK", mask), i + 1).splitlines()[-2:]
        text += "\n" + "\n".join(layer)
    return f"{text}\nreturn h{len(masks)}"


def test_alternating_outer_values_are_one_program() -> None:
    a, _ = bound(PARTS, graph(masked("m", "n", "m", "n"))).parts
    assert a.roles[1] == Outer(("m", "n", "m", "n"))
    assert len(a.bodies) == 1


def test_layers_that_ignore_an_outer_value_get_it_all_the_same() -> None:
    text = masked("m", "m", "m", "m")
    text = text.replace("mul.Tensor(h2, m)", "relu(h2)")
    a, _ = bound(PARTS, graph(text)).parts
    assert a.roles[1] == Outer(("m", "m", "m", "m"))
    assert [i.body for i in a.instances] == [0, 0, 1, 0]
    assert a.bodies[1].inputs == ("h2", "m")


def test_the_first_layer_may_ignore_it() -> None:
    text = masked("m", "m", "m").replace("mul.Tensor(h0, m)", "relu(h0)")
    a, _ = bound(PARTS, graph(text)).parts
    assert a.roles == (Carried("b", 0, "h0"), Outer(("m", "m", "m")))


def test_layers_that_ignore_their_own_value_get_a_neighbours() -> None:
    layer = """
        a%i = mul.Tensor(h%i, keys.%i) @ layers.%i.x
        h%n = relu(a%i) @ layers.%i.y
    """
    text = layers(layer, 4, head="input keys.0 keys.1 keys.2 keys.3")
    text = text.replace("mul.Tensor(h2, keys.2)", "relu(h2)")
    a, _ = bound(PARTS, graph(text)).parts
    assert a.roles[1] == Outer(("keys.0", "keys.1", "keys.1", "keys.3"))
    # It is handed over and not touched: nothing waits for it.
    assert a.instances[2].touched == ()
    assert ("keys.1", False) in a.instances[1].touched


def test_a_neighbours_value_is_none_that_the_layer_reads_itself() -> None:
    layer = """
        a%i = mul.Tensor(h%i, keys.%i) @ layers.%i.x
        h%n = mul.Tensor(a%i, values.%i) @ layers.%i.x
    """
    lists = " ".join(f"keys.{i} values.{i}" for i in range(4))
    text = layers(layer, 4, head=f"input {lists}")
    text = text.replace("mul.Tensor(h2, keys.2)", "relu(h2)")
    text = text.replace("mul.Tensor(h3, keys.3)", "relu(h3)")
    text = text.replace("values.3)", "keys.1)")
    (a,) = bound("a = .x", graph(text)).parts
    assert set(a.roles[1:]) == {
        Outer(("keys.0", "keys.1", "keys.1", "keys.0")),
        Outer(("values.0", "values.1", "values.2", "keys.1")),
    }


def test_inputs_of_two_programs_keep_their_lists() -> None:
    layer = """
        a%i = add.Tensor(keys.%i, h%i) @ layers.%i.x
        h%n = mul.Tensor(a%i, values.%i) @ layers.%i.x
    """
    lists = " ".join(f"keys.{i} values.{i}" for i in range(3))
    text = layers(layer, head=f"input {lists}")
    text = text.replace("add.Tensor(keys.1, h1)", "mul.Tensor(h1, values.1)")
    text = text.replace("mul.Tensor(a1, values.1)", "add.Tensor(keys.1, a1)")
    (a,) = bound("a = .x", graph(text)).parts
    assert len(a.bodies) == 2
    assert a.roles[1:] == (
        Outer(("keys.0", "keys.1", "keys.2")),
        Outer(("values.0", "values.1", "values.2")),
    ) or a.roles[1:] == (
        Outer(("values.0", "values.1", "values.2")),
        Outer(("keys.0", "keys.1", "keys.2")),
    )
    for instance in a.instances:
        assert instance.inputs[0].startswith("h")


def test_a_list_can_be_read_in_reverse_order() -> None:
    layer = """
        a%i = mul.Tensor(h%i, keys.%i) @ layers.%i.x
        h%n = relu(a%i) @ layers.%i.y
    """
    text = layers(layer, head="input keys.0 keys.1 keys.2")
    text = text.replace("h0, keys.0", "h0, keys.9").replace("keys.2)", "keys.0)")
    text = text.replace("keys.9", "keys.2")
    a, _ = bound(PARTS, graph(text)).parts
    assert a.roles[1] == Outer(("keys.2", "keys.1", "keys.0"))


def test_results_of_a_layer_in_the_middle() -> None:
    layer = "a%i = relu(h%i) @ layers.%i.x\nh%n = relu(a%i) @ layers.%i.y"
    read = "what the first makes is read after the last"
    returned = "the model returns what the first makes"
    for tail, reason in (
        ("return h3 h2", returned),
        ("v = ~view(h2)\nreturn h3 v", read),
        ("y = relu(h2)\nreturn h3 y", read),
    ):
        found = fault(PARTS, graph(layers(layer, tail=tail)))
        assert found.code == "DFS205"
        assert found.message == f"b differs between layers.1 and layers.2: {reason}"
        assert ("use_cache=False" in found.helps[0]) == (reason == returned)
        assert marked(found) == ".y"


def test_layers_that_are_connected_differently() -> None:
    layer = """
        a%i = relu(h%i) @ layers.%i.x
        b%i = relu(a%i) @ layers.%i.y
        h%n = add.Tensor(b%i, h%i) @ layers.%i.y
    """
    text = layers(layer).replace("add.Tensor(b1, h1)", "add.Tensor(b1, b1)")
    found = fault(PARTS, graph(text))
    assert found.code == "DFS205"
    assert found.message == (
        "b differs between layers.1 and layers.2: only one of them reads what b made"
    )
    text = layers(layer).replace("add.Tensor(b2, h2)", "add.Tensor(b2, h0)")
    found = fault(PARTS, graph(text))
    assert found.message == (
        "b differs between layers.1 and layers.2: one reads what b made in the layer "
        "before, the other a value from outside the layers"
    )
