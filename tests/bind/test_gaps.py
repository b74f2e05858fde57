"""Operations between iterations, and what they do to the names of results."""

from __future__ import annotations

from dynaflow_dsl.bind import Binding, Carried, Output
from dynaflow_dsl.bind.model import GAP
from tests.bind.graphs import bound, fault, graph, held, repeat
from tests.bind.machine import run_binding, run_graph

PARTS = "a = .x\nb = .y"
LAYER = """
    a%i = relu(h%i) @ layers.%i.x
    h%n = add.Tensor(a%i, h%i) @ layers.%i.y
"""


def gaps(binding: Binding) -> dict[tuple[int, int], str]:
    """The operations of each gap, by section and iteration."""
    assert run_binding(binding) == run_graph(binding.graph)
    if binding.gaps is None:
        return {}
    return dict(zip(binding.gaps.places, held(binding, GAP), strict=True))


def skipping(count: int, *skipped: int) -> str:
    """Layers of which some have another name."""
    text = f"input h0\n{repeat(LAYER, count)}\nreturn h{count}"
    for number in skipped:
        text = text.replace(f"layers.{number}.", f"skipped.{number}.")
    return text


def test_layers_that_the_each_leaves_out() -> None:
    binding = bound(PARTS, graph(skipping(6, 1, 3)))
    assert [i.path for i in binding.sections[0].iterations] == [
        "layers.0",
        "layers.2",
        "layers.4",
        "layers.5",
    ]
    assert gaps(binding) == {(0, 1): "a1 h2", (0, 2): "a3 h4"}
    assert binding.gaps is not None
    assert [i.body for i in binding.gaps.part.instances] == [0, 0]
    # Where the gap replaces what the layers carry, it does so under the same name.
    a, _ = binding.parts
    assert a.roles == (Carried("b", 0, "h0"),)
    names = binding.variables
    assert names[Output("b", 0)] == names[Output(GAP, 0, 0)] == names[Output(GAP, 0, 1)]
    assert names[Output("b", 0)] != names[Output("a", 0)]


def test_a_gap_in_every_place_and_none_behind_the_last() -> None:
    text = skipping(6, 1, 3, 5)
    binding = bound(PARTS, graph(text))
    assert gaps(binding) == {(0, 1): "a1 h2", (0, 2): "a3 h4"}
    assert held(binding, "after") == ["a5 h6"]


def test_a_value_that_only_gaps_make() -> None:
    layer = "a%i = mul.Tensor(h%i, m%i) @ layers.%i.x\nh%n = relu(a%i) @ layers.%i.y"
    text = f"input h0 m0\n{repeat(layer, 4)}\nreturn h4"
    # The mask changes before layer 2 and stays.
    text = text.replace("m1)", "m0)").replace("m3)", "m2)")
    text = text.replace("a2 = ", "m2 = mul.Tensor(m0, h2) @ mask\na2 = ")
    binding = bound(PARTS, graph(text))
    assert gaps(binding) == {(0, 2): "m2"}
    a, _ = binding.parts
    assert a.roles == (Carried("b", 0, "h0"), Carried(GAP, 0, "m0"))


def test_an_old_value_that_is_read_beside_the_new_one() -> None:
    """Both at every place: two names. At some places only: refused."""
    layer = """
        g%i = relu(h%i) @ bridge
        a%i = mul.Tensor(g%i, h%i) @ layers.%i.x
        h%n = relu(a%i) @ layers.%i.y
    """
    text = f"input h0\n{repeat(layer, 4)}\nreturn h4"
    binding = bound(PARTS, graph(text))
    assert gaps(binding) == {(0, 1): "g1", (0, 2): "g2", (0, 3): "g3"}
    assert held(binding, "before") == ["g0"]
    names = binding.variables
    assert names[Output("b", 0)] != names[Output(GAP, 0, 0)]
    assert len({names[Output(GAP, 0, n)] for n in range(3)}) == 1
    text = text.replace("g2 = relu(h2) @ bridge\n", "").replace("(g2, h2)", "(h2, h2)")
    found = fault(PARTS, graph(text))
    assert found.code == "DFS205"


def test_gaps_that_read_each_other() -> None:
    text = f"input h0 s0\n{repeat(LAYER, 4)}\nreturn h4"
    for i in (1, 2, 3):
        text = text.replace(
            f"a{i} = relu(h{i})",
            f"s{i} = add.Tensor(s{i - 1}, h{i}) @ bridge\n"
            f"g{i} = mul.Tensor(s{i}, h{i}) @ bridge\na{i} = relu(g{i})",
        )
    binding = bound(PARTS, graph(text))
    assert gaps(binding) == {(0, 1): "s1 g1", (0, 2): "s2 g2", (0, 3): "s3 g3"}
    # The running sum has one name as well.
    assert binding.gaps is not None
    assert len(set(binding.variables.values())) == 4


def test_operations_between_that_write_in_place() -> None:
    text = skipping(3, 1).replace("a1 = relu(h1)", "add_(h1, h1) @ m\na1 = relu(h1)")
    found = fault(PARTS, graph(text))
    assert found.code == "DFS206"
    assert found.message == (
        "an operation between the iterations writes in place into a tensor that b made"
    )
