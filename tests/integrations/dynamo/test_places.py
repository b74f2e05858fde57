"""Modules that are there already: which are used, written over, and left alone."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import torch

from dynaflow_dsl.integrations.dynamo.backend import ScheduleWarning
from tests.integrations.dynamo.compiling import refused, step
from tests.integrations.dynamo.models import HALVES, Stack, evaluated, write


def module() -> Path:
    return Path("executors/halves.py")


def made(tmp_path: Path) -> str:
    """A schedule whose module was written."""
    schedule = write(tmp_path)
    step(schedule=schedule)(torch.randn(4, 8))
    torch._dynamo.reset()
    return schedule


def test_a_module_that_is_current_is_used_as_it_is(tmp_path: Path) -> None:
    schedule = made(tmp_path)
    before = module().stat().st_mtime_ns
    step(schedule=schedule, write="never")(torch.randn(4, 8))
    assert module().stat().st_mtime_ns == before


def test_lines_of_the_program_may_move(tmp_path: Path) -> None:
    """The same graph from another place: the map follows, unless nothing is written."""
    schedule = made(tmp_path)
    found = module().with_suffix(".map.json")
    text = found.read_text()
    moved = re.sub(r'("source": ".*?\.py:)\d+: ', r"\g<1>1234: ", text)
    assert moved != text
    found.write_text(moved)
    step(schedule=schedule, write="never")(torch.randn(4, 8))
    assert found.read_text() == moved
    torch._dynamo.reset()
    step(schedule=schedule)(torch.randn(4, 8))
    assert found.read_text() == text


def test_a_module_that_may_not_be_written(tmp_path: Path) -> None:
    found = refused(step(schedule=write(tmp_path), write="never"))
    assert (found.code, found.message) == (
        "DFS501",
        "executors/halves.py is missing",
    )
    assert not module().exists()


def test_a_map_that_another_rank_is_about_to_write(tmp_path: Path) -> None:
    schedule = made(tmp_path)
    found = module().with_suffix(".map.json")
    text = found.read_bytes()
    found.unlink()
    step(schedule=schedule)(torch.randn(4, 8))
    assert found.read_bytes() == text


def test_a_module_of_another_schedule_is_stale(tmp_path: Path) -> None:
    made(tmp_path)
    before = module().read_bytes()
    schedule = write(tmp_path, HALVES.replace("into 2", "into 3"))
    found = refused(step(schedule=schedule))
    assert found.code == "DFS501"
    assert "stale" in found.message
    assert module().read_bytes() == before
    step(schedule=schedule, write="always")(torch.randn(4, 8))
    assert module().read_bytes() != before


def test_a_module_that_was_edited_is_not_written_over(tmp_path: Path) -> None:
    schedule = made(tmp_path)
    module().write_text(module().read_text() + "# mine\n")
    for write_ in ("missing", "always"):
        found = refused(step(schedule=schedule, write=write_))
        assert found.code == "DFS504"
        torch._dynamo.reset()
    assert module().read_text().endswith("# mine\n")


def test_without_its_map_a_module_may_have_been_edited(tmp_path: Path) -> None:
    schedule = made(tmp_path)
    module().with_suffix(".map.json").unlink()
    module().write_text(module().read_text() + "# mine\n")
    for write_ in ("missing", "always"):
        found = refused(step(schedule=schedule, write=write_))
        assert found.message == "the map of executors/halves.py is missing"
        assert found.helps == (
            "delete the module to have both written again; edits of it are lost",
        )
        torch._dynamo.reset()
    assert module().read_text().endswith("# mine\n")


def test_a_file_that_nobody_generated(tmp_path: Path) -> None:
    module().parent.mkdir()
    module().write_text("mine = 1\n")
    found = refused(step(schedule=write(tmp_path), write="always"))
    assert found.message == "executors/halves.py is not a generated module"
    assert module().read_text() == "mine = 1\n"


@pytest.mark.parametrize("write_when", ["missing", "always"])
def test_a_file_where_the_map_belongs(write_when: str, tmp_path: Path) -> None:
    place = module().with_suffix(".map.json")
    place.parent.mkdir()
    place.write_text('{"mine": 1}')
    found = refused(step(schedule=write(tmp_path), write=write_when))
    assert found.message == (
        "executors/halves.map.json is not the map of a generated module"
    )
    assert place.read_text() == '{"mine": 1}'
    assert not module().exists()


@pytest.mark.parametrize("write_when", ["missing", "always"])
def test_a_module_that_was_deleted_without_its_map(
    write_when: str, tmp_path: Path
) -> None:
    made(tmp_path)
    module().unlink()
    schedule = write(tmp_path, HALVES.replace("into 2", "into 3"))
    step(schedule=schedule, write=write_when)(torch.randn(6, 8))
    assert module().exists()


def test_a_module_of_something_else(tmp_path: Path) -> None:
    """What `dfsc compile` or `schedule` made for a model of the same file."""
    schedule = made(tmp_path)
    found = module().with_suffix(".map.json")
    document = json.loads(found.read_text())
    document["target"] = {"name": "targets.py:stack", "arguments": {}}
    found.write_text(json.dumps(document))
    module().write_bytes(
        before := module().read_bytes().replace(b" dynamo", b" export")
    )
    document["body"] = hashlib.sha256(before).hexdigest()
    found.write_text(json.dumps(document))
    for write_ in ("missing", "always"):
        clash = refused(step(schedule=schedule, write=write_))
        assert (clash.code, clash.message) == (
            "DFS507",
            "executors/halves.py is the module of the trace target targets.py:stack, "
            "and a program's torch.compile makes another one of this name",
        )
        assert 'the option "module" of the backend' in clash.helps[0]
        torch._dynamo.reset()
    assert module().read_bytes() == before
    step(schedule=schedule, module="executors/compiled.py")(torch.randn(4, 8))
    assert Path("executors/compiled.py").exists()


class Wide(Stack):
    """Another model of the same layers."""

    def __init__(self) -> None:
        super().__init__(2)


@pytest.mark.parametrize("write_", ["missing", "always"])
def test_two_models_and_one_place(tmp_path: Path, write_: str) -> None:
    """Each would find the other's module stale in every run of the program."""
    options = {"schedule": write(tmp_path), "dims": {"x": ("batch", None)}}
    options |= {"compile": False, "write": write_, "module": "made/mine.py"}
    first = evaluated(Stack())
    step_ = torch.compile(first, backend="dynaflow", options=options)
    x = torch.randn(4, 8)
    step_(x)
    before = Path("made/mine.py").read_bytes()
    second = evaluated(Wide())
    found = refused(torch.compile(second, backend="dynaflow", options=options))
    assert (found.code, found.message) == (
        "DFS507",
        "made/mine.py is the module of another Stack of this program, and this model "
        "makes another one of this name",
    )
    assert found.helps == (
        'give this model a place of its own: options={"module": "made/mine_2.py"}',
    )
    assert Path("made/mine.py").read_bytes() == before
    options["module"] = "made/mine_2.py"
    torch.testing.assert_close(
        torch.compile(second, backend="dynaflow", options=options)(x), second(x)
    )
    torch.testing.assert_close(step_(x), first(x))


def test_two_models_of_which_the_first_is_gone(tmp_path: Path) -> None:
    made(tmp_path)
    schedule = str(tmp_path / "halves.dfs")
    options = {"schedule": schedule, "dims": {"x": ("batch", None)}, "compile": False}
    called = torch.compile(evaluated(Wide()), backend="dynaflow", options=options)
    found = refused(called)
    assert found.code == "DFS502"
    assert found.helps[-1] == (
        "or, if it is the module of another model, give this one a place of its own: "
        'options={"module": "executors/halves_2.py"}'
    )
    options["write"] = "always"
    torch.compile(evaluated(Wide()), backend="dynaflow", options=options)(
        torch.randn(4, 8)
    )


def test_a_module_that_is_written_over_while_it_runs(tmp_path: Path) -> None:
    """A model keeps the module that was made for it, also for other weights."""
    model = evaluated(Stack())
    options = {"schedule": write(tmp_path), "dims": {"x": ("batch", None)}}
    options |= {"compile": False, "write": "always"}
    step_ = torch.compile(model, backend="dynaflow", options=options)
    x = torch.randn(4, 8)
    step_(x)
    module().write_text("raise RuntimeError('this is another module')\n")
    model.load_state_dict(evaluated(Stack()).state_dict(), assign=True)
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    torch.testing.assert_close(step_(x), model(x))


def test_a_stale_module_may_be_left_to_inductor(tmp_path: Path) -> None:
    made(tmp_path)
    schedule = write(tmp_path, HALVES.replace("into 2", "into 3"))
    with pytest.warns(ScheduleWarning, match="DFS501"):
        step(schedule=schedule, strict=False)(torch.randn(4, 8))


def test_the_place_of_a_module(tmp_path: Path) -> None:
    schedule = write(tmp_path)
    step(schedule=schedule, module="generated/mine.py")(torch.randn(4, 8))
    assert Path("generated/mine.py").exists()
    assert Path("generated/mine.map.json").exists()
