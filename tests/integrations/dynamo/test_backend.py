"""`torch.compile(model, backend="dynaflow")`, as a user calls it."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl.cli.foreign import import_module_file
from dynaflow_dsl.integrations import report
from dynaflow_dsl.integrations.dynamo.backend import ScheduleWarning
from dynaflow_dsl.runtime import InputError
from tests.integrations.dynamo.models import (
    HALVES,
    Caching,
    MarkedStack,
    Stack,
    evaluated,
    without_numbers,
    write,
)


def compiled(model: Any, schedule: str, **options: Any) -> Any:
    """Eager executors, unless a test asks for more: what is compared is bits."""
    options = {"compile": False, "dims": {"x": ("batch", None)}, **options}
    return torch.compile(
        model, backend="dynaflow", options={"schedule": schedule, **options}
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


def test_a_batch_of_one_is_too_small_for_pieces(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    for rows in (1, 4, 1):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), model(x))
    first, second = report().graphs
    assert first.reason == "batch is 1 in it, too few for the pieces of the split"
    assert second.module is not None


def test_a_batch_of_one_is_known_from_earlier_graphs(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path), dims={})
    x = torch.randn(6, 8)
    torch._dynamo.mark_dynamic(x, 0)
    step(x)
    one = torch.randn(1, 8)
    torch.testing.assert_close(step(one), model(one))
    assert report().graphs[1].module is None


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


def test_inputs_in_any_layout(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    x = torch.randn(8, 6).t()
    torch.testing.assert_close(step(x), model(x))


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


def test_weights_that_are_replaced_are_seen(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    step(x)
    with torch.no_grad():
        model.layers[1].up.weight.mul_(2.0)
    torch.testing.assert_close(step(x), model(x))
    model.layers[2].down.weight = nn.Parameter(torch.randn(8, 16))
    torch.testing.assert_close(step(x), model(x))
    model.layers[2].up.weight.data = torch.randn(16, 8)
    torch.testing.assert_close(step(x), model(x))
    model.load_state_dict(evaluated(Stack()).state_dict(), assign=True)
    torch.testing.assert_close(step(x), model(x))


def test_two_models_of_one_class(tmp_path: Path) -> None:
    schedule = write(tmp_path)
    one, other = evaluated(Stack()), evaluated(Stack())
    with torch.no_grad():
        other.layers[0].up.weight.mul_(3.0)
    steps = [compiled(model, schedule) for model in (one, other)]
    x = torch.randn(4, 8)
    for _ in range(2):
        for step, model in zip(steps, (one, other), strict=True):
            torch.testing.assert_close(step(x), model(x))


def test_weights_that_are_tied_stay_tied(tmp_path: Path) -> None:
    model = Stack()
    model.layers[1].up.weight = model.layers[0].up.weight
    evaluated(model)
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))
    model.layers[0].up.weight = nn.Parameter(torch.randn(16, 8))
    model.layers[1].up.weight = model.layers[0].up.weight
    torch.testing.assert_close(step(x), model(x))


def test_another_guard_set_takes_the_executor_that_there_is(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    outside = step(x)
    with torch.inference_mode():
        inside = step(torch.randn(4, 8)), step(x)
    assert torch.equal(outside, inside[1])
    with torch.enable_grad():
        model.requires_grad_(False)
        assert torch.equal(step(x), outside)
    reports = report().graphs
    assert [each.reused for each in reports] == [False, *[True] * (len(reports) - 1)]
    assert len(reports) > 1
    assert {each.module for each in reports} == {"executors/halves.py"}


def test_entries_by_their_fixed_sizes(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x * x.shape[1])

    model = evaluated(Model())
    options = {
        "dims": {"x": ("batch", "tokens", None)},
        "entries": {"decode": {"tokens": 1}, "prefill": {}},
    }
    step = compiled(model, write(tmp_path), **options)
    for tokens in (6, 1, 6):
        x = torch.randn(4, tokens, 8)
        torch.testing.assert_close(step(x), model(x))
    assert [(each.entry, each.module) for each in report().graphs] == [
        ("prefill", "executors/halves_prefill.py"),
        ("decode", "executors/halves_decode.py"),
    ]


def test_graphs_that_differ_are_numbered(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor, twice: bool = False) -> torch.Tensor:
            x = super().forward(x)
            return x * 2 if twice else x

    model = evaluated(Model())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    for twice in (False, True, False):
        torch.testing.assert_close(step(x, twice=twice), model(x, twice=twice))
    assert [(each.entry, each.module) for each in report().graphs] == [
        ("forward", "executors/halves.py"),
        ("forward_2", "executors/halves_forward_2.py"),
    ]


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


PROGRAM = """
import torch
from dynaflow_dsl.integrations.dynamo.backend import register
from tests.integrations.dynamo.models import Stack, evaluated

register()
step = torch.compile(
    evaluated(Stack()),
    backend="dynaflow",
    options={"schedule": "halves.dfs", "compile": False, "module": MODULE,
             "dims": {"x": ("batch", None)}},
)
with torch.no_grad():
    step(torch.randn(4, 8))
"""


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path)
    for number in (1, 2):
        run(PROGRAM.replace("MODULE", repr(f"out_{number}")), seed=number)
    for name in ("halves.py", "halves.map.json"):
        one, other = (tmp_path / f"out_{n}" / name for n in (1, 2))
        assert one.read_bytes() == other.read_bytes()
    second_line = (tmp_path / "out_1" / "halves.py").read_text().splitlines()[1]
    assert second_line.endswith("dynamo, float32, cpu")


def run(program: str, seed: int = 0, path: str = "") -> None:
    root = str(Path(__file__).parents[3])
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={
            "PYTHONPATH": f"{root}:{path}" if path else root,
            "PYTHONHASHSEED": str(seed),
            "PATH": "",
            "HOME": str(Path.cwd()),
        },
    )


def test_an_installation_makes_the_backend_known(tmp_path: Path) -> None:
    """The entry point alone, as an installed package has it."""
    write(tmp_path)
    folder = tmp_path / "installed" / "dynaflow_test-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Name: dynaflow-test\nVersion: 1\n")
    (folder / "entry_points.txt").write_text(
        "[torch_dynamo_backends]\n"
        "dynaflow = dynaflow_dsl.integrations.dynamo.backend:dynaflow\n"
    )
    program = PROGRAM.replace("MODULE", "'out'")
    program = program.replace("register()\n", "", 1)
    program = "\n".join(
        line for line in program.splitlines() if "import register" not in line
    )
    run(program, path=str(folder.parent))
    assert (tmp_path / "out" / "halves.py").exists()


def test_a_graph_break_between_layers(tmp_path: Path) -> None:
    model = evaluated(Stack(breaks_at=2))
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))
    first, second = report().graphs
    assert (first.entry, second.entry) == ("forward", "forward_2")
    assert first.parts[0] == ("expand", ("layers.0", "layers.1"))
    assert second.parts[0] == ("expand", ("layers.2", "layers.3"))
    assert first.ends is not None
    assert "graph_break" in first.ends
    assert second.begins
    assert "ends in a graph break" in str(report())


def test_one_graph_for_all_layers(tmp_path: Path) -> None:
    """What Dynamo cannot trace in a loop leaves it the layers, which share a graph."""

    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
                torch._dynamo.graph_break()
            return x

    model = evaluated(Model())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    for _ in range(2):
        torch.testing.assert_close(step(x), model(x))
    modules = [each.module for each in report().graphs]
    assert modules[0] == "executors/halves.py"
    assert set(modules[1:]) <= {None}


def test_a_graph_break_in_front_of_all_layers(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * 2
            torch._dynamo.graph_break()
            return super().forward(x)

    model = evaluated(Model())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))
    first, second = report().graphs
    assert first.reason == "it holds none of the modules that the schedule names"
    assert second.module is not None


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


def test_every_size_open(tmp_path: Path) -> None:
    """`dynamic=True` opens sizes that the weights then fix again."""
    model = without_numbers()
    step = torch.compile(
        model,
        backend="dynaflow",
        dynamic=True,
        options={"schedule": write(tmp_path), "compile": False},
    )
    for rows in (5, 9):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), model(x))
    (graph,) = report().graphs
    assert graph.module is not None


def test_a_second_size_opens_the_dimension(tmp_path: Path) -> None:
    """Without strictness the first graph is Inductor's, and the second is scheduled."""
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path), dims={}, strict=False)
    with pytest.warns(ScheduleWarning, match="has an axis batch"):
        step(torch.randn(4, 8))
    x = torch.randn(6, 8)
    torch.testing.assert_close(step(x), model(x))
    assert [each.module is None for each in report().graphs] == [True, False]


def test_a_select_decides_by_the_size_of_a_step(tmp_path: Path) -> None:
    text = HALVES + (
        "\nselect by_size:\n    when batch >= 6: halves\n    else: sequential\n"
    )
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path, text))
    for rows in (4, 8, 1):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), model(x))
    assert report().graphs[0].module == "executors/by_size.py"


def test_marks_of_the_caller_stay(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    x = torch.randn(4, 8)
    torch._dynamo.mark_dynamic(x, 0)
    before = set(vars(x))
    step(x)
    assert set(vars(x)) == before


def test_a_select_decides_by_the_entry(tmp_path: Path) -> None:
    """Graphs come one by one: lines for the others are no mistake."""
    text = HALVES + (
        "\nselect by_phase:\n    when phase == prefill: halves\n    else: sequential\n"
    )

    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x * x.shape[1])

    model = evaluated(Model())
    options = {
        "dims": {"x": ("batch", "tokens", None)},
        "entries": {"decode": {"tokens": 1}, "prefill": {}},
    }
    step = compiled(model, write(tmp_path, text), **options)
    for tokens in (6, 1):
        x = torch.randn(4, tokens, 8)
        torch.testing.assert_close(step(x), model(x))
    prefill, decode = report().graphs
    assert prefill.module == "executors/by_phase_prefill.py"
    assert [name for name, _ in prefill.parts] == ["expand", "reduce"]
    assert decode.module == "executors/by_phase_decode.py"
    assert "split = " not in Path("executors/by_phase_decode.py").read_text()
