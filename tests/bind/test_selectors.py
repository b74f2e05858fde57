from __future__ import annotations

import pytest

from dynaflow_dsl.bind.dependence import analyse
from dynaflow_dsl.bind.selectors import Scope, evaluate, index_modules, matches
from dynaflow_dsl.graph.model import Graph
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


def names_of(selector: str, index: int, model: Graph = MODEL, count: int = 3) -> str:
    """The operations that a selector names in one of the iterations."""
    parts = schedule(f"a = {selector}\nmlp = .mlp").parts
    scope = Scope(
        index_modules(model.modules, analyse(model)),
        tuple(f"layers.{i}" for i in range(count)),
        index,
        {part.name: part for part in parts},
    )
    numbers = evaluate(parts[0].selector, scope)
    return " ".join(model.operations[n].name for n in sorted(numbers))


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


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        # Per iteration, the first side that names something.
        (".norm or .attn", ["norm0", "norm1", "norm2"]),
        (".gone or .norm", ["norm0", "norm1", "norm2"]),
        (".dropout or .norm", ["norm0", "norm1", "norm2"]),
        ("next.norm or root.head", ["norm1", "norm2", "y"]),
        ("prev.norm or root.embed", ["h0", "norm0", "norm1"]),
        ("next.gone or prev.norm or root.head", ["y", "norm0", "norm1"]),
        ("(next.norm or .attn.q_proj) - root.layers.1", ["", "norm2", "q2"]),
        ("mlp or .norm", ["h1", "h2", "h3"]),
        ("root.layers.0.norm or .norm", ["norm0", "norm0", "norm0"]),
    ],
)
def test_or_is_decided_in_each_iteration(selector: str, names: list[str]) -> None:
    assert [names_of(selector, i) for i in range(3)] == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("own in (.attn + .norm)", "norm1 mix1"),
        ("own in (.attn - .attn.*)", "mix1"),
        ("own in (.attn.* - .attn.q_proj)", "k1"),
        ("own in (.gone or .attn)", "mix1"),
        ("own in mlp", "h2"),
        ("own in (own in .attn)", "mix1"),
        ("own in next.attn", "mix2"),
        ("own in (activation in .attn)", "mix1"),
        ('own in ("aten.relu" in .)', ""),
        ("(own in .) or .norm", "norm1"),
    ],
)
def test_own_operations_of_any_selector(selector: str, names: str) -> None:
    assert names_of(selector, 1) == names


KINDS = graph(
    """
    input x
    weight w
    a = linear(x, w) @ layers.0.attn marked gate by m.f,m.g
    v = ~view(a) @ layers.0.attn marked gate,look by m.f
    r = _c10d_functional.all_reduce.default(v) @ layers.0.attn line 3
    s = ?_c10d_functional.wait_tensor.default(r) @ layers.0.attn line 3
    b = matmul(s, w) @ layers.0.mlp marked gate/two by m.f,m.g.inner
    c = _c10d_functional.all_gather_into_tensor.default(b) @ layers.0.mlp line 4
    d = ?_c10d_functional.wait_tensor.default(c) @ layers.0.mlp line 4
    _c10d_functional.all_reduce_.default(d) @ layers.0.mlp line 5
    e = ?_c10d_functional.wait_tensor.default(d) @ layers.0.mlp line 5
    f = _c10d_functional.all_reduce.default(e) @ layers.0.mlp line 6
    g = ?_c10d_functional.wait_tensor.default(f) @ layers.0.mlp line 6
    copy_(e, g) @ layers.0.mlp line 6
    h, i = _c10d_functional.all_reduce_coalesced.default(e, d) @ layers.0.mlp line 7
    j = ?_c10d_functional.wait_tensor.default(h) @ layers.0.mlp line 7
    k = ?_c10d_functional.wait_tensor.default(i) @ layers.0.mlp line 7
    copy_(x, k) @ layers.0.mlp line 8
    l = _c10d_functional.wait_tensor.default(x) @ layers.0.mlp line 9
    y = add.Tensor(j, l) @ layers.0
    return y
    """
)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("all_reduce in .attn", "r s"),
        # In place, and written in place; a copy that the model makes itself is not.
        ("all_reduce in .mlp", "line10 e f g line14 h j k"),
        ("all_gather in .", "c d"),
        ("collective in .mlp", "c d line10 e f g line14 h j k"),
        ("matmul in .", "a b"),
        ("matmul in .mlp", "b"),
        ("matmul in (.attn or .mlp)", "a"),
        ("(matmul in .) - .attn", "b"),
        ("matmul in (matmul in .mlp)", "b"),
        ("softmax in .", ""),
        ('"aten.linear" in .', "a"),
        ('"aten.linear.default" in .', "a"),
        ('"aten.lin" in .', ""),
        ('"aten.*" in .', "a b line14 line18 y"),
        ('"*all_gather*" in .', "c"),
        ('"*.wait_tensor" in .attn', "s"),
        ('"aten.add.?ensor" in .', "y"),
        ('"aten.view" in .', ""),
        ('"mark:gate" in .', "a"),
        ('"mark:gate*" in .', "a b"),
        ('"mark:gate?two" in .', "b"),
        ('"mark:look" in .', ""),
        ('"mark:gate" in .mlp', ""),
        ('"function:m.f" in .', "a b"),
        ('"function:m.g" in .', "a"),
        ('"function:*.inner" in .', "b"),
        ('"function:m.g*" in .', "a b"),
        ('"mark:gate*" in ("function:m.g" in .)', "a"),
    ],
)
def test_some_operations_of_a_set(selector: str, names: str) -> None:
    assert names_of(selector, 0, KINDS, 1) == names


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
