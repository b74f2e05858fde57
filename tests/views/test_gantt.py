from dynaflow_dsl.views.gantt import gantt
from tests.views.sample import halves, unsplit


def test_streams_are_rows_and_windows_columns() -> None:
    assert (
        gantt(halves(), (2,))
        == """\
     layer 0             layer 1             after
main|         |mlp[0] 0 |mlp[1] 0 |mlp[0] 1 |mlp[1] 1|
side|attn[0] 0|attn[1] 0|attn[0] 1|attn[1] 1|        |
"""
    )


def test_iterations_in_the_middle_are_left_out() -> None:
    chart = gantt(halves(), (8,), width=120)
    assert "layer 1" in chart
    assert "layer 2" not in chart
    assert "|...|" in chart
    assert "mlp[1] 7" in chart


def test_three_iterations_are_drawn_when_their_number_is_unknown() -> None:
    chart = gantt(halves(), width=120)
    assert "layer 2" in chart
    assert chart.count("...") == 2
    assert "after" not in chart


def test_a_chart_wider_than_the_terminal_goes_on_below() -> None:
    chart = gantt(halves(), (8,), width=40)
    assert all(len(line) <= 40 for line in chart.splitlines())
    assert chart.count("main|") > 1
    joined = [line for line in chart.splitlines() if line.startswith("side|")]
    cells = [c for line in joined for c in line[5:].split("|") if c.strip()]
    assert [c.strip() for c in cells][:4] == [
        "attn[0] 0",
        "attn[1] 0",
        "attn[0] 1",
        "attn[1] 1",
    ]


def test_a_column_wider_than_the_terminal_is_still_drawn() -> None:
    assert "attn 0, router 0" in gantt(unsplit(), (1,), width=10)
