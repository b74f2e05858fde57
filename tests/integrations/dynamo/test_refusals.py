"""What the backend refuses, in which words, and what it leaves alone."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.integrations import report
from dynaflow_dsl.integrations.dynamo.backend import ScheduleWarning
from tests.integrations.dynamo.compiling import refused, step
from tests.integrations.dynamo.models import HALVES, Stack, evaluated, write


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
    ("name", "way"),
    [
        ("mode", "there are no modes: a schedule says what is captured"),
        ("fullgraph", "it is an argument of torch.compile itself"),
        ("max_autotune", "options of Inductor are set in torch._inductor.config"),
    ],
)
def test_options_of_somebody_else(name: str, way: str) -> None:
    found = refused(step(schedule="h.dfs", **{name: True}))
    assert (found.code, found.helps[0]) == ("DFS820", way)


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({"y": ("batch", None)}, "the option 'dims' names 'y', and the inputs of"),
        (
            {"x": ("batch",)},
            "the option 'dims' gives 'x' 1 axes, and it has 2",
        ),
        ({"x": "batch"}, "the option \"dims['x']\" is 'batch'; it must be names"),
    ],
)
def test_dims_have_one_code_whatever_is_wrong_with_them(
    dims: Any, said: str, tmp_path: Path
) -> None:
    found = refused(step(schedule=write(tmp_path), dims=dims))
    assert found.code == "DFS820"
    assert found.message.startswith(said)


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


@pytest.mark.parametrize(
    ("names", "way"),
    [
        (("batch",), '"x": ("batch", None)'),
        ((), '"x": (None, None)'),
        ((None, "batch", None), '"x": (None, "batch")'),
        (("batch", "width", "batch"), '"x": ("batch", "width")'),
    ],
)
def test_names_of_axes_are_kept_where_there_are_too_few_or_too_many(
    names: Any, way: str, tmp_path: Path
) -> None:
    found = refused(step(schedule=write(tmp_path), dims={"x": names}))
    assert found.helps == (f"a name or None for each axis: {way}",)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            {"ways": "many"},
            'options["parameters"]["ways"]=many: this must be a whole number of at '
            "most 18 digits",
        ),
        ({"wais": 3}, 'options["parameters"]["wais"]: there is no parameter \'wais\''),
    ],
)
def test_a_parameter_is_named_as_it_was_given(
    parameters: Any, said: str, tmp_path: Path
) -> None:
    text = HALVES.replace("halves:", "halves(ways = 2):").replace("into 2", "into ways")
    path = write(tmp_path, text)
    assert refused(step(schedule=path, parameters=parameters)).message == said


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
    assert found.message.startswith("the option 'dims' names 'inputs'")
    (note,) = found.notes
    place = r"in a call of Sequential\.forward \(.*dynamo/compiling\.py:\d+\)"
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


def test_an_axis_that_dims_takes_for_another_one(tmp_path: Path) -> None:
    options = {"schedule": write(tmp_path), "dims": {"x": (None, "batch")}}
    called = torch.compile(evaluated(Stack()), backend="dynaflow", options=options)
    found = refused(called)
    assert found.code == "DFS821"
    assert found.primary is not None
    assert found.notes == ("'dims' says that axis 1 of 'x' is batch",)
    assert found.helps[1] == "or, if it is no batch, name another axis in 'dims'"


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
