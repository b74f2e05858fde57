from __future__ import annotations

import pytest

from tests.bind.graphs import SPLIT, attempt, bound, fault, graph, marked, repeat

PARTS = "a = .x\nb = .y"
LAYER = """
    a%i = add.Tensor(h%i, keys.%i) @ layers.%i.x
    h%n = relu(a%i) @ layers.%i.y
"""


def lines(layer: str = LAYER, kind: str = "", tail: str = "return h2") -> str:
    head = f"input h0 m keys.0{kind} keys.1{kind}\nweight w"
    return f"{head}\n{repeat(layer, 2)}\n{tail}"


def test_without_a_split_nothing_is_cut() -> None:
    assert bound(PARTS, graph(lines())).axes == {}


def test_rows_that_enter_are_cut_and_results_are_joined() -> None:
    text = lines(tail="y = relu(h2) @ head\nreturn y a1")
    binding = bound(PARTS, graph(text), split=SPLIT)
    assert binding.axes == {"h0": 0, "keys.0": 0, "keys.1": 0, "h2": 0, "a1": 0}


def test_values_without_the_dimension_are_shared() -> None:
    binding = bound(PARTS, graph(lines(kind=":fixed")), split=SPLIT)
    assert binding.axes == {"h0": 0, "h2": 0}


def test_mixed_rows() -> None:
    text = (
        lines()
        .replace("relu(a0)", "cumsum(a0, 0)")
        .replace("relu(a1)", "cumsum(a1, 0)")
    )
    found = fault(PARTS, graph(text), split=SPLIT)
    assert found.code == "DFS601"
    assert found.message.startswith("batch cannot be split: ")
    assert marked(found) == SPLIT
    assert found.primary is not None
    assert found.primary.text == "b mixes the rows of the pieces"
    assert found.notes == ("at cumsum in layers.0.y",)
    assert bound(PARTS, graph(text)).axes == {}


def test_mixing_rows_before_and_after_is_allowed() -> None:
    text = lines(tail="y = cumsum(h2, 0) @ head\nreturn y")
    text = text.replace("weight w\n", "weight w\nn = cumsum(m, 0)\n")
    text = text.replace("relu(a0)", "add.Tensor(a0, n)")
    text = text.replace("relu(a1)", "add.Tensor(a1, n)")
    binding = bound(PARTS, graph(text), split=SPLIT)
    assert binding.axes["n"] == 0
    assert "m" not in binding.axes


def test_a_value_whose_rows_are_another_axis() -> None:
    layer = LAYER.replace("h%i, keys.%i", "h%i, t%i")
    layer = "t%i = ~t(keys.%i) @ layers.%i.x\n" + layer
    text = lines(layer, kind=":turned")
    text = text.replace("t0 =", "t0:rows =").replace("t1 =", "t1:rows =")
    found = fault(PARTS, graph(text), split=SPLIT)
    assert found.code == "DFS602"
    # One tensor of a list is enough, all are alike.
    assert found.message == (
        "keys.0 cannot be cut along batch: it is dimension 1 there"
    )
    assert marked(found) == SPLIT


@pytest.mark.parametrize("kind", ["square", "sixteen"])
def test_a_value_without_one_axis_of_rows(kind: str) -> None:
    result = attempt(PARTS, graph(lines(kind=f":{kind}")), split=SPLIT)
    assert result.value is None
    assert {found.code for found in result.diagnostics} == {"DFS601"}
    assert "keys.0" in result.diagnostics[0].message


@pytest.mark.parametrize(
    ("name", "helps"),
    [
        ("bach", "did you mean batch?"),
        ("tokens", "dimensions of this entry: batch"),
    ],
)
def test_a_dimension_that_the_model_has_not(name: str, helps: str) -> None:
    split = SPLIT.replace("batch", name)
    found = fault(PARTS, graph(lines()), split=split)
    assert found.code == "DFS102"
    assert found.message == f"the model has no dimension named {name}"
    assert marked(found) == split
    assert found.helps == (helps,)


def test_views_are_made_from_pieces() -> None:
    layer = """
        v%i = ~alias(m) @ layers.%i.x
        a%i = add.Tensor(h%i, v%i) @ layers.%i.x
        w%i = ~view_as(a%i, a%i) @ layers.%i.x
        h%n = relu(w%i) @ layers.%i.y
    """
    binding = bound(PARTS, graph(lines(layer)), split=SPLIT)
    assert binding.axes == {"h0": 0, "m": 0, "h2": 0}


# Each layer sorts its rows in `x` and puts them back in `y`.
SORTED = """
    o%i = engine.order.default(h%i) @ layers.%i.x
    p%i = engine.take.default(h%i, o%i) @ layers.%i.x
    q%i = engine.put_back.default(p%i, o%i) @ layers.%i.y
    h%n = add.Tensor(h%i, q%i) @ layers.%i.y
"""
STATED = "a (rowwise = true) = .x\nb (rowwise = true) = .y"


def test_parts_that_state_it_hand_each_other_anything() -> None:
    binding = bound(STATED, graph(lines(SORTED)), split=SPLIT)
    assert binding.axes == {"h0": 0, "h2": 0}
    first, second = binding.stated
    assert (first.parts, first.results) == (("a", "b"), ("h1",))
    assert first.operations == {"o0", "p0", "q0", "h1"}
    assert [item.operation for item in first.relied] == ["o0"]
    assert first.relied[0].reason == "no row rule for engine.order.default"
    assert (second.results, second.module) == (("h2",), "layers.1.x")


def test_a_part_alone_gives_rows() -> None:
    """Then `q` takes rows of what `x` only has in another order: numbers tell."""
    text = lines(SORTED.replace("engine.put_back.default", "add.Tensor"))
    binding = bound(STATED.replace("b (rowwise = true)", "b"), graph(text), split=SPLIT)
    assert [stated.parts for stated in binding.stated] == [("a",), ("a",)]
    assert binding.stated[0].results == ("p0", "o0")


def test_what_is_not_stated_is_refused() -> None:
    parts = "a = .x\nb (rowwise = true) = .y"
    found = fault(parts, graph(lines(SORTED)), split=SPLIT)
    assert found.code == "DFS601"
    assert found.primary is not None
    assert found.primary.text == "a mixes the rows of the pieces"
    assert "part a (rowwise = true)" in found.helps[1]


def test_a_statement_does_not_pad() -> None:
    capture = "split batch into 2 as half\n    capture batch at [8]"
    binding = bound(STATED, graph(lines(SORTED)), split=capture)
    assert binding.stated
    assert binding.output_rows == {}


TOWERS = """
    t%i:fixed = relu(s%i) @ layers.%i.x
    s%n:fixed = relu(t%i) @ layers.%i.x
    h%n = relu(h%i) @ layers.%i.y
"""


def towers(tail: str, layer: str = TOWERS) -> str:
    return f"input h0 s0:fixed\n{repeat(layer, 2)}\n{tail}"


def test_a_part_of_which_every_piece_computes_the_same() -> None:
    found = fault(PARTS, graph(towers("return h2 s2")), split=SPLIT)
    assert found.code == "DFS607"
    assert found.message == "every piece of a computes the same"
    assert marked(found) == ".x"


def test_a_part_that_reads_one_tensor_with_rows_is_no_repetition() -> None:
    layer = TOWERS.replace("s%n:fixed = relu(t%i)", "y%i = relu(h%i)")
    layer = layer.replace("relu(s%i)", "relu(s0)").replace(
        "h%n = relu(h%i)", "h%n = relu(y%i)"
    )
    binding = bound(PARTS, graph(towers("return h2", layer)), split=SPLIT)
    assert binding.axes == {"h0": 0, "h2": 0}
