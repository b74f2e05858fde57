from __future__ import annotations

from dynaflow_dsl.bind import Carried
from tests.bind.graphs import bound, fault, graph, part, repeat

PARTS = "a = .x\nb = .y"


def layers(layer: str, count: int = 3, head: str = "", tail: str = "") -> str:
    lines = ["input h0", head, repeat(layer, count), tail or f"return h{count}"]
    return "\n".join(line for line in lines if line)


def test_weights_shared_by_all_layers() -> None:
    layer = "h%n = mm(h%i, w) @ layers.%i.x"
    (a,) = bound("a = .x", graph(layers(layer, head="weight w"))).parts
    assert [i.parameters for i in a.instances] == [("w",)] * 3
    assert len(a.bodies) == 1


def test_a_weight_used_twice_is_another_program() -> None:
    layer = "a%i = mm(h%i, v%i) @ layers.%i.x\nh%n = mm(a%i, w%i) @ layers.%i.x"
    text = layers(layer, head="weight v0 v1 v2 w0 w2").replace("(a1, w1)", "(a1, v1)")
    (a,) = bound("a = .x", graph(text)).parts
    assert [i.body for i in a.instances] == [0, 1, 0]
    assert [i.parameters for i in a.instances] == [("v0", "w0"), ("v1",), ("v2", "w2")]


def test_literals_and_types_are_part_of_the_program() -> None:
    layer = "h%n = mul.Tensor(h%i, 2) @ layers.%i.x"
    (a,) = bound("a = .x", graph(layers(layer))).parts
    assert len(a.bodies) == 1
    text = layers(layer).replace("(h1, 2)", "(h1, 3)")
    (a,) = bound("a = .x", graph(text)).parts
    assert [i.body for i in a.instances] == [0, 1, 0]
    text = layers("h%n = mm(h%i, w%i) @ layers.%i.x", head="weight w0 w1:wide w2")
    (a,) = bound("a = .x", graph(text)).parts
    assert [i.body for i in a.instances] == [0, 1, 0]


def test_a_result_that_only_some_layers_read() -> None:
    layer = "h%n, _ = topk(h%i) @ layers.%i.x"
    text = layers(layer).replace("h3, _", "h3, extra")
    (a,) = bound("a = .x", graph(f"{text} extra")).parts
    assert len(a.bodies) == 1
    # The program is told in the words of the first layer, where this has no name.
    assert a.bodies[0].outputs == ("h1", "extra")
    assert [v.name for v in a.bodies[0].operations[0].results if v] == ["h1", "extra"]
    assert [i.outputs for i in a.instances] == [("h1", ""), ("h2", ""), ("h3", "extra")]


def test_every_program_gives_away_as_much_as_the_others() -> None:
    layer = "a%i = relu(h%i) @ layers.%i.x\nh%n = relu(a%i) @ layers.%i.x"
    text = layers(layer).replace("h3 = relu(a2)", "h3 = mul.Tensor(a2, a2)")
    (a,) = bound("a = .x", graph(f"{text} a2")).parts
    assert [set(body.outputs) for body in a.bodies] == [{"a0", "h1"}, {"a2", "h3"}]
    assert a.roles == (Carried("a", a.bodies[0].outputs.index("h1"), "h0"),)


def test_the_last_layer_need_not_give_on_what_a_next_one_would_read() -> None:
    layer = """
        a%i = add.Tensor(n%i, h%i) @ layers.%i.x
        h%n = relu(a%i) @ layers.%i.y
        n%n = mul.Tensor(h%n, h%n) @ layers.%i.y
    """
    text = layers(layer, head="input n0", tail="return n3")
    text = text.replace("n3 = mul", "n3 = add")
    _, b = bound(PARTS, graph(text)).parts
    assert [body.outputs for body in b.bodies] == [("h1", "n1"), ("h3", "n3")]


def test_a_program_that_has_nothing_of_the_kind_to_give() -> None:
    layer = "a%i:wide = mm(h%i, w) @ layers.%i.x\nh%n:rows = mm(a%i, w) @ layers.%i.x"
    text = layers(layer, head="weight w")
    text = text.replace("a2:wide = mm", "a2:fixed = mv")
    assert len(part(bound("a = .x", graph(text)), "a").bodies) == 2
    found = fault("a = .x", graph(f"{text} a2"))
    assert found.code == "DFS205"
    assert found.message == (
        "a differs between layers.0 and layers.2: the second gives more to other parts"
    )
