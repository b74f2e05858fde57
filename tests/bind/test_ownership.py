from __future__ import annotations

import pytest

from tests.bind.graphs import bound, graph, held, part, repeat

PARTS = "a = .x\nb = .y"


def two_layers(layer: str, head: str = "", tail: str = "return h2") -> str:
    return f"input h0\n{head}\n{repeat(layer, 2)}\n{tail}".replace("\n\n", "\n")


def test_an_own_operation_joins_its_first_reader() -> None:
    layer = """
        a%i = relu(h%i) @ layers.%i.x
        own%i = add.Tensor(a%i, h%i) @ layers.%i
        b%i = relu(own%i) @ layers.%i.y
        h%n = add.Tensor(b%i, own%i) @ layers.%i
    """
    binding = bound(PARTS, graph(two_layers(layer)))
    assert held(binding, "b") == ["own0 b0 h1", "own1 b1 h2"]
    assert part(binding, "b").attached == {"own0", "own1", "h1", "h2"}
    assert part(binding, "a").attached == frozenset()


def test_the_first_reader_is_the_first_in_the_graph() -> None:
    layer = """
        own%i = relu(h%i) @ layers.%i
        b%i = relu(own%i) @ layers.%i.y
        a%i = relu(own%i) @ layers.%i.x
        h%n = add.Tensor(a%i, b%i) @ layers.%i.x
    """
    binding = bound(PARTS, graph(two_layers(layer)))
    assert held(binding, "b") == ["own0 b0", "own1 b1"]
    assert [p.name for p in binding.parts] == ["b", "a"]


def test_own_operations_are_seen_through_views_and_each_other() -> None:
    layer = """
        a%i = relu(h%i) @ layers.%i.x
        one%i = relu(a%i) @ layers.%i
        v%i = ~view(one%i) @ layers.%i.z
        two%i = relu(v%i) @ layers.%i
        w%i = ~view(two%i) @ layers.%i
        h%n = relu(w%i) @ layers.%i.y
    """
    binding = bound(PARTS, graph(two_layers(layer)))
    assert held(binding, "b")[0] == "one0 v0 two0 w0 h1"
    assert part(binding, "b").attached == {"one0", "two0", "one1", "two1"}


def test_without_a_reader_in_the_iteration_the_last_operand_decides() -> None:
    layer = """
        a%i = relu(h%i) @ layers.%i.x
        b%i = relu(h%i) @ layers.%i.y
        v%i = ~view(a%i) @ layers.%i
        own%i = add.Tensor(b%i, v%i) @ layers.%i
        w%i = ~view(own%i) @ layers.%i
        h%n = relu(w%i) @ layers.%i
    """
    binding = bound(PARTS, graph(two_layers(layer)))
    assert held(binding, "b") == ["b0 v0 own0 w0 h1", "b1 v1 own1 w1 h2"]


def test_readers_of_the_next_iteration_do_not_count() -> None:
    layer = """
        a%i = relu(h%i) @ layers.%i.x
        b%i = relu(a%i) @ layers.%i.y
        h%n = relu(a%i) @ layers.%i
    """
    binding = bound(PARTS, graph(two_layers(layer, tail="return h2 b1")))
    assert held(binding, "a") == ["a0 h1", "a1 h2"]


def test_an_own_write_in_place_joins_its_last_operand() -> None:
    layer = """
        a%i = relu(h%i) @ layers.%i.x
        h%n = relu(a%i) @ layers.%i.y
        add_.Tensor(h%n, a%i) @ layers.%i
    """
    binding = bound(PARTS, graph(two_layers(layer)))
    names = held(binding, "b")
    assert [len(text.split()) for text in names] == [2, 2]
    assert part(binding, "b").attached == {
        operations.split()[-1] for operations in names
    }


def test_a_part_can_claim_the_own_operations() -> None:
    layer = """
        own%i = relu(h%i) @ layers.%i
        b%i = relu(own%i) @ layers.%i.y
        h%n = relu(b%i) @ layers.%i.x
    """
    binding = bound(
        "c = own in .\na = .x\nb = .y",
        graph(two_layers(layer)),
    )
    assert held(binding, "c") == ["own0", "own1"]
    assert part(binding, "c").attached == frozenset()


def test_an_own_operation_without_neighbours_stays_outside() -> None:
    layer = """
        own%i = relu(m) @ layers.%i
        h%n = relu(h%i) @ layers.%i.x
    """
    text = two_layers(layer, head="input m", tail="return h2 own1")
    binding = bound("a = .x", graph(text))
    assert held(binding, "before") == []
    assert held(binding, "after") == ["own0 own1"]


LAYER = """
    a%i = relu(h%i) @ layers.%i.x
    h%n = relu(a%i) @ layers.%i.y
"""


def test_before_and_after_follow_from_data_and_not_from_position() -> None:
    text = f"""
        input x
        h0 = relu(x) @ embed
        {repeat(LAYER, 2)}
        late = relu(x) @ head
        y = add.Tensor(h2, late) @ head
        return y
    """
    binding = bound(PARTS, graph(text))
    assert held(binding, "before") == ["h0"]
    assert held(binding, "after") == ["late y"]
    assert part(binding, "before").instances[0].outputs == ("h0",)


def test_without_neighbours_nothing_runs_before_or_after() -> None:
    binding = bound(PARTS, graph(two_layers(LAYER)))
    assert binding.before is None
    assert binding.after is None
    assert binding.results == ("h2",)


def test_results_can_be_inputs_or_made_before() -> None:
    text = f"""
        input x
        weight w
        h0 = relu(x) @ embed
        v = ~view(x)
        {repeat(LAYER, 2)}
        return h0 x h2 v
    """
    binding = bound(PARTS, graph(text))
    assert binding.results == ("h0", "x", "h2", "v")
    assert part(binding, "before").instances[0].outputs == ("h0",)
    # A view belongs to no part: it is made where it is returned.
    assert held(binding, "after") == ["v"]
    assert part(binding, "after").instances[0].outputs == ("v",)


def test_a_cache_written_before_the_parts_and_read_after_them() -> None:
    text = f"""
        input x h0 cache
        copy_(cache, x)
        {repeat(LAYER.replace("relu(a%i)", "add.Tensor(a%i, cache)"), 2)}
        add_.Tensor(cache, x)
        y = relu(cache)
        return h2 y
    """
    binding = bound(PARTS, graph(text))
    assert held(binding, "before") == ["line2"]
    # Nothing in the data says so: the memory does.
    assert held(binding, "after") == ["line7 y"]
    assert part(binding, "before").instances[0].touched == (
        ("cache", True),
        ("x", False),
    )
    assert part(binding, "b").instances[0].touched == (("cache", False),)


def test_a_cache_read_before_a_part_writes_it_and_after() -> None:
    layer = """
        a%i = relu(h%i) @ layers.%i.x
        add_.Tensor(cache, a%i) @ layers.%i.x
        h%n = relu(a%i) @ layers.%i.y
    """
    text = f"""
        input h0 cache
        early = relu(cache)
        {repeat(layer, 2)}
        late = relu(cache)
        return h2 early late
    """
    binding = bound(PARTS, graph(text))
    assert held(binding, "before") == ["early"]
    assert held(binding, "after") == ["late"]
    assert (
        part(binding, "a").instances[1].touched == (("h0", False), ("cache", True))[1:]
    )


@pytest.mark.parametrize("kind", ["buffer", "input"])
def test_memory_of_the_model_that_is_written_counts(kind: str) -> None:
    layer = """
        add_.Tensor(count, h%i) @ layers.%i.x
        a%i = relu(h%i) @ layers.%i.x
        b%i = relu(count) @ layers.%i.y
        h%n = add.Tensor(a%i, b%i) @ layers.%i.y
    """
    binding = bound(PARTS, graph(two_layers(layer, head=f"{kind} count\nweight w")))
    assert part(binding, "a").instances[1].touched == (("count", True),)
    assert part(binding, "b").instances[1].touched == (("count", False),)


def test_a_view_is_copied_to_every_part_that_uses_it() -> None:
    layer = """
        p%i = relu(h%i) @ layers.%i.x
        v%i = ~view(p%i) @ layers.%i.x
        w%i = ~view(v%i) @ layers.%i.x
        a%i = relu(w%i) @ layers.%i.x
        b%i = add.Tensor(a%i, w%i) @ layers.%i.y
        h%n = add.Tensor(b%i, v%i) @ layers.%i.y
    """
    tail = "y = add.Tensor(h2, w1) @ head\nreturn y w1"
    binding = bound(PARTS, graph(two_layers(layer, tail=tail)))
    assert held(binding, "a")[0] == "p0 v0 w0 a0"
    assert held(binding, "b")[0] == "v0 w0 b0 h1"
    assert held(binding, "after") == ["v1 w1 y"]
    assert part(binding, "a").instances[0].outputs == ("p0", "a0")
    assert part(binding, "after").instances[0].inputs == ("p1", "h2")
    assert part(binding, "after").instances[0].outputs == ("w1", "y")


def test_views_of_inputs_and_weights_are_made_where_they_are_used() -> None:
    head = "input m\nweight w\nmv = ~view(m)\nwt = ~t(w)"
    layer = """
        a%i = mm(h%i, wt) @ layers.%i.x
        h%n = add.Tensor(a%i, mv) @ layers.%i.y
    """
    binding = bound(PARTS, graph(two_layers(layer, head=head)))
    assert binding.before is None
    assert held(binding, "a") == ["wt a0", "wt a1"]
    assert part(binding, "a").instances[0].parameters == ("w",)
    assert part(binding, "b").instances[1].inputs == ("a1", "m")


def test_what_may_be_a_view_is_an_operation() -> None:
    layer = """
        p%i = relu(h%i) @ layers.%i.x
        r%i = ?reshape(p%i) @ layers.%i.x
        h%n = relu(r%i) @ layers.%i.y
    """
    binding = bound(PARTS, graph(two_layers(layer)))
    assert held(binding, "a")[0] == "p0 r0"
    assert part(binding, "a").instances[0].outputs == ("r0",)


def test_memory_of_an_input_is_followed_through_views_and_copies() -> None:
    layer = """
        v%i = ~view(keys.%i) @ layers.%i.x
        copy_(v%i, h%i) @ layers.%i.x
        r%i = ?reshape(keys.%i) @ layers.%i.x
        h%n = relu(r%i) @ layers.%i.y
    """
    binding = bound(PARTS, graph(two_layers(layer, head="input keys.0 keys.1")))
    assert part(binding, "a").instances[1].touched == (("keys.1", True),)
    assert part(binding, "b").instances[1].touched == (("keys.1", False),)
