"""What the backend refuses, in which words, and what it leaves alone."""

from __future__ import annotations

import hashlib
import json
import re
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.integrations import report
from dynaflow_dsl.integrations.dynamo.backend import ScheduleWarning
from tests.integrations.dynamo.models import HALVES, Stack, evaluated, write


def step(**options: Any) -> Any:
    options = {"compile": False, "dims": {"x": ("batch", None)}, **options}
    return torch.compile(evaluated(Stack()), backend="dynaflow", options=options)


def refused(called: Any, rows: int = 4) -> Diagnostic:
    with pytest.raises(DiagnosticError) as raised:
        called(torch.randn(rows, 8))
    first, *_ = raised.value.diagnostics
    return first


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, 'the backend "dynaflow" needs a schedule'),
        (
            {"schedule": "h.dfs", "shedule": 1},
            "the backend \"dynaflow\" has no option 'shedule'",
        ),
        (
            {"schedule": 3},
            "the option 'schedule' is 3; it must be the path of a file",
        ),
        (
            {"schedule": "h.dfs", "strict": 1},
            "the option 'strict' is 1; it must be True or False",
        ),
        (
            {"schedule": "h.dfs", "write": "often"},
            "the option 'write' is 'often'; it must be one of 'missing', 'always', "
            "'never'",
        ),
        (
            {"schedule": "h.dfs", "dims": {"x": "batch"}},
            "the option \"dims['x']\" is 'batch'; it must be names of axes, such as "
            '("batch", None)',
        ),
        (
            {"schedule": "h.dfs", "dimensions": {"batch": 4}},
            "the option \"dimensions['batch']\" is 4; it must be the lowest and the "
            "highest size, or None",
        ),
        (
            {"schedule": "h.dfs", "facts": {"tp_size": [2]}},
            "the option \"facts['tp_size']\" is [2]; it must be a number, a string or "
            "a truth value",
        ),
        (
            {"schedule": "h.dfs", "persistent": "keys"},
            "the option 'persistent' is 'keys'; it must be a dictionary by name",
        ),
        (
            {"schedule": "h.dfs", "entries": {"de code": {}}},
            "the option 'entries' is 'de code'; it must be a table by names that are "
            "identifiers",
        ),
        (
            {"schedule": "h.dfs", "disjoint": "keys"},
            "the option 'disjoint' is 'keys'; it must be a list of names",
        ),
    ],
)
def test_options(options: Any, said: str) -> None:
    called = torch.compile(evaluated(Stack()), backend="dynaflow", options=options)
    found = refused(called)
    assert (found.code, found.message) == ("DFS820", said)


def test_an_option_that_is_nearly_right() -> None:
    found = refused(step(schedule="h.dfs", strickt=True))
    did_you_mean, known = found.helps
    assert did_you_mean == "did you mean 'strict'?"
    assert known.startswith("its options: schedule, module, write, ")


@pytest.mark.parametrize(
    ("options", "way"),
    [
        (
            {"dimensions": {"x": ("batch", None)}},
            "names of an input's axes are given by the option 'dims'",
        ),
        (
            {"dims": {"batch": (2, 64)}},
            "bounds of a dimension are given by the option 'dimensions'",
        ),
    ],
)
def test_two_options_that_are_easily_confused(options: Any, way: str) -> None:
    assert refused(step(schedule="h.dfs", **options)).helps == (way,)


@pytest.mark.parametrize("dims", [{}, {"x": ("batch", "tokens", None)}])
def test_an_entry_of_a_size_that_nothing_has(dims: Any) -> None:
    options = {"dims": dims, "entries": {"decode": {"tokns": 1}, "prefill": {}}}
    found = refused(step(schedule="h.dfs", **options))
    assert (found.code, found.message) == (
        "DFS820",
        "the option 'entries' has a size of tokns for 'decode', and 'dims' names no "
        "such axis",
    )
    assert ("did you mean 'tokens'?" in found.helps) == bool(dims)


def test_a_module_is_a_python_file_or_a_folder(tmp_path: Path) -> None:
    found = refused(step(schedule=write(tmp_path), module="x.txt"))
    assert (found.code, found.message) == (
        "DFS820",
        "the option 'module' is 'x.txt'; it must be a file that ends in .py, or a "
        "folder",
    )
    assert not Path("x.txt").exists()
    Path("version.1").mkdir()
    step(schedule=write(tmp_path), module="version.1")(torch.randn(4, 8))
    assert Path("version.1/halves.py").exists()


def test_a_mode() -> None:
    called = torch.compile(evaluated(Stack()), backend="dynaflow", mode="max-autotune")
    found = refused(called)
    assert found.message.startswith(
        "the backend \"dynaflow\" has no mode 'max-autotune'"
    )


def test_a_schedule_that_is_not_there() -> None:
    found = refused(step(schedule="missing.dfs"))
    assert found.code == "DFS113"
    assert not Path("executors").exists()


def test_a_message_has_its_place_and_no_frame_of_torch(tmp_path: Path) -> None:
    called = step(schedule=write(tmp_path, HALVES.replace(".norm", ".nrom")))
    with pytest.raises(DiagnosticError) as raised:
        called(torch.randn(4, 8))
    text = str(raised.value)
    assert "error[DFS201]" in text
    assert "--> halves.dfs:9:" in text
    assert "did you mean" in text
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert not [each for each in frames if "convert_frame" in each.filename]
    assert not Path("executors").exists()


def test_several_schedules_and_nothing_that_chooses(tmp_path: Path) -> None:
    two = HALVES + HALVES.replace("dfs 1\n", "").replace("halves", "others")
    found = refused(step(schedule=write(tmp_path, two)))
    assert found.code == "DFS821"
    assert found.message.endswith("has 2 schedules, and nothing chooses between them")
    assert found.primary is not None
    assert found.primary.span.text == "others"


def test_a_file_without_schedules(tmp_path: Path) -> None:
    found = refused(step(schedule=write(tmp_path, "dfs 1\n")))
    assert found.code == "DFS821"
    assert found.message.endswith("halves.dfs has no schedule")
    assert found.primary is not None
    assert str(found.primary.span).endswith("halves.dfs:1:1")


def in_the_model(found: Diagnostic) -> bool:
    """Whether a message says in which function it was found."""
    place = r"in a call of Stack\.forward \(.*dynamo/models\.py:\d+\)"
    return any(re.fullmatch(place, note) for note in found.notes)


def test_gradients(tmp_path: Path) -> None:
    called = step(schedule=write(tmp_path))
    with torch.enable_grad():
        found = refused(called)
    assert (found.code, found.message) == (
        "DFS821",
        "the model is called with gradients on, and executors have none",
    )
    assert in_the_model(found)
    # The same model without them is another graph to Dynamo.
    called(torch.randn(4, 8))
    assert [each.module for each in report().graphs] == [None, "executors/halves.py"]


def test_gradients_may_be_left_to_inductor(tmp_path: Path) -> None:
    called = step(schedule=write(tmp_path), strict=False)
    x = torch.randn(4, 8)
    with (
        torch.enable_grad(),
        pytest.warns(ScheduleWarning, match="gradients on"),
    ):
        called(x).sum().backward()
    (graph,) = report().graphs
    assert graph.module is None


def test_casts_that_are_not_in_the_graph(tmp_path: Path) -> None:
    called = step(schedule=write(tmp_path))
    with torch.autocast("cpu", torch.bfloat16):
        found = refused(called)
    assert found.code == "DFS821"
    assert found.message.startswith("the model is called under torch.autocast")
    assert in_the_model(found)


def test_a_model_in_training_mode(tmp_path: Path) -> None:
    model = evaluated(Stack()).train()
    options = {"schedule": write(tmp_path), "dims": {"x": ("batch", None)}}
    called = torch.compile(model, backend="dynaflow", options=options)
    assert refused(called).message.startswith("the model is in training mode")


def test_a_dimension_that_nothing_names(tmp_path: Path) -> None:
    found = refused(step(schedule=write(tmp_path), dims={}))
    assert found.code == "DFS821"
    assert found.primary is not None
    assert found.primary.span.text == "split batch into 2 as half"
    assert found.helps[0] == (
        'say where it is: options={"dims": {"x": ("batch", None)}}'
    )


def test_a_number_that_differs_between_calls(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
            return super().forward(x) * scale

    options = {"schedule": write(tmp_path), "dims": {"x": ("batch", None)}}
    called = torch.compile(
        evaluated(Model()), backend="dynaflow", dynamic=True, options=options
    )
    with pytest.raises(DiagnosticError) as raised:
        called(torch.randn(4, 8), 0.5)
    (found,) = raised.value.diagnostics
    assert found.message.startswith("'scale' is a number that differs between calls")
    assert "dynamic=True" in found.helps[1]


def test_the_line_of_a_call_of_what_is_all_torch(tmp_path: Path) -> None:
    """A place in the code of `nn.Sequential` would help nobody."""
    model = torch.nn.Sequential(*evaluated(Stack()).layers)
    options = {"schedule": write(tmp_path), "dims": {"inputs": ("batch", None)}}
    found = refused(torch.compile(model, backend="dynaflow", options=options))
    assert found.message.startswith("'dims' names 'inputs'")
    (note,) = found.notes
    place = r"in a call of Sequential\.forward \(.*dynamo/test_refusals\.py:\d+\)"
    assert re.fullmatch(place, note)


def test_a_stride_that_the_code_reads(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * x.stride(0)

    options = {"schedule": write(tmp_path), "dims": {"x": ("batch", None)}}
    called = torch.compile(evaluated(Model()), backend="dynaflow", options=options)
    with pytest.raises(DiagnosticError) as raised:
        called(torch.randn(4, 16)[:, :8])
    (found,) = raised.value.diagnostics
    assert found.message.startswith(
        "the model's code reads the stride of axis 0 of 'x', which differs"
    )
    assert found.helps == ("call the model with x.contiguous()",)


def test_a_dimension_that_the_code_fixes(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.ones(4, 8)

    options = {"schedule": write(tmp_path), "dims": {"x": ("batch", None)}}
    called = torch.compile(evaluated(Model()), backend="dynaflow", options=options)
    found = refused(called)
    assert found.message == (
        "batch is fixed to 4 in this graph: the model's code needs it to be 4"
    )


def test_rows_that_depend_on_each_other(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
                x = x - x.mean(0)
            return x

    options = {"schedule": write(tmp_path), "dims": {"x": ("batch", None)}}
    called = torch.compile(evaluated(Model()), backend="dynaflow", options=options)
    assert refused(called).code == "DFS601"


def test_a_break_inside_of_a_layer_is_said_beside_what_is_wrong(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = self.layers[0]
            y = first.up(first.norm(x))
            torch._dynamo.graph_break()
            return x + first.down(torch.relu(y))

    options = {"schedule": write(tmp_path), "dims": {"x": ("batch", None)}}
    called = torch.compile(evaluated(Model()), backend="dynaflow", options=options)
    found = refused(called)
    assert any(
        note.startswith("this graph ends in a graph break:") for note in found.notes
    )


# ---- files that are there already ----------------------------------------------------


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
