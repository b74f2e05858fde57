from __future__ import annotations

from tests.bind.graphs import bound, fault, graph, held, marked, repeat


def layers(layer: str, count: int = 2, head: str = "") -> str:
    lines = ["input h0", head, repeat(layer, count), f"return h{count}"]
    return "\n".join(line for line in lines if line)


def test_parts_are_in_program_order_whatever_the_text_says() -> None:
    model = graph(
        layers(
            """
            a%i = relu(h%i) @ layers.%i.x
            b%i = relu(a%i) @ layers.%i.y
            h%n = relu(b%i) @ layers.%i.z
            """
        )
    )
    binding = bound("z = .z\ny = .y\nx = .x", model)
    assert [part.name for part in binding.parts] == ["x", "y", "z"]


def test_program_order_knows_more_than_the_first_operation() -> None:
    model = graph(
        layers(
            """
            free%i = relu(m) @ layers.%i.x
            b%i = relu(h%i) @ layers.%i.y
            h%n = add.Tensor(b%i, free%i) @ layers.%i.x
            """,
            head="input m",
        )
    )
    binding = bound("x = .x\ny = .y", model)
    assert [part.name for part in binding.parts] == ["y", "x"]


LEAVES = """
    a%i = relu(h%i) @ layers.%i.x.first
    b%i = mul.Tensor(a%i, a%i) @ layers.%i.y
    h%n = add.Tensor(b%i, a%i) @ layers.%i.x.second
"""


def test_a_part_that_leaves_and_comes_back() -> None:
    found = fault("y = .y\nx = .x", graph(layers(LEAVES)))
    assert found.code == "DFS204"
    # The other part needs it as well, but does not leave and come back.
    assert found.message == (
        "part x cannot run in one go: y needs its results, and it needs results of y"
    )
    assert marked(found) == ".x"
    assert found.notes == (
        "leaves at relu in layers.0.x.first",
        "comes back at add.Tensor in layers.0.x.second",
    )


def test_cutting_the_part_in_two_repairs_it() -> None:
    binding = bound("y = .y\np = .x.first\nq = .x.second", graph(layers(LEAVES)))
    assert [part.name for part in binding.parts] == ["p", "y", "q"]


def test_leaving_through_a_view_counts() -> None:
    found = fault(
        "x = .x\ny = .y",
        graph(
            layers(
                """
                a%i = relu(h%i) @ layers.%i.x
                v%i = ~view(a%i) @ layers.%i.x
                b%i = mul.Tensor(v%i, v%i) @ layers.%i.y
                w%i = ~view(b%i) @ layers.%i.y
                h%n = add.Tensor(w%i, a%i) @ layers.%i.x
                """
            )
        ),
    )
    assert found.code == "DFS204"
    assert found.notes == (
        "leaves at relu in layers.0.x",
        "comes back at add.Tensor in layers.0.x",
    )


def test_a_view_alone_leaves_nothing() -> None:
    binding = bound(
        "x = .x",
        graph(
            layers(
                """
                a%i = relu(h%i) @ layers.%i.x
                v%i = ~view(a%i) @ layers.%i.y
                h%n = relu(v%i) @ layers.%i.x
                """
            )
        ),
    )
    assert held(binding, "x") == ["a0 v0 h1", "a1 v1 h2"]


def test_leaving_through_memory_counts() -> None:
    found = fault(
        "x = .x\ny = .y",
        graph(
            layers(
                """
                add_.Tensor(cache, h%i) @ layers.%i.x
                add_.Tensor(cache, m) @ layers.%i.y
                h%n = add.Tensor(h%i, cache) @ layers.%i.x
                """,
                head="input m cache",
            )
        ),
    )
    assert found.code == "DFS204"
    assert found.notes == (
        "leaves at add_.Tensor in layers.0.x",
        "comes back at add.Tensor in layers.0.x",
    )


def test_a_ring_of_three_parts() -> None:
    found = fault(
        "x = .x\ny = .y\nz = .z",
        graph(
            layers(
                """
                a%i = relu(h%i) @ layers.%i.x
                b%i = relu(a%i) @ layers.%i.y
                c%i = mul.Tensor(b%i, b%i) @ layers.%i.z
                h%n = add.Tensor(c%i, h%i) @ layers.%i.x
                """
            )
        ),
    )
    assert found.code == "DFS204"
    assert marked(found) == ".x"
    assert found.notes == (
        "leaves at relu in layers.0.x",
        "comes back at add.Tensor in layers.0.x",
    )


def test_a_part_must_not_wait_for_a_later_iteration() -> None:
    model = graph(
        """
        input h0
        a0 = relu(h0) @ layers.0.x
        h1 = relu(a0) @ layers.0.z
        a1 = relu(h1) @ layers.1.x
        b1 = relu(a1) @ layers.1.y
        h2 = add.Tensor(b1, a1) @ layers.1.z
        return h2
        """
    )
    found = fault("x = .x\ny = next.y\nz = .z", model)
    assert found.code == "DFS205"
    # The same through a part that all iterations have.
    found = fault("x = .x\nz = next.y + .z", model)
    assert found.code == "DFS204"
    assert marked(found) == "next.y + .z"
    assert found.notes[0].startswith("leaves at relu in layers.0.z")


def test_memory_of_a_later_iteration_counts_as_well() -> None:
    model = graph(
        """
        input h0 m cache
        add_.Tensor(cache, m) @ layers.0.x
        h1 = relu(h0) @ layers.0.z
        add_.Tensor(cache, m) @ layers.1.x
        n1 = relu(cache) @ layers.1.y
        h2 = relu(h1) @ layers.1.z
        return h2 n1
        """
    )
    found = fault("x = .x\ny = next.y + .z", model)
    assert found.code == "DFS204"
    assert found.message == (
        "part y of layers.0 needs results of x of layers.1, a later iteration"
    )
    assert marked(found) == "next.y + .z"
    assert found.notes == ("at relu in layers.1.y",)


def test_layers_whose_parts_run_in_different_orders() -> None:
    model = graph(
        """
        input h0
        a0 = relu(h0) @ layers.0.x
        h1 = relu(a0) @ layers.0.y
        b1 = relu(h1) @ layers.1.y
        h2 = relu(b1) @ layers.1.x
        return h2
        """
    )
    found = fault("x = .x\ny = .y", model)
    assert found.code == "DFS205"
    assert found.message == (
        "x differs between layers.1 and layers.0: y comes before it in only one of them"
    )
    assert marked(found) == ".x"


def test_one_layer_of_it_is_fine() -> None:
    text = """
        input h0
        b0 = relu(h0) @ layers.0.y
        h1 = relu(b0) @ layers.0.x
        return h1
    """
    binding = bound("x = .x\ny = .y", graph(text))
    assert [part.name for part in binding.parts] == ["y", "x"]
