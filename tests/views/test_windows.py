from dynaflow_dsl.views.windows import windows
from tests.bind.graphs import schedule as bind_schedule
from tests.views.sample import halves, unsplit


def test_blocks_are_listed_with_aligned_bars() -> None:
    assert (
        windows(halves(), (8,))
        == """\
sample: streams main, side; batch in 2 pieces as half
each layer in .model.layers.*

layer 0:
    attn[0]
    mlp[0]  | attn[1]

layer 1 to 7:
    attn[0] | prev.mlp[1]
    mlp[0]  | attn[1]

after the last layer:
    prev.mlp[1]
"""
    )


def test_the_heading_has_what_iterations_must_have() -> None:
    made = bind_schedule("a = .attn", each=".layers.* having .attn")
    assert windows(made).splitlines()[1] == "each layer in .layers.* having .attn"


def test_number_of_iterations_may_be_unknown() -> None:
    assert "layer 1 and every later one:" in windows(halves())


def test_one_iteration_has_no_loop() -> None:
    text = windows(halves(), (1,))
    assert "layer 1" not in text
    assert "after the last layer:" in text


def test_two_iterations_loop_once() -> None:
    assert "layer 1:" in windows(halves(), (2,))


def test_without_split_steps_have_no_index() -> None:
    assert (
        windows(unsplit(), (2,))
        == """\
sample: streams main
each layer in .model.layers.*

layer 0:
    attn, router
    mlp

layer 1:
    attn, router
    mlp
"""
    )
