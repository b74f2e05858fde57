"""Parameters, facts and imports, from the command line to the module and back."""

import ast
import json
from typing import Any

import pytest

from dynaflow_dsl.cli.main import run
from tests.cli.conftest import SCHEDULE, Workspace

Capture = pytest.CaptureFixture[str]

PARTS = """\
dfs 1

parts block:
    part expand on side = .norm + .up
    part reduce = rest
"""


OTHER = """\
dfs 1

model "targets.py:stack" (layers = 3)

schedule other(pieces = 2):
    stream side

    split batch into pieces as piece

    each layer in .layers.*:
        part expand on side = .norm + .up
        part reduce = rest

        stagger piece by 0:
            expand
            reduce
"""


@pytest.fixture
def wide(workspace: Workspace) -> Workspace:
    """The sample schedule with parameters, a requirement and imported parts."""
    text = SCHEDULE.replace("stack_halves:", "stack_halves(ways = 2, share = 0.5):")
    text = text.replace(
        "    stream side\n",
        "    require width >= ways and share < 1\n    stream side\n",
    )
    text = text.replace("into 2", "into ways").replace("half by 1", "half by 0")
    text = text.replace("        part expand on side = .norm + .up\n", "")
    text = text.replace("        part reduce = rest\n", "        use block\n")
    line = '(layers = 3)\n\nfrom "lib/parts.dfs" import block\n'
    text = text.replace("(layers = 3)\n", line)
    workspace.schedule.write_text(text)
    (workspace.folder / "lib").mkdir()
    (workspace.folder / "lib" / "parts.dfs").write_text(PARTS)
    workspace.change(
        workspace.targets,
        '        dimensions={"batch": (1, 64)},\n',
        '        dimensions={"batch": (1, 64)},\n'
        '        facts={"width": width, "layers": layers},\n',
    )
    return workspace


def stored(workspace: Workspace) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(workspace.map.read_text())
    return known


def check(workspace: Workspace, capsys: Capture, *words: str) -> list[dict[str, Any]]:
    """What `compile --check` finds; it must write nothing."""
    before = workspace.files()
    capsys.readouterr()
    code = workspace.compile("--check", "--output-format", "json", *words)
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["diagnostics"]
    assert code == (1 if found else 0)
    assert workspace.files() == before
    return found


def constants(workspace: Workspace) -> object:
    """The parameters that the module's class has as a constant."""
    tree = ast.parse(workspace.module.read_text())
    (executor,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    for statement in executor.body:
        match statement:
            case ast.Assign(targets=[ast.Name("parameters")], value=value):
                return ast.literal_eval(value)
    return None


def test_defaults_are_in_module_and_map(wide: Workspace) -> None:
    assert wide.compile() == 0
    assert constants(wide) == {"ways": 2, "share": 0.5}
    known = stored(wide)
    assert known["parameters"] == {"stack_halves": {"ways": 2, "share": 0.5}}
    assert known["facts"] == {"width": 8}
    assert known["given"] == {"parameters": {}, "facts": {}}


def test_given_values_are_in_module_and_map(wide: Workspace) -> None:
    assert wide.compile() == 0
    before = stored(wide)["schedule"]
    assert wide.compile("-P", "ways=3", "-F", "width=4", "-F", "unused=1") == 0
    assert constants(wide) == {"ways": 3, "share": 0.5}
    known = stored(wide)
    assert known["parameters"] == {"stack_halves": {"ways": 3, "share": 0.5}}
    assert known["facts"] == {"width": 4}
    assert known["given"] == {"parameters": {"ways": "3"}, "facts": {"width": 4}}
    assert known["schedule"] != before


def test_a_schedule_without_parameters_has_no_constant(workspace: Workspace) -> None:
    assert workspace.compile() == 0
    assert constants(workspace) is None
    known = stored(workspace)
    assert (known["parameters"], known["facts"]) == ({}, {})


def test_check_uses_what_the_module_was_made_with(
    wide: Workspace, capsys: Capture
) -> None:
    assert wide.compile("-P", "ways=3", "-F", "width=4") == 0
    assert check(wide, capsys) == []
    (found,) = check(wide, capsys, "-P", "ways=2")
    assert found["code"] == "DFS501"
    assert found["message"] == (
        "executors/stack_halves.py is stale: it was compiled with other parameters"
    )
    assert found["notes"] == ["was: -P ways=3", "is: -P ways=2"]
    assert found["helps"] == ["run `dfsc compile stack.dfs -P ways=2 -F width=4`"]


def test_check_may_replace_one_of_the_stored_values(
    wide: Workspace, capsys: Capture
) -> None:
    assert wide.compile("-P", "ways=3", "-P", "share=0.25") == 0
    (found,) = check(wide, capsys, "-P", "ways=2")
    assert found["helps"] == ["run `dfsc compile stack.dfs -P share=0.25 -P ways=2`"]


def test_repair_repeats_what_was_given(wide: Workspace, capsys: Capture) -> None:
    assert wide.compile("-P", "ways=3", "-F", "width=4") == 0
    wide.change(wide.schedule, "share = 0.5", "share = 0.25")
    (found,) = check(wide, capsys)
    assert (
        found["message"]
        == "executors/stack_halves.py is stale: the schedule in stack.dfs changed"
    )
    assert found["helps"] == ["run `dfsc compile stack.dfs -P ways=3 -F width=4`"]


def test_a_default_that_changed_is_not_hidden_by_the_stored_value(
    wide: Workspace, capsys: Capture
) -> None:
    assert wide.compile() == 0
    wide.change(wide.schedule, "ways = 2", "ways = 4")
    assert [found["code"] for found in check(wide, capsys)] == ["DFS501"]


def test_a_default_may_be_one_that_only_a_given_value_makes_right(
    wide: Workspace, capsys: Capture
) -> None:
    wide.change(wide.schedule, "ways = 2", "ways = 1")
    assert wide.compile() == 1
    assert wide.compile("-P", "ways=2") == 0
    assert check(wide, capsys) == []


def test_a_stored_parameter_that_went_makes_the_module_stale(
    wide: Workspace, capsys: Capture
) -> None:
    assert wide.compile("-P", "share=0.75") == 0
    wide.change(wide.schedule, ", share = 0.5", "")
    wide.change(wide.schedule, " and share < 1", "")
    assert [found["code"] for found in check(wide, capsys)] == ["DFS501"]


def test_check_after_an_imported_file_changed(wide: Workspace, capsys: Capture) -> None:
    assert wide.compile() == 0
    wide.change(wide.folder / "lib" / "parts.dfs", ".norm + .up", ".norm")
    assert [found["code"] for found in check(wide, capsys)] == ["DFS501"]


def test_check_after_a_fact_changed(wide: Workspace, capsys: Capture) -> None:
    assert wide.compile() == 0
    wide.change(wide.targets, '"width": width', '"width": 2 * width')
    (found,) = check(wide, capsys)
    assert "`facts.width`" in found["message"]


def test_facts_that_nobody_asks_for_change_nothing(
    wide: Workspace, capsys: Capture
) -> None:
    assert wide.compile() == 0
    assert check(wide, capsys, "-F", "layers=99") == []


def test_a_requirement_that_other_ranks_do_not_meet(
    wide: Workspace, capsys: Capture
) -> None:
    """It is said where the module is made; the rank is a fact only where it matters."""
    text = wide.schedule.read_text()
    facts = ["-F", "tp_size=2", "-F", "tp_rank=0"]
    for condition, said in (("tp_rank == 0", True), ("tp_rank < tp_size", False)):
        wide.schedule.write_text(
            text.replace("share < 1", f"share < 1 and {condition}")
        )
        assert run(["compile", str(wide.schedule), *facts]) == 0
        shown = capsys.readouterr().err
        assert ("warning[DFS118]: other ranks cannot load" in shown) == said
        assert ("on rank 1 this does not hold" in shown) == said
        known = json.loads(wide.map.read_text())["facts"]
        assert ("tp_rank" in known) == said


def test_a_requirement_that_does_not_hold(wide: Workspace, capsys: Capture) -> None:
    assert wide.compile("-P", "ways=9") == 1
    shown = capsys.readouterr().err
    assert "error[DFS115]" in shown
    assert "width is 8, a fact of the model" in shown
    assert "ways is 9, a parameter" in shown
    assert not wide.module.exists()


def test_a_fact_that_nobody_knows(wide: Workspace, capsys: Capture) -> None:
    wide.change(wide.schedule, "width >=", "widht >=")
    assert wide.compile() == 1
    shown = capsys.readouterr().err
    assert "error[DFS106]: there is no fact 'widht'" in shown
    assert "did you mean 'width'?" in shown
    assert "-F widht=VALUE" in shown


def test_a_dimension_of_the_model_is_no_fact(wide: Workspace, capsys: Capture) -> None:
    wide.change(wide.targets, '"batch"', '"rows"')
    wide.change(wide.schedule, "split batch", "split rows")
    wide.change(wide.schedule, "width >=", "rows >=")
    assert wide.compile() == 1
    assert "error[DFS105]" in capsys.readouterr().err


def test_a_wrong_parameter(wide: Workspace, capsys: Capture) -> None:
    for command in ("compile", "check", "show", "verify"):
        assert run([command, "stack.dfs", "-P", "way=2"]) == 1
        shown = capsys.readouterr().err
        assert "error[DFS102]: -P way: there is no parameter 'way'" in shown
        assert "did you mean 'ways'?" in shown
        assert run([command, "stack.dfs", "-P", "ways=two"]) == 1
        assert "error[DFS108]: -P ways=two" in capsys.readouterr().err
        assert run([command, "stack.dfs", "-P", "ways"]) == 2
        assert "'ways' is not NAME=VALUE" in capsys.readouterr().err


def test_check_without_a_model_leaves_requirements_open(
    wide: Workspace, capsys: Capture
) -> None:
    assert run(["check", "stack.dfs"]) == 0
    shown = capsys.readouterr().err
    assert "info[DFS116]: this requirement was not decided" in shown
    assert "text and names are fine" in shown
    assert run(["check", "stack.dfs", "-F", "width=8"]) == 0
    assert "DFS116" not in capsys.readouterr().err
    assert run(["check", "stack.dfs", "-F", "width=1"]) == 1
    shown = capsys.readouterr().err
    assert "error[DFS115]" in shown
    assert "width is 1, from -F" in shown


def test_check_with_a_snapshot_decides(wide: Workspace, capsys: Capture) -> None:
    assert run(["trace", "stack.dfs"]) == 0
    assert run(["check", "stack.dfs"]) == 0
    assert "DFS116" not in capsys.readouterr().err
    assert run(["check", "stack.dfs", "-P", "ways=9"]) == 1
    assert "error[DFS115]" in capsys.readouterr().err


def test_show_has_the_values(wide: Workspace, capsys: Capture) -> None:
    assert run(["show", "stack.dfs", "-P", "ways=3"]) == 0
    shown = capsys.readouterr().out
    assert "stack_halves(ways = 3, share = 0.5): " in shown
    assert "expand[2]" in shown


def test_verify_takes_parameters_and_facts(wide: Workspace, capsys: Capture) -> None:
    words = ["-P", "share=0.25", "-F", "width=4", "--text-only", "--batch", "4"]
    assert run(["verify", "stack.dfs", *words]) == 0
    assert wide.compile(*words[:4]) == 0
    assert run(["verify", "stack.dfs", *words]) == 0
    # As `compile --check` does, it takes what the module was made with.
    assert run(["verify", "stack.dfs", *words[4:]]) == 0
    capsys.readouterr()
    assert run(["verify", "stack.dfs", "-P", "share=0.5", *words[4:]]) == 1
    assert "is stale" in capsys.readouterr().err


def test_a_file_of_parts_makes_no_module(wide: Workspace, capsys: Capture) -> None:
    assert run(["compile", "."]) == 0
    output = capsys.readouterr()
    assert output.out == "executors/stack_halves.py\n"
    assert "lib/parts.dfs: no schedule, so no module" in output.err
    assert run(["check", "lib/parts.dfs"]) == 0
    assert capsys.readouterr().err == "lib/parts.dfs: text and names are fine\n"


def test_messages_about_the_graph_show_both_files(
    wide: Workspace, capsys: Capture
) -> None:
    wide.change(wide.folder / "lib" / "parts.dfs", ".norm + .up", ".norm + .upward")
    assert run(["trace", "stack.dfs"]) == 0
    assert run(["check", "stack.dfs"]) == 1
    shown = capsys.readouterr().err
    assert "error[DFS201]" in shown
    assert "--> lib/parts.dfs:4:" in shown
    assert "::: stack.dfs:15:9" in shown
    assert "used here" in shown


def test_a_mistake_in_an_imported_file_is_shown_once(
    wide: Workspace, capsys: Capture
) -> None:
    wide.change(wide.folder / "lib" / "parts.dfs", "parts block:", "parts block")
    assert run(["check", "."]) == 1
    assert capsys.readouterr().err.count("error[DFS010]") == 1


def test_an_import_that_cannot_be_read_is_a_finding(
    wide: Workspace, capsys: Capture
) -> None:
    (wide.folder / "lib" / "parts.dfs").unlink()
    assert run(["check", "stack.dfs"]) == 1
    assert "stack.dfs:5:6" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "compile"])
def test_of_several_files_those_that_have_a_parameter_take_it(
    wide: Workspace, capsys: Capture, command: str
) -> None:
    (wide.folder / "other.dfs").write_text(OTHER)
    assert run([command, ".", "-P", "ways=3", "-P", "pieces=4"]) == 0
    if command == "compile":
        assert stored(wide)["given"]["parameters"] == {"ways": "3"}
        other = json.loads((wide.map.parent / "other.map.json").read_text())
        assert other["given"]["parameters"] == {"pieces": "4"}
    before = wide.files()
    capsys.readouterr()
    assert run([command, ".", "-P", "piece=3"]) == 1
    shown = capsys.readouterr().err
    assert shown.count("error[DFS102]: -P piece: no file has a parameter 'piece'") == 1
    assert "did you mean 'pieces'?" in shown
    assert wide.files() == before
