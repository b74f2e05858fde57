from dynaflow_dsl.views.blocks import blocks, run_text
from tests.views.sample import halves, schedule, unsplit


def test_first_iteration_has_no_step_of_the_one_before() -> None:
    first, loop, last = blocks(halves().sections[0])

    assert [b.kind for b in (first, loop, last)] == ["first", "loop", "last"]
    assert all(not s.previous for row in first.rows for run in row for s in run.steps)
    assert all(s.previous for row in last.rows for run in row for s in run.steps)
    assert sum(len(run.steps) for row in loop.rows for run in row) == 4


def test_every_step_of_every_iteration_appears_once() -> None:
    # Three iterations: first, one of the loop, and the last one's leftovers.
    seen = []
    for number, block in zip((0, 1, 2), blocks(halves().sections[0]), strict=True):
        for row in block.rows:
            for run in row:
                seen += [(s.part, s.piece, number - s.previous) for s in run.steps]
    assert sorted(seen) == [
        (part, piece, number)
        for part in ("attn", "mlp")
        for piece in (0, 1)
        for number in (0, 1)
    ]


def test_nothing_is_left_without_a_step_of_the_iteration_before() -> None:
    assert [block.kind for block in blocks(unsplit().sections[0])] == ["first", "loop"]


def test_a_window_of_earlier_steps_alone_is_left_out_of_the_first_iteration() -> None:
    parts = {"a": "main", "b": "side"}
    first, loop, last = blocks(
        schedule("prev.b[0], prev.b[1]\na[0], a[1]", parts).sections[0]
    )

    assert len(first.rows) == 1
    assert len(loop.rows) == 2
    assert len(last.rows) == 1


def test_a_run_is_written_as_in_the_file() -> None:
    halves_run = blocks(halves().sections[0])[1].rows[0][1]
    unsplit_run = blocks(unsplit().sections[0])[1].rows[0][0]

    assert run_text(halves(), halves_run) == "prev.mlp[1]"
    assert run_text(unsplit(), unsplit_run) == "attn, router"
