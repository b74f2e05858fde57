"""`torch.compile(model, backend="dynaflow")`, as a user calls it."""

from __future__ import annotations

import logging
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.foreign import import_module_file
from dynaflow_dsl.integrations import report
from dynaflow_dsl.integrations.dynamo import backend
from dynaflow_dsl.integrations.dynamo.backend import ScheduleWarning
from dynaflow_dsl.runtime import InputError
from dynaflow_dsl.trace import Entry, TraceSpec, trace
from tests.integrations.dynamo.compiling import compiled
from tests.integrations.dynamo.models import (
    HALVES,
    Caching,
    MarkedStack,
    Stack,
    evaluated,
    write,
)


def test_a_dimension_needs_its_name_and_nothing_else(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    for rows in (4, 5, 16):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), model(x))
        assert not [name for name in vars(x) if "dynamo" in name]
    (graph,) = report().graphs
    assert (graph.entry, graph.module) == ("forward", "executors/halves.py")
    layers = tuple(f"layers.{k}" for k in range(4))
    assert graph.parts == (("expand", layers), ("reduce", layers))


def test_a_dimension_that_the_caller_marks_needs_no_name(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path), dims={})
    x = torch.randn(6, 8)
    torch._dynamo.mark_dynamic(x, 0)
    torch.testing.assert_close(step(x), model(x))
    assert report().graphs[0].module is not None


class Scaled(Stack):
    """A model with a float and an integer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.places = 0.5, 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).roll(self.places, -1) * (self.scale + 1)


@pytest.mark.parametrize("dims", [{}, {"x": ("batch", None)}])
def test_dynamic_true_opens_sizes_and_no_numbers_of_the_model(
    dims: Any, tmp_path: Path
) -> None:
    """Another number is another graph to Dynamo, as without dynamic=True."""
    model = evaluated(Scaled())
    options = {"schedule": write(tmp_path), "compile": False, "dims": dims}
    step = torch.compile(model, backend="dynaflow", dynamic=True, options=options)
    for scale, places, rows in ((0.5, 3, 4), (0.5, 3, 6), (0.25, 3, 4), (0.25, 2, 4)):
        model.scale, model.places = scale, places
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), model(x))
    assert [each.entry for each in report().graphs] == [
        "forward",
        "forward_2",
        "forward_3",
    ]


def test_the_backend_and_load_give_the_same_bits(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    first = torch.randn(6, 8)
    step(first)
    module = import_module_file(tmp_path / "executors" / "halves.py")
    loaded = module.load(model, compile=False)
    for rows in (4, 5, 16):
        x = torch.randn(rows, 8)
        assert torch.equal(step(x), loaded(x))


def test_writes_lists_sizes_and_tensors_of_the_model(tmp_path: Path) -> None:
    model = evaluated(Caching())
    dims = {"x": ("batch", None), "caches.*": ("batch", None)}
    step = compiled(model, write(tmp_path), dims=dims, persistent=["caches"])
    for rows in (4, 7):
        x = torch.randn(rows, 8)
        mine = [torch.zeros(rows, 16), torch.ones(rows, 16)]
        theirs = [cache.clone() for cache in mine]
        got, wanted = step(x, mine), model(x, theirs)
        assert got[1] == wanted[1] == 2 * rows
        torch.testing.assert_close(got, wanted)
        torch.testing.assert_close(mine, theirs)
    assert len(report().graphs) == 1


def test_a_plain_tensor_of_the_model_may_be_written(tmp_path: Path) -> None:
    model = evaluated(Caching())
    dims = {"x": ("batch", None), "caches.*": ("batch", None)}
    step = compiled(model, write(tmp_path), dims=dims)
    x, caches = torch.randn(4, 8), [torch.zeros(4, 16), torch.zeros(4, 16)]
    step(x, caches)
    model.scale.fill_(3.0)
    got = step(x, [torch.zeros(4, 16), torch.zeros(4, 16)])
    torch.testing.assert_close(got, model(x, [torch.zeros(4, 16), torch.zeros(4, 16)]))


class Counting(Stack):
    """Dynamo's graph returns what is assigned to attributes, here what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen += self.calls
        return super().forward(x) * self.seen


def test_buffers_that_count_steps(tmp_path: Path) -> None:
    model, other = evaluated(Counting()), evaluated(Counting())
    step = compiled(model, write(tmp_path))
    buffers = list(model.buffers())
    for rows in (4, 6, 4):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), other(x))
        assert torch.equal(model.calls, other.calls)
        assert torch.equal(model.seen, other.seen)
        assert all(a is b for a, b in zip(buffers, model.buffers(), strict=True))
    assert [each.module for each in report().graphs] == ["executors/halves.py"]


LAYOUTS = {
    "transposed": lambda rows: torch.randn(8, rows).t(),
    "some columns": lambda rows: torch.randn(rows, 16)[:, :8],
    "some columns of any number": lambda rows: torch.randn(rows, 8 + rows)[:, rows:],
    "every other row": lambda rows: torch.randn(2 * rows, 8)[::2],
    "one row for all": lambda rows: torch.randn(8).expand(rows, 8),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_in_any_layout(layout: str, tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    for rows in (6, 5, 9):
        x = LAYOUTS[layout](rows)
        torch.testing.assert_close(step(x), model(x))
    assert {each.module for each in report().graphs} == {"executors/halves.py"}


def test_inputs_in_all_layouts(tmp_path: Path) -> None:
    """One after the other, where Dynamo opens strides as well."""
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    for rows, layout in enumerate(LAYOUTS.values(), 4):
        x = layout(rows)
        torch.testing.assert_close(step(x), model(x))
    assert {each.module for each in report().graphs} == {"executors/halves.py"}


def test_an_input_that_is_written_has_the_layout_of_executors(tmp_path: Path) -> None:
    model = evaluated(Caching())
    dims = {"x": ("batch", None), "caches.*": ("batch", None)}
    step = compiled(model, write(tmp_path), dims=dims)
    caches = [torch.zeros(16, 4).t(), torch.zeros(4, 16)]
    with pytest.raises(InputError, match=r"caches\[0\]"):
        step(torch.randn(4, 8), caches)
    assert not caches[0].any()


def test_sizes_that_were_equal_by_chance_are_compared_in_every_step(
    tmp_path: Path,
) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + y.sum()

    step = compiled(evaluated(Model()), write(tmp_path), dims={})
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(y, 0)
    step(x, y)
    with pytest.raises(InputError, match="batch"):
        step(x, torch.randn(6, 8))


def test_a_function_that_calls_a_model(tmp_path: Path) -> None:
    model = evaluated(Stack())

    def forward(x: torch.Tensor) -> torch.Tensor:
        return model(x) * 2

    step = compiled(forward, write(tmp_path))
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), forward(x))
    assert report().graphs[0].function.endswith("forward")


def test_a_model_that_compiles_itself_in_place(tmp_path: Path) -> None:
    model = evaluated(Stack())
    x = torch.randn(4, 8)
    wanted = model(x)
    options = {
        "schedule": write(tmp_path),
        "compile": False,
        "dims": {"x": ("batch", None)},
    }
    model.compile(backend="dynaflow", options=options)
    torch.testing.assert_close(model(x), wanted)
    assert report().graphs[0].module is not None


THREE_WAYS = """dfs 1

schedule ways:
    stream side

    split batch into 2 as half

    each layer in .layers.*:
        part open on side = .norm + ("function:*.widened" in .)
        part middle = "mark:activation" in .
        part close = rest

        order:
            open[0]
            open[1] | middle[0]
            middle[1]
            close[0]
            close[1]
"""


def test_paths_functions_and_marks_name_parts(tmp_path: Path) -> None:
    model = evaluated(MarkedStack())
    step = compiled(model, write(tmp_path, THREE_WAYS))
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))
    assert [name for name, _ in report().graphs[0].parts] == ["open", "middle", "close"]


def test_both_captures_make_one_module(tmp_path: Path) -> None:
    schedule = write(tmp_path, THREE_WAYS)
    model = evaluated(MarkedStack())
    compiled(model, schedule)(torch.randn(4, 8))
    file = pipeline.read_schedule("halves.dfs").unwrap()
    spec = TraceSpec(
        model=model,
        entries={"forward": Entry(lambda sizes: (torch.ones(sizes["batch"], 8),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (2, None)},
    )
    exported = pipeline.compile_schedules(file, trace(spec, "", {}).unwrap()).unwrap()
    captured = Path("executors/ways.py").read_text()
    assert captured == exported.text.replace(" · export, ", " · dynamo, ")


@pytest.mark.slow
def test_parts_are_compiled(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path), compile=True, cache=str(tmp_path / "cache"))
    for rows in (4, 6):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), model(x))
    with torch.inference_mode():
        torch.testing.assert_close(step(x), model(x))


def test_the_log_says_what_became_of_a_graph(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    step = compiled(evaluated(Stack()), write(tmp_path))
    with caplog.at_level(logging.INFO, logger="dynaflow_dsl"):
        step(torch.randn(4, 8))
    assert "entry forward: executors/halves.py" in caplog.text
    assert str(report()).splitlines()[0] == "1 graph, 1 scheduled"


def test_what_has_no_effect_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = HALVES.replace("stream side\n", "stream side (priority = high)\n")
    step = compiled(evaluated(Stack()), write(tmp_path, text))
    with caplog.at_level(logging.WARNING, logger="dynaflow_dsl"):
        step(torch.randn(4, 8))
    assert "priority" in caplog.text


def test_what_does_not_fit_may_be_left_to_inductor(tmp_path: Path) -> None:
    text = HALVES.replace(".norm", ".nrom")
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path, text), strict=False)
    x = torch.randn(4, 8)
    with pytest.warns(ScheduleWarning, match=r"DFS201(.|\n)*nrom"):
        got = step(x)
    torch.testing.assert_close(got, model(x))
    (graph,) = report().graphs
    assert graph.module is None
    assert [each.code for each in graph.diagnostics] == ["DFS201"]


def test_what_does_not_fit_is_compiled_as_dynamo_would_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes that `dims` opens make slower code, and are of use to a schedule alone."""
    shapes: list[tuple[object, ...]] = []
    real = backend.by_inductor

    def noting(graph: Any, examples: list[Any]) -> Any:
        shapes.extend(
            tuple(one.shape)
            for node in graph.graph.nodes
            if node.op == "placeholder"
            and isinstance(one := node.meta["example_value"], torch.Tensor)
            and one.shape[-1:] == (8,)
            and one.ndim == 2
        )
        return real(graph, examples)

    monkeypatch.setattr(backend, "by_inductor", noting)
    text = HALVES.replace(".norm", ".nrom")
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path, text), strict=False)
    x = torch.randn(4, 8)
    with pytest.warns(ScheduleWarning, match="nrom") as told:
        got = step(x)
    torch.testing.assert_close(got, model(x))
    assert len([one for one in told if one.category is ScheduleWarning]) == 1
    assert (4, 8) in shapes
    assert all(type(size) is int for shape in shapes for size in shape)
    assert not [name for name in vars(x) if "dynamo" in name]
    # Another size comes along as it would, and what fits is opened as before.
    larger = torch.randn(6, 8)
    with pytest.warns(ScheduleWarning, match="nrom"):
        torch.testing.assert_close(step(larger), model(larger))
    other = evaluated(Stack())
    (tmp_path / "other").mkdir()
    fitting = compiled(other, write(tmp_path / "other"), strict=False)
    for given in (x, larger):
        torch.testing.assert_close(fitting(given), other(given))
    assert report().graphs[-1].module is not None


class ReadingAStride(Stack):
    """Reads a stride, which is no input of a step, of what lies apart."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_contiguous():
            x = x * x.stride(0)
        return super().forward(x)


def test_a_frame_that_could_not_be_read_leaves_the_next_one_alone(
    tmp_path: Path,
) -> None:
    model = evaluated(ReadingAStride())
    step = compiled(model, write(tmp_path), strict=False)
    apart = torch.randn(4, 16)[:, :8]
    with pytest.warns(ScheduleWarning):
        torch.testing.assert_close(step(apart), model(apart))
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))
    assert [one.module is None for one in report().graphs] == [True, False]


def test_marks_of_other_axes_stay(tmp_path: Path) -> None:
    step = compiled(evaluated(Stack()), write(tmp_path))
    x = torch.randn(4, 8)
    torch._dynamo.mark_static(x, 1)
    before = {name: copy(value) for name, value in vars(x).items()}
    step(x)
    assert vars(x) == before


def test_marks_of_the_caller_stay(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    torch._dynamo.mark_dynamic(x, 0)
    before = set(vars(x))
    step(x)
    assert set(vars(x)) == before


def test_a_compiled_model_inside_another(tmp_path: Path) -> None:
    """Schedules speak of the model that was given to `torch.compile`."""

    class Outer(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) * 2

    model = evaluated(Stack())
    outer = Outer(compiled(model, write(tmp_path)))
    x = torch.randn(4, 8)
    torch.testing.assert_close(outer(x), model(x) * 2)
    assert report().graphs[0].parts[0][1][0] == "layers.0"


def test_the_forward_of_a_model(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model.forward, write(tmp_path))
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))
    assert report().graphs[0].function == "Stack.forward"


def test_tensors_in_dictionaries_and_keywords(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, batch: Any, *, scale: torch.Tensor) -> Any:
            return {"y": super().forward(batch["x"]) * scale, "mask": batch["mask"]}

    model = evaluated(Model())
    dims = {"batch_x": ("batch", None)}
    step = compiled(model, write(tmp_path), dims=dims)
    batch = {"x": torch.randn(4, 8), "mask": torch.ones(4)}
    scale = torch.full((1,), 3.0)
    torch.testing.assert_close(step(batch, scale=scale), model(batch, scale=scale))
    module = import_module_file(Path("executors/halves.py"))
    loaded = module.load(model, compile=False)
    assert tuple(type(loaded).inputs) == ("batch_x", "scale")


def test_a_report_of_one_model(tmp_path: Path) -> None:
    first, second = evaluated(Stack()), evaluated(MarkedStack())
    steps = [
        compiled(
            each,
            write(tmp_path),
            dims={"x": ("batch", None)},
            module=f"executors/{name}.py",
        )
        for name, each in (("one", first), ("two", second))
    ]
    for step in steps:
        step(torch.randn(4, 8))
    of_first, of_second = report(first).graphs, report(second).graphs
    assert (len(of_first), len(of_second)) == (1, 1)
    assert report(steps[1]).graphs == of_second
    assert report().graphs == (*of_first, *of_second)
    assert report(evaluated(Stack())).graphs == ()
