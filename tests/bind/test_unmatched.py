"""What is said of selectors that name nothing, and of iterations that have nothing."""

from __future__ import annotations

import pytest

from dynaflow_dsl.diagnostics import Diagnostic
from tests.bind.graphs import attempt, bound, fault, graph, held, marked, repeat

LAYER = """
    n%i = relu(h%i) @ layers.%i.norm by m.norm
    q%i = linear(n%i) @ layers.%i.attn.proj marked gate by m.attend
    v%i = ~view(q%i) @ layers.%i.attn marked only_a_view by m.attend
    r%i = _c10d_functional.all_reduce.default(v%i) @ layers.%i.attn by m.reduce
    w%i = _c10d_functional.wait_tensor.default(r%i) @ layers.%i.attn by m.reduce
    h%n = mul.Tensor(w%i, w%i) @ layers.%i.mlp
"""
MODEL = graph(
    f"input h0\n{repeat(LAYER, 3)}\nlast = sigmoid(h3) @ norm\nreturn last",
    modules=["layers.0.dropout"],
)


def test_a_path_that_was_written_from_the_model() -> None:
    for path in (".layers.0.attn", ".layers.*.attn"):
        found = only(path)
        assert found.message == f"{path} matches no module below layers.0"
        assert found.helps == ("paths begin at layers.0 here: write .attn",)


def only(selector: str) -> Diagnostic:
    return fault(f"a = {selector}\nothers = rest", MODEL)


@pytest.mark.parametrize(
    ("selector", "message", "notes", "helps"),
    [
        (
            "all_reduce in .mlp",
            "there is no all_reduce in .mlp",
            ("it matches in .attn",),
            ("operators there: aten.mul",),
        ),
        (
            "softmax in .attn",
            "there is no softmax in .attn",
            (),
            (
                "operators there: aten.linear, _c10d_functional.all_reduce, "
                "_c10d_functional.wait_tensor",
            ),
        ),
        (
            "activation in .mlp",
            "there is no activation in .mlp",
            ("it matches in .norm",),
            ("operators there: aten.mul",),
        ),
        (
            '"aten.linaer" in .',
            "no operator matches aten.linaer in .",
            (),
            ('did you mean "aten.linear"?',),
        ),
        (
            '"mul" in .',
            "no operator matches mul in .",
            (),
            ('did you mean "aten.mul"?',),
        ),
        (
            '"aten.view" in .mlp',
            "no operator matches aten.view in .mlp",
            ("it matches views only, which are made anew in each part",),
            ("operators there: aten.mul",),
        ),
        (
            '"aten.sigmoid" in .mlp',
            "no operator matches aten.sigmoid in .mlp",
            ("it matches in root.norm",),
            ("operators there: aten.mul",),
        ),
        (
            '"mark:gaet" in .',
            "no operation has the mark gaet in .",
            (),
            ('did you mean "mark:gate"?',),
        ),
        (
            '"mark:only_a_view" in .',
            "no operation has the mark only_a_view in .",
            ("it matches views only, which are made anew in each part",),
            ("marks there: gate",),
        ),
        (
            '"mark:gate" in .mlp',
            "no operation has the mark gate in .mlp",
            ("it matches in .attn.proj",),
            (),
        ),
        (
            '"function:model.attend" in .',
            "no operation ran in the function model.attend in .",
            (),
            ('did you mean "function:m.attend"?',),
        ),
        (
            '"function:zzz.qqq" in .attn',
            "no operation ran in the function zzz.qqq in .attn",
            (),
            ("functions there: m.reduce, m.attend",),
        ),
    ],
)
def test_what_is_near(
    selector: str, message: str, notes: tuple[str, ...], helps: tuple[str, ...]
) -> None:
    found = only(selector)
    assert found.code == "DFS201"
    assert found.message == message
    assert found.notes == notes
    assert found.helps == helps
    assert marked(found) == selector


def test_the_path_comes_first() -> None:
    found = only("all_reduce in .atn")
    assert found.message == ".atn matches no module below layers.0"
    assert found.helps == ("did you mean .attn?",)


def test_a_model_without_marks() -> None:
    model = graph("input x\na = relu(x) @ layers.0.b\nreturn a")
    found = fault('a = "mark:gate" in .', model)
    assert found.helps == (
        "write 'with dynaflow_dsl.mark(\"gate\"):' in the code of the model, and "
        "trace it again",
    )


# ---- or ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "message", "notes", "helps"),
    [
        (
            ".gone or .qqq",
            "no side of this 'or' names an operation in layers.0 and 2 more",
            (
                ".gone: matches no module below layers.0",
                ".qqq: matches no module below layers.0",
            ),
            ("modules here: .attn, .dropout, .mlp, .norm",),
        ),
        (
            "next.norm or root.nrom",
            "no side of this 'or' names an operation in layers.2",
            ("next.norm: layers.2 is the last", "root.nrom: matches no module"),
            ("did you mean root.norm?",),
        ),
        (
            "prev.mlp or .dropout",
            "no side of this 'or' names an operation in layers.0",
            ("prev.mlp: layers.0 is the first", ".dropout: nothing runs in it"),
            (),
        ),
        (
            "(all_reduce in .mlp) or (softmax in .gone) or (own in .attn.gone)",
            "no side of this 'or' names an operation in layers.0 and 2 more",
            (
                "all_reduce in .mlp: there is no all_reduce there",
                "softmax in .gone: names no operation there",
                "own in .attn.gone: names no operation there",
            ),
            (),
        ),
    ],
)
def test_both_sides_of_an_or_are_explained(
    selector: str, message: str, notes: tuple[str, ...], helps: tuple[str, ...]
) -> None:
    found = only(selector)
    assert found.code == "DFS201"
    assert found.message == message
    assert found.notes == notes
    assert found.helps == helps
    assert marked(found) == selector


def test_an_or_may_have_a_side_that_is_never_there() -> None:
    binding = bound("a = .input_norm or .norm\nb = .attn\nc = rest", MODEL)
    assert held(binding, "a") == ["n0", "n1", "n2"]


def test_sides_that_all_look_past_the_end_name_nothing_there() -> None:
    binding = bound("a = .attn\nb = .mlp + (next.norm or next.input_norm)", MODEL)
    assert held(binding, "b") == ["h1 n1", "h2 n2", "h3"]


def test_nothing_is_next_to_a_single_iteration() -> None:
    single = graph("""
        input x
        a0 = relu(x) @ layers.0.attn
        m0 = relu(a0) @ layers.0.mlp
        return m0
    """)
    (found,) = attempt("a = .attn\nb = .mlp + next.attn", single).diagnostics
    assert found.code == "DFS201"
    assert found.message == "next.attn matches nothing: there is one iteration alone"
    assert marked(found) == "next.attn"
    assert not any("did you mean" in each for each in found.helps)
    assert held(bound("a = .attn\nb = .mlp or next.attn", single), "b") == ["m0"]


# ---- having, single layers -----------------------------------------------------------


MIXED = """
    input x
    a0 = relu(x) @ layers.0.dense
    a1 = relu(a0) @ layers.1.dense
    a2 = relu(a1) @ layers.2.experts.up
    a3 = relu(a2) @ layers.3.experts.up
    return a3
"""


@pytest.mark.parametrize(
    ("having", "names"),
    [
        ("", ["a0", "a1", "a2", "a3"]),
        (" having .experts", ["a2", "a3"]),
        (" having .dense", ["a0", "a1"]),
        (" having .*.up", ["a2", "a3"]),
        (" having .**", ["a0", "a1", "a2", "a3"]),
    ],
)
def test_having_keeps_iterations_with_operations_in_it(
    having: str, names: list[str]
) -> None:
    model = graph(MIXED, modules=["layers.1.experts"])
    assert held(bound("a = .", model, each=f".layers.*{having}"), "a") == names


def test_what_having_leaves_out_runs_before_and_after() -> None:
    binding = bound("a = .", graph(MIXED), each=".layers.* having .experts")
    assert held(binding, "before") == ["a0 a1"]
    binding = bound("a = .", graph(MIXED), each=".layers.* having .dense")
    assert held(binding, "after") == ["a2 a3"]


def test_what_having_leaves_out_in_the_middle_is_a_gap() -> None:
    text = MIXED.replace("layers.1.dense", "layers.1.experts.up")
    model = graph(text.replace("layers.2.experts.up", "layers.2.dense"))
    binding = bound("a = .", model, each=".layers.* having .experts")
    assert held(binding, "before") == ["a0"]
    assert held(binding, "a") == ["a1", "a3"]
    assert binding.gaps is not None
    assert [i.operations for i in binding.gaps.part.instances] == [("a2",)]


@pytest.mark.parametrize(
    ("having", "message", "helps"),
    [
        (
            ".expert",
            "no module that .layers.* matches has .expert",
            ("did you mean .experts?",),
        ),
        (
            ".router",
            "no module that .layers.* matches has operations in .router",
            (),
        ),
    ],
)
def test_having_leaves_nothing(
    having: str, message: str, helps: tuple[str, ...]
) -> None:
    model = graph(MIXED, modules=["layers.1.router"])
    found = fault("a = .", model, each=f".layers.* having {having}")
    assert found.code == "DFS201"
    assert found.message == message
    assert found.helps == helps
    assert marked(found) == having


def test_a_selector_that_matches_in_some_layers_says_which() -> None:
    parts = "a = .dense\nb = .experts"
    result = attempt(parts, graph(MIXED))
    notes = [item.notes for item in result.diagnostics]
    assert [item.code for item in result.diagnostics] == ["DFS205", "DFS205"]
    assert notes == [
        (".dense matches in layers.0, layers.1 only",),
        (".experts matches in layers.2, layers.3 only",),
    ]
