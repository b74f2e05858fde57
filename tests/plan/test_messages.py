"""What a refused timeline is told, in the words of its file."""

from __future__ import annotations

from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.plan import plan
from tests.plan.layered import Layered, Read, Shape, binding_of, file_of

DONE = Read("ffn_reduce", carried=True)
NANO = Layered(
    (
        Shape("qkv", (DONE,)),
        Shape("attn", (Read("qkv"),), cache="w"),
        Shape("o", (Read("attn"),)),
        Shape("o_reduce", (Read("o"),)),
        Shape("ffn", (Read("o_reduce"), DONE)),
        Shape("ffn_reduce", (Read("ffn"), Read("o_reduce"))),
    ),
    layers=4,
    results=(),
    head=(("ffn_reduce", 0),),
)
NANO_ON: dict[str, str | list[str]] = {
    "attn": "memory",
    "o_reduce": "network",
    "ffn_reduce": "network",
}
NANO_WINDOWS = [
    "qkv[0]           | prev.ffn_reduce[1]",
    "qkv[1] | attn[0] | prev.ffn_reduce[2]",
    "qkv[2] | attn[1]",
    "o[0]   | attn[2]",
    "o[1]   | o_reduce[0]",
    "o[2]   | o_reduce[1]",
    "ffn[0] | o_reduce[2]",
    "ffn[1] | ffn_reduce[0]",
    "ffn[2]",
]
CHAIN = Layered(
    (
        Shape("a", (Read("c", carried=True),)),
        Shape("b", (Read("a"),)),
        Shape("c", (Read("b"), Read("a"))),
        Shape("d", (Read("a"),)),
    ),
    layers=3,
    results=(("d", 0),),
    head=(("c", 0), ("d", 0)),
)
CACHED = Layered(
    (
        Shape("store", (Read("load", carried=True),), cache="w"),
        Shape("load", (Read("load", carried=True),), cache="r"),
    ),
    layers=3,
    results=(("load", 0), ("store", 0)),
)


def found(
    model: Layered,
    on: dict[str, str | list[str]],
    pieces: int,
    windows: list[str],
    *streams: str,
) -> tuple[Diagnostic, ...]:
    timeline = "order:\n" + "\n".join(f"    {window}" for window in windows)
    file = file_of(model, on, pieces, timeline, streams)
    return plan(binding_of(file, model)).diagnostics


def places(diagnostic: Diagnostic) -> list[tuple[str, str]]:
    """The text and the remark of each label."""
    assert diagnostic.primary is not None
    labels = (diagnostic.primary, *diagnostic.secondary)
    return [(label.span.text, label.text) for label in labels]


def test_nanoflow_is_fine() -> None:
    assert found(NANO, NANO_ON, 3, NANO_WINDOWS, "memory", "network") == ()


def test_nanoflow_with_two_steps_exchanged() -> None:
    windows = list(NANO_WINDOWS)
    windows[6] = "ffn[2] | o_reduce[2]"
    windows[8] = "ffn[0]"
    overlap, early = found(NANO, NANO_ON, 3, windows, "memory", "network")

    assert overlap.code == "DFS302"
    assert overlap.message == "ffn[2] cannot overlap o_reduce[2]: it reads it"
    assert places(overlap) == [
        ("ffn[2]", "reads o_reduce_2"),
        ("o_reduce[2]", "produces what ffn[2] reads"),
    ]
    assert overlap.helps == ("put ffn[2] into a later window",)

    assert early.code == "DFS301"
    assert early.message == "ffn_reduce[0] is issued before ffn[0], which it reads"
    assert places(early) == [
        ("ffn_reduce[0]", "reads ffn_0"),
        ("ffn[0]", "produced only here"),
    ]
    assert early.helps == (
        "put ffn_reduce[0] below ffn[0], or write prev.ffn_reduce[0] to run it one "
        "iteration later",
    )


def test_nanoflow_with_a_reduction_too_early() -> None:
    windows = list(NANO_WINDOWS)
    windows[4], windows[5] = "o[1] | o_reduce[1]", "o[2] | o_reduce[0]"
    (overlap,) = found(NANO, NANO_ON, 3, windows, "memory", "network")
    assert overlap.message == "o_reduce[1] cannot overlap o[1]: it reads it"


def test_nanoflow_without_prev() -> None:
    windows = [window.replace("prev.", "") for window in NANO_WINDOWS]
    codes = [d.code for d in found(NANO, NANO_ON, 3, windows, "memory", "network")]
    assert set(codes) == {"DFS301"}


def test_a_later_step_of_a_run_is_ordered_behind_the_other_run() -> None:
    # d[0] runs on b's stream behind b[1], which waits for a[1].
    windows = ["a[0]", "b[0]", "a[1] | b[1], d[0]", "c[0]", "c[1]", "d[1]"]
    direct, chained = found(CHAIN, {"b": "side", "d": "side"}, 2, windows, "side")
    assert direct.message == "b[1] cannot overlap a[1]: it reads it"
    assert chained.code == "DFS302"
    assert chained.message == ("d[0] cannot overlap a[1]: a chain of waits orders them")
    assert places(chained) == [
        ("d[0]", "must wait for a[1], through other steps"),
        ("a[1]", "runs first"),
    ]
    assert chained.helps[0] == "put d[0] into a later window"


def test_steps_that_touch_one_cache() -> None:
    (overlap,) = found(CACHED, {"load": "side"}, 1, ["load | store"], "side")
    assert overlap.code == "DFS302"
    assert overlap.message == "load cannot overlap store: it must follow it"
    assert places(overlap) == [
        ("load", "both touch keys.0, and one of the two writes it"),
        ("store", "runs first"),
    ]
    (early,) = found(CACHED, {"load": "side"}, 1, ["load", "store"], "side")[:1]
    assert early.code == "DFS301"
    assert early.message == "load is issued before store, which it must follow"
    assert places(early) == [
        ("load", "both touch keys.0, and one of the two writes it"),
        ("store", "runs first"),
    ]


def test_a_result_replaced_before_it_is_read() -> None:
    model = Layered(
        (
            Shape("a", (Read("b", carried=True),)),
            Shape("b", (Read(None),)),
            Shape("c", (Read("a"),)),
        ),
        layers=3,
        results=(("b", 0), ("c", 0)),
    )
    (replaced,) = found(model, {"b": "side"}, 1, ["a", "prev.c", "b"], "side")
    assert replaced.code == "DFS308"
    assert replaced.message == "a replaces a before prev.c has read it"
    assert places(replaced) == [
        ("prev.c", "reads the result of the iteration before"),
        ("a", "makes the next one"),
    ]
    assert replaced.helps == ("issue prev.c before a",)

    (carried,) = found(model, {}, 1, ["b", "a", "c"])
    assert carried.message == "b replaces hidden before a has read it"


def test_a_step_of_the_layer_before_is_not_told_to_go_further_back() -> None:
    windows = ["a[0], prev.c[1]", "prev.b[1] | a[1]", "b[0]", "c[0], d"]
    for diagnostic in found(CHAIN, {"b": "side"}, 2, windows, "side"):
        assert not any("prev.prev" in text for text in diagnostic.helps)
    early = found(CHAIN, {"b": "side"}, 2, windows, "side")[0]
    assert early.message == "prev.c[1] is issued before prev.b[1], which it reads"
    assert early.helps == ("put prev.c[1] below prev.b[1]",)
