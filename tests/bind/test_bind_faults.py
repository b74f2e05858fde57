from __future__ import annotations

import pytest

from tests.bind.graphs import attempt, bound, fault, graph, held, marked, repeat

LAYER = """
    a%i = relu(h%i) @ layers.%i.attn.proj
    b%i = relu(a%i) @ layers.%i.norm
    h%n = relu(b%i) @ layers.%i.mlp
"""
LINES = f"input h0\n{repeat(LAYER, 3)}\nreturn h3"
MODEL = graph(LINES, modules=["layers.0.dropout", "spare.0"])
ALL = "attn = .attn\nmlp = rest"


@pytest.mark.parametrize(
    ("each", "message", "label", "helps"),
    [
        (
            ".layer.*",
            ".layer.* matches no module of the model",
            "matches nothing",
            "did you mean .layers.*?",
        ),
        (
            ".q.*",
            ".q.* matches no module of the model",
            "matches nothing",
            "modules here: .layers, .spare",
        ),
        (
            ".spare.*",
            ".spare.* has no operations in the traced model",
            "the module exists, but nothing runs in it",
            "name modules that run in each entry, or choose by 'phase' in a 'select'",
        ),
    ],
)
def test_an_each_without_operations(
    each: str, message: str, label: str, helps: str
) -> None:
    found = fault(ALL, MODEL, each=each)
    assert found.code == "DFS201"
    assert found.message == message
    assert marked(found) == each
    assert found.primary is not None
    assert found.primary.text == label
    assert found.helps == (helps,)


@pytest.mark.parametrize(
    ("selector", "at", "message", "helps"),
    [
        (
            ".atn",
            ".atn",
            ".atn matches no module below layers.0",
            "did you mean .attn?",
        ),
        (
            "prev.atn",
            "prev.atn",
            "prev.atn matches no module below layers.0",
            "did you mean prev.attn?",
        ),
        (
            ".attn + root.layers.7",
            "root.layers.7",
            "root.layers.7 matches no module",
            "did you mean root.layers.2, root.layers.1 or root.layers.0?",
        ),
        (
            ".attn - .qqq",
            ".qqq",
            ".qqq matches no module below layers.0",
            "modules here: .attn, .dropout, .mlp, .norm",
        ),
        (
            "own in .atn",
            ".atn",
            ".atn matches no module below layers.0",
            "did you mean .attn?",
        ),
        (
            ".attn + .dropout",
            ".dropout",
            ".dropout has no operations in the traced model",
            "remove it: a part is a set of operations",
        ),
        (
            ".attn + (own in .attn)",
            "own in .attn",
            ".attn has no operations of its own in the traced model",
            "write .attn for the module and all below",
        ),
    ],
)
def test_a_selector_without_operations(
    selector: str, at: str, message: str, helps: str
) -> None:
    found = fault(f"attn = {selector}\nmlp = rest", MODEL)
    assert found.code == "DFS201"
    assert found.message == message
    assert marked(found) == at
    assert found.helps == (helps,)


def test_every_empty_selector_is_found() -> None:
    result = attempt("attn = .atn\nmlp = .mlpp", MODEL)
    assert [marked(found) for found in result.diagnostics] == [".atn", ".mlpp"]


def test_a_part_that_others_leave_nothing_for() -> None:
    found = fault("attn = .attn + .norm\nmlp = .mlp\nnone = .attn - attn", MODEL)
    assert found.code == "DFS201"
    assert found.message == "part none holds no operation"
    assert marked(found) == ".attn - attn"
    assert found.notes == ()


def test_a_rest_that_was_to_be_what_follows_the_layers() -> None:
    found = fault("attn = .attn + .norm\nmlp = .mlp\nhead = rest", MODEL)
    assert found.message == "part head holds no operation"
    assert found.notes == (
        "what follows all parts, such as a head, and what comes before them runs "
        "anyway, once on the whole batch",
    )


def test_a_part_that_some_layers_have_nothing_for() -> None:
    text = LINES.replace(" @ layers.1.norm", " @ layers.1.mlp")
    found = fault("attn = .attn\nnorm = .norm\nmlp = .mlp", graph(text))
    assert found.code == "DFS205"
    assert found.message == (
        "norm differs between layers.1 and layers.0: the first has no such operations"
    )
    assert marked(found) == ".norm"


def test_parts_that_share_operations() -> None:
    found = fault("attn = .attn + .norm\nmlp = .mlp + .norm", MODEL)
    assert found.code == "DFS202"
    assert found.message == "parts attn and mlp share an operation"
    assert marked(found) == ".mlp + .norm"
    assert found.primary is not None
    assert found.primary.text == "takes relu in layers.0.norm again"
    assert [label.span.text for label in found.secondary] == [".attn + .norm"]
    found = fault("attn = .attn + .norm\nmlp = .mlp + .norm + .attn", MODEL)
    assert found.message == "parts attn and mlp share 2 operations"


@pytest.mark.parametrize("neighbour", ["next", "prev"])
def test_parts_that_share_with_a_neighbour(neighbour: str) -> None:
    found = fault(f"attn = .attn\nmlp = .norm + .mlp + {neighbour}.attn", MODEL)
    assert found.code == "DFS202"
    assert " of another iteration" in found.message
    assert "attn" in found.message
    assert "mlp" in found.message


def test_a_part_that_takes_operations_twice() -> None:
    found = fault("attn = .attn\nmlp = .norm + .mlp + next.norm", MODEL)
    assert found.code == "DFS202"
    assert found.message == "part mlp takes an operation in two iterations"
    assert marked(found) == ".norm + .mlp + next.norm"


def test_operations_of_a_layer_that_no_part_takes() -> None:
    found = fault("attn = .attn\nmlp = .mlp", MODEL)
    assert found.code == "DFS203"
    assert found.message == "no part takes .norm, which runs between parts"
    assert marked(found).startswith("order")
    assert found.helps[0] == "add '+ .norm' to a part, or give one part 'rest'"
    assert found.notes[0] == "relu in layers.0.norm"


def test_operations_between_parts_of_one_iteration() -> None:
    text = """
        input h0
        a0 = relu(h0) @ layers.0.attn
        m0 = relu(a0) @ bridge
        h1 = relu(m0) @ layers.0.mlp
        return h1
    """
    found = fault(ALL, graph(text))
    assert found.code == "DFS203"
    assert found.message == "no part takes root.bridge, which runs between parts"


def test_a_gap_reads_what_was_made_anew() -> None:
    text = """
        input h0
        a0 = relu(h0) @ layers.0.attn
        a1 = relu(a0) @ layers.1
        v1 = ~view(a1) @ layers.1
        a2 = relu(v1) @ layers.2.attn
        b1 = relu(h0) @ layers.1.attn
        return a2 b1
    """
    found = fault("attn = .attn", graph(text))
    assert found.code == "DFS205"
    assert found.message == (
        "attn differs between layers.0 and layers.1: what the first makes is read "
        "after the second has made it anew"
    )


def test_a_write_into_what_another_part_made() -> None:
    layer = """
        a%i = relu(h%i) @ layers.%i.attn
        add_.Tensor(a%i, h%i) @ layers.%i.mlp
        h%n = relu(a%i) @ layers.%i.mlp
    """
    found = fault(
        "attn = .attn\nmlp = .mlp", graph(f"input h0\n{repeat(layer, 2)}\nreturn h2")
    )
    assert found.code == "DFS206"
    assert found.message == "part mlp writes in place into a tensor that attn made"
    assert marked(found) == ".mlp"
    assert found.primary is not None
    assert found.primary.text == "add_.Tensor in layers.0.mlp"
    assert found.helps[0] == "put the operation into attn"


def writes(line: str, head: str = "", tail: str = "") -> str:
    layer = """
        a%i = relu(h%i) @ layers.%i.attn
        v%i = ~view(a%i) @ layers.%i.mlp
        r%i = ?reshape(a%i) @ layers.%i.mlp
        LINE
        h%n = add.Tensor(r%i, a%i) @ layers.%i.mlp
    """
    text = repeat(layer.replace("LINE", line), 2)
    return f"input x\nh0 = relu(x) @ embed\n{head}\n{text}\n{tail}\nreturn h2".replace(
        "\n\n", "\n"
    )


TWO = "attn = .attn\nmlp = .mlp"


def test_a_write_through_a_view_or_into_a_copy_that_may_be_one() -> None:
    for target in ("v%i", "r%i"):
        found = fault(TWO, graph(writes(f"add_.Tensor({target}, a%i) @ layers.%i.mlp")))
        assert found.code == "DFS206"
        assert found.message == "part mlp writes in place into a tensor that attn made"


def test_a_write_into_what_the_iteration_before_made() -> None:
    text = writes("add_.Tensor(h%i, r%i) @ layers.%i.mlp")
    messages = [found.message for found in attempt(TWO, graph(text)).diagnostics]
    assert messages == [
        "part mlp writes in place into a tensor that was made before the parts",
        "part mlp writes in place into a tensor that mlp made in another iteration",
    ]


def test_a_write_into_what_runs_before() -> None:
    text = writes("add_.Tensor(m, r%i) @ layers.%i.mlp", head="m = relu(x) @ embed")
    found = fault(TWO, graph(text))
    assert found.code == "DFS206"
    assert found.message == (
        "part mlp writes in place into a tensor that was made before the parts"
    )
    assert found.helps == ("use a new tensor for the result in the model",)


def test_a_write_after_the_parts() -> None:
    text = writes("w%i = relu(r%i) @ layers.%i.mlp", tail="add_.Tensor(h2, x) @ head")
    found = fault(TWO, graph(text))
    assert found.code == "DFS206"
    assert found.message == (
        "an operation after the parts writes in place into a tensor that mlp made"
    )
    assert marked(found) == ".mlp"
    text = writes("w%i = relu(r%i) @ layers.%i.mlp", tail="add_.Tensor(h0, h2) @ head")
    found = fault(TWO, graph(text))
    assert found.message == (
        "an operation after the parts writes in place into a tensor that was made "
        "before the parts"
    )
    assert marked(found) == ".layers.*"


def test_writes_that_stay_at_home() -> None:
    inside = writes("add_.Tensor(r%i, r%i) @ layers.%i.mlp").replace("?reshape", "relu")
    assert bound(TWO, graph(inside)).parts
    before = writes(
        "w%i = relu(r%i) @ layers.%i.mlp",
        head="m = relu(x) @ embed",
        tail="add_.Tensor(m, h2) @ head",
    )
    # Both run on main, one after the other, and no part has seen the tensor.
    assert held(bound(TWO, graph(before)), "after") != []


def test_a_result_that_may_be_what_the_part_was_given() -> None:
    layer = """
        a%i = relu(h%i) @ layers.%i.attn
        r%i = ?reshape(a%i) @ layers.%i.mid
        h%n = add.Tensor(r%i, a%i) @ layers.%i.mlp
    """
    text = f"input x\nh0 = relu(x) @ embed\n{repeat(layer, 2)}\nreturn h2"
    parts = "attn = .attn\nmid = .mid\nmlp = .mlp"
    found = fault(parts, graph(text))
    assert found.code == "DFS207"
    assert found.message == "part mid may hand on memory that it was given"
    assert marked(found) == ".mid"
    # With its maker, or with its reader, it never leaves a part as somebody's memory.
    for fine in ("attn = .attn + .mid\nmlp = .mlp", "attn = .attn\nmlp = .mid + .mlp"):
        assert attempt(fine, graph(text)).ok
