from __future__ import annotations

import pytest

from dynaflow_dsl.bind.dependence import analyse
from dynaflow_dsl.bind.selectors import Scope, evaluate, index_modules, matches
from tests.bind.graphs import bound, graph, held, repeat, schedule

# Four operations side by side, so that any of them can be a part, and one that joins.
LAYER = """
    norm%i = relu(h%i) @ layers.%i.norm
    q%i = relu(h%i) @ layers.%i.attn.q_proj
    k%i = relu(h%i) @ layers.%i.attn.k_proj
    mix%i = relu(h%i) @ layers.%i.attn
    h%n = cat(norm%i, q%i, k%i, mix%i) @ layers.%i.mlp
"""
MODEL = graph(
    f"""
    input x
    h0 = relu(x) @ embed
    {repeat(LAYER, 3)}
    y = relu(h3) @ head
    return y
    """,
    modules=["layers.0.dropout", "layers.1.dropout", "unused.0"],
)
CHAIN = """
    n%i = relu(h%i) @ layers.%i.norm
    a%i = relu(n%i) @ layers.%i.attn
    h%n = relu(a%i) @ layers.%i.mlp
"""
ONE = graph(f"input h0\n{repeat(LAYER, 1)}\ny = relu(h1) @ head\nreturn y")


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*_proj", "q_proj", True),
        ("?_proj", "q_proj", True),
        ("?_proj", "qk_proj", False),
        ("**", "", True),
        ("**", "a.b.c", True),
        ("a.**", "a", True),
        ("a.**.d", "a.d", True),
        ("a.**.d", "a.b.c.d", True),
        ("a.**.d", "a.b.c.d.e", False),
        ("**.b.**", "a.b", True),
        ("**.**.c", "a.b.d", False),
        ("**.a.**.a.**", "a.b.a", True),
        ("**.a.**.a.**", "b.a.b", False),
    ],
)
def test_globs(pattern: str, path: str, expected: bool) -> None:
    segments = path.split(".") if path else []
    assert matches(pattern.split("."), segments) == expected


def test_many_any_depths_do_not_take_exponential_time() -> None:
    assert not matches(["**", "a"] * 30, ["a"] * 29)


def names_of(selector: str, index: int) -> str:
    """The operations that a selector names in one of the three iterations."""
    parts = schedule(f"a = {selector}\nmlp = .mlp").parts
    scope = Scope(
        index_modules(MODEL.modules, analyse(MODEL)),
        ("layers.0", "layers.1", "layers.2"),
        index,
        {part.name: part for part in parts},
    )
    numbers = evaluate(parts[0].selector, scope)
    return " ".join(MODEL.operations[n].name for n in sorted(numbers))


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (".attn", "q1 k1 mix1"),
        (".attn.*", "q1 k1"),
        (".attn.?_proj", "q1 k1"),
        (".attn.q*", "q1"),
        (".*.q_proj", "q1"),
        (".**.k_proj", "k1"),
        ("own in .attn", "mix1"),
        ("own in .attn.*", "q1 k1"),
        (".attn - .attn.k_proj + .attn.k_proj", "q1 k1 mix1"),
        (".attn - (own in .attn)", "q1 k1"),
        (".norm + .attn", "norm1 q1 k1 mix1"),
        ("root.layers.1.norm - prev.norm - next.norm", "norm1"),
        ("mlp - .mlp + .norm", "norm1"),
    ],
)
def test_a_selector_names_operations(selector: str, names: str) -> None:
    assert names_of(selector, 1) == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("prev.norm", ["", "norm0", "norm1"]),
        ("next.norm", ["norm1", "norm2", ""]),
        ("next.attn - next.attn.*", ["mix1", "mix2", ""]),
        (".norm + next.norm", ["norm0 norm1", "norm1 norm2", "norm2"]),
        ("prev.", ["", "norm0 q0 k0 mix0 h1", "norm1 q1 k1 mix1 h2"]),
        ("root.head", ["y", "y", "y"]),
    ],
)
def test_neighbours_and_the_whole_model(selector: str, names: list[str]) -> None:
    assert [names_of(selector, i) for i in range(3)] == names


@pytest.mark.parametrize("selector", [".", ".**", "root.layers.*", "rest"])
def test_a_module_and_all_below(selector: str) -> None:
    model = graph(f"input h0\n{repeat(LAYER, 1)}\nreturn h1")
    assert held(bound(f"a = {selector}", model), "a") == ["norm0 q0 k0 mix0 h1"]


def test_what_the_first_iteration_leaves_runs_before() -> None:
    model = graph(f"input h0\n{repeat(CHAIN, 3)}\nreturn h3")
    binding = bound("a = .attn\nb = .mlp + next.norm", model)
    assert held(binding, "before") == ["n0"]
    assert held(binding, "b") == ["h1 n1", "h2 n2", "h3"]


def test_root_is_the_model() -> None:
    binding = bound("a = .norm + .attn\nb = .mlp + root.head", ONE)
    assert held(binding, "b") == ["h1 y"]


def test_rest_is_what_other_parts_leave() -> None:
    binding = bound("b = rest\na = .norm + .attn", MODEL)
    assert held(binding, "b") == ["h1", "h2", "h3"]
    assert [part.name for part in binding.parts] == ["a", "b"]


def test_rest_leaves_what_a_neighbour_takes() -> None:
    text = f"{CHAIN} end%i = relu(x) @ layers.%i.end"
    model = graph(f"input x h0\n{repeat(text, 3)}\nreturn h3")
    binding = bound("a = .norm + .attn + prev.end\nb = rest", model)
    assert held(binding, "a") == ["n0 a0", "end0 n1 a1", "end1 n2 a2"]
    assert held(binding, "b") == ["h1", "h2", "h3 end2"]


def test_rest_can_be_changed() -> None:
    text = CHAIN.replace("relu(n%i)", "relu(h%i)").replace(
        "n%i = relu(h%i)", "n%i = relu(x)"
    )
    model = graph(f"input x h0\n{repeat(text, 2)}\nreturn h2")
    binding = bound("a = .attn\nb = rest - .norm", model)
    assert held(binding, "b") == ["h1", "h2"]
    assert held(binding, "after") == ["n0 n1"]


def test_a_part_can_be_named_in_another() -> None:
    binding = bound("a = .attn - b\nb = .attn.k_proj + (own in .attn)\nc = rest", MODEL)
    assert held(binding, "a")[0] == "q0"
    assert held(binding, "b")[0] == "k0 mix0"
    assert held(binding, "c")[0] == "norm0 h1"
