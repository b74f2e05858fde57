"""A first layer that reads one value where the others read two."""

from __future__ import annotations

from dynaflow_dsl.bind import Carried, Outer
from tests.bind.graphs import bound, fault, graph, repeat
from tests.bind.machine import run_binding, run_graph

LAYER = """
    m%i = mul.Tensor(h%i, 2) @ layers.%i.x
    a%i = add.Tensor(m%i, h0) @ layers.%i.x
    h%n = mm(a%i, w%i) @ layers.%i.y
"""
PARTS = "a = .x\nb = .y"


def model(count: int) -> str:
    weights = " ".join(f"w{i}" for i in range(count))
    return f"input h0\nweight {weights}\n{repeat(LAYER, count)}\nreturn h{count}"


def test_the_first_layer_reads_what_it_starts_from_twice() -> None:
    binding = bound(PARTS, graph(model(3)))
    assert run_binding(binding) == run_graph(binding.graph)
    a, _ = binding.parts
    assert a.roles == (Carried("b", 0, "h0"), Outer(("h0",) * 3))
    assert [i.inputs for i in a.instances] == [
        ("h0", "h0"),
        ("h1", "h0"),
        ("h2", "h0"),
    ]
    (body,) = a.bodies
    # Told in the words of a layer that reads two values.
    assert body.inputs == ("h1", "h0")
    assert body.example == 1


def test_a_layer_alone_has_one_input() -> None:
    (a, _) = bound(PARTS, graph(model(1))).parts
    assert a.roles == (Outer(("h0",)),)


def test_another_program_stays_another() -> None:
    text = model(3).replace("m0 = mul.Tensor(h0, 2)", "m0 = mul.Tensor(h0, 3)")
    assert fault(PARTS, graph(text)).code == "DFS205"
