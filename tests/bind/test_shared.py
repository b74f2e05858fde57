"""What a layer computes from the model's own tensors and hands to the others."""

from __future__ import annotations

from tests.bind.graphs import Binding, bound, fault, graph, held, part, repeat
from tests.bind.machine import run_binding, run_graph

LAYER = """
    s%i = mul.Tensor(h%i, table) @ layers.%i.x
    a%i = relu(s%i) @ layers.%i.x
    h%n = add.Tensor(a%i, h%i) @ layers.%i.y
"""
TABLE = """
    n0:fixed = arange(4) @ layers.0.x
    add_.Tensor(n0, n0) @ layers.0.x
    v0 = ~view(n0) @ layers.0.x
    table:fixed = embedding(w, v0) @ layers.0.x.table
"""
PARTS = "a = .x\nb = .y"


def model(table: str = TABLE) -> str:
    layers = repeat(LAYER, 3)
    return f"input h0\nweight w\n{table}\n{layers}\nreturn h3"


def checked(parts: str, text: str) -> Binding:
    binding = bound(parts, graph(text))
    assert run_binding(binding) == run_graph(binding.graph)
    return binding


def test_a_table_that_the_first_layer_makes_for_all() -> None:
    binding = checked(PARTS, model())
    assert held(binding, "before") == ["n0 line4 v0 table"]
    assert len(part(binding, "a").bodies) == 1


def test_a_table_that_one_layer_has_for_itself_stays() -> None:
    text = model().replace("(h1, table)", "(h1, w)").replace("(h2, table)", "(h2, w)")
    binding = checked(PARTS, text)
    assert binding.before is None
    assert held(binding, "a")[0] == "n0 line4 v0 table s0 a0"


def test_what_depends_on_the_step_belongs_to_its_layer() -> None:
    text = model("table = embedding(w, h0) @ layers.0.x.table")
    assert fault(PARTS, graph(text)).code == "DFS205"


def test_a_parameter_that_is_written_is_not_the_same_in_every_step() -> None:
    text = model(f"add_.Tensor(w, h0) @ layers.0.x\n{TABLE}")
    assert fault(PARTS, graph(text)).code == "DFS205"


def test_a_state_that_layers_hand_on_stays_with_them() -> None:
    """It needs no input of the step, yet each layer has its own."""
    layer = """
        a%i = relu(h%i) @ layers.%i.x
        h%n = mm(a%i, w) @ layers.%i.y
    """
    layers = repeat(layer, 3)
    text = f"input x\nweight w\nh0:fixed = zeros(4)\n{layers}\ny = add.Tensor(h3, x)"
    binding = checked(PARTS, f"{text}\nreturn y")
    assert held(binding, "a") == ["a0", "a1", "a2"]
    assert held(binding, "before") == ["h0"]
    rows = text.replace("h0:fixed = zeros(4)", "h0 = zeros(4)")
    assert held(checked(PARTS, f"{rows}\nreturn y"), "b") == ["h1", "h2", "h3"]
