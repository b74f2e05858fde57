import pytest

from dynaflow_dsl.cli.main import run
from dynaflow_dsl.diagnostics.codes import explanations

Capture = pytest.CaptureFixture[str]


def test_every_code_is_explained(capsys: Capture) -> None:
    assert explanations()
    for code, page in explanations().items():
        assert run(["explain", code]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"# {code} {page.name}\n")
        assert page.summary in shown


def test_codes_may_be_written_small(capsys: Capture) -> None:
    assert run(["explain", "dfs302"]) == 0
    assert capsys.readouterr().out.startswith("# DFS302 ")


def test_without_a_code_all_are_listed(capsys: Capture) -> None:
    assert run(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(explanations())


def test_a_near_code_is_suggested(capsys: Capture) -> None:
    assert run(["explain", "DFS3020"]) == 2
    message = capsys.readouterr().err
    assert "did you mean" in message
    assert "DFS302 " in message


def test_codes_of_the_command_line_have_pages() -> None:
    assert {"DFS113", "DFS501", "DFS502", "DFS504", "DFS900"} <= set(explanations())
