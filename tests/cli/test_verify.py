import json
import re

import pytest

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli import verify as verify_room
from dynaflow_dsl.cli.main import run
from dynaflow_dsl.cli.sizes import usual_sizes
from dynaflow_dsl.cli.verify import json_data
from dynaflow_dsl.source import Source
from tests.cli.conftest import Workspace

Capture = pytest.CaptureFixture[str]
VERIFY = ("verify", "stack.dfs", "--text-only", "--batch", "2", "--batch", "5")


def test_a_fresh_module_equals_its_model(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    before = workspace.files()
    capsys.readouterr()
    assert run(VERIFY) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert output.out.startswith("stack_halves.py, entry forward: ok\n")
    for batch in (2, 5):
        assert f"  batch {batch}: text against reference: equal bit for bit" in (
            output.out
        )
        assert f"  batch {batch}: text against model: equal within" in output.out
    assert "unordered: expand[1] | reduce[0]" in output.out
    assert workspace.files() == before


def test_without_a_module_a_new_one_is_run(
    workspace: Workspace, capsys: Capture
) -> None:
    before = workspace.files()
    assert run(VERIFY) == 0
    output = capsys.readouterr()
    assert "there is no executors/stack_halves.py" in output.err
    assert "entry forward: ok" in output.out
    assert workspace.files() == before


def test_compiled_parts_are_compared_too(workspace: Workspace, capsys: Capture) -> None:
    assert run(["verify", "stack.dfs", "--batch", "2"]) == 0
    assert "batch 2: compiled against model: equal within" in capsys.readouterr().out


def test_a_wait_that_was_taken_out_is_found(
    workspace: Workspace, capsys: Capture
) -> None:
    assert workspace.compile() == 0
    text = workspace.module.read_text()
    lines = [line for line in text.splitlines() if ".wait(" in line]
    workspace.module.write_text(text.replace(lines[1], ""))
    assert run(VERIFY) == 1
    output = capsys.readouterr()
    assert "error[DFS504]" in output.err
    assert "entry forward: FAILED" in output.out
    assert "read before write" in output.out


def test_another_result_is_found(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    workspace.change(workspace.module, "aten.relu.default(", "aten.sigmoid.default(")
    capsys.readouterr()
    assert run([*VERIFY, "--output-format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    (report,) = document["results"]
    differing = [item for item in report["comparisons"] if item["difference"]]
    assert len(differing) == 4


def test_a_stale_module_is_not_run(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    workspace.change(workspace.targets, "torch.relu", "torch.sigmoid")
    capsys.readouterr()
    assert run(VERIFY) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "error[DFS502]" in output.err
    assert "help: run `dfsc compile stack.dfs`" in output.err


def test_a_module_is_run_with_what_it_was_made_with(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(workspace.schedule, "stack_halves:", "stack_halves(ways = 2):")
    workspace.change(workspace.schedule, "into 2", "into ways")
    workspace.change(workspace.schedule, 'model "targets.py:stack" (layers = 3)\n', "")
    words = ("--model", "targets.py:stack", "-M", "layers=2", "-P", "ways=3")
    assert workspace.compile(*words) == 0
    capsys.readouterr()
    assert run(VERIFY) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert "unordered: expand[2] | reduce[1]" in output.out
    # The command line goes before it.
    assert run([*VERIFY, "-P", "ways=2"]) == 1
    assert "run `dfsc compile stack.dfs -P ways=2`" in capsys.readouterr().err


def test_a_file_that_fails_leaves_the_trials_of_others(
    workspace: Workspace, capsys: Capture
) -> None:
    (workspace.folder / "a.dfs").write_text("no schedule\n")
    workspace.change(
        workspace.targets,
        "        dimensions=",
        '        trial=lambda steps, rows: "no trial",\n        dimensions=',
    )
    assert run(["verify", ".", "--text-only", "--batch", "2"]) == 2
    assert "trial" in capsys.readouterr().err


def test_a_device_without_streams_could_not_run(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run([*VERIFY, "--device", "meta"]) == 2
    shown = capsys.readouterr().err
    assert "error[DFS8" in shown
    assert "meta" in shown


def test_sizes_must_be_allowed(workspace: Workspace, capsys: Capture) -> None:
    assert run(["verify", "stack.dfs", "--batch", "0"]) == 2
    assert run(["verify", "stack.dfs", "--batch", "65"]) == 2
    assert "batch goes from 1 to 64" in capsys.readouterr().err


def test_sizes_are_said_of_the_dimension_that_they_are_of(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(workspace.targets, '("batch", None)', '("rows", None)')
    workspace.change(workspace.targets, '{"batch": (1, 64)}', '{"rows": (1, 64)}')
    workspace.change(workspace.targets, 'sizes["batch"]', 'sizes["rows"]')
    workspace.change(workspace.schedule, "split batch", "split rows")
    assert run([*VERIFY, "--stress", "1"]) == 0
    output = capsys.readouterr().out
    assert "stress at rows 2: ok" in output
    assert "  rows 2: text against reference: equal bit for bit" in output
    assert "  rows 5: order of " in output
    assert "batch" not in output


def test_other_dimensions_are_larger_than_one(
    workspace: Workspace, capsys: Capture
) -> None:
    change = workspace.change
    change(workspace.targets, '("batch", None)', '("batch", "sequence", None)')
    change(workspace.targets, "(1, 64)}", '(1, 64), "sequence": (1, 64)}')
    made = 'torch.randn(sizes["batch"], '
    change(workspace.targets, made, made + 'print(sizes) or sizes["sequence"], ')
    assert run(VERIFY) == 0
    told = capsys.readouterr().err
    assert "{'batch': 5, 'sequence': " in told or "'batch': 5}" in told
    assert "'sequence': 1" not in told


def test_an_entry_of_fixed_sizes_is_run_once(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(workspace.targets, 'dims={"x": ("batch", None)},', "")
    workspace.change(workspace.targets, 'dimensions={"batch": (1, 64)},', "")
    workspace.change(workspace.targets, 'sizes["batch"]', "4")
    workspace.change(workspace.schedule, "    split batch into 2 as half\n\n", "")
    workspace.change(workspace.schedule, "stagger half by 1:", "order:")
    assert run(["verify", "stack.dfs", "--text-only"]) == 0
    output = capsys.readouterr().out
    assert output.count("  fixed sizes: text against reference: equal") == 1
    assert run(VERIFY) == 2
    assert "no argument of entry forward has a dimension" in capsys.readouterr().err


def test_json_has_null_for_what_is_not_finite() -> None:
    assert json_data({"a": [float("inf"), 1.5], "b": (None, "x")}) == {
        "a": [None, 1.5],
        "b": [None, "x"],
    }


def test_two_schedules_of_one_entry_are_each_verified(
    workspace: Workspace, capsys: Capture
) -> None:
    text = workspace.schedule.read_text()
    second = text[text.index("schedule stack_halves:") :]
    second = second.replace("stack_halves", "uneven").replace("into 2", "into [1, 3]")
    workspace.schedule.write_text(f"{text}\n{second}")
    assert run(VERIFY) == 0
    output = capsys.readouterr().out
    assert "stack.py, schedule stack_halves, entry forward: ok" in output
    assert "stack.py, schedule uneven, entry forward: ok" in output


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("raise SystemExit(0)\n", "raised SystemExit: 0"),
        ("raise ValueError('no')\n", "raised ValueError: no"),
        (")(\n", "raised SyntaxError: unmatched ')'"),
        ("del load\n", "has no function `load`"),
        ("load = 3\n", "has no function `load`"),
    ],
)
def test_a_module_that_cannot_be_imported(
    workspace: Workspace, capsys: Capture, edit: str, said: str
) -> None:
    assert workspace.compile() == 0
    workspace.module.write_text(workspace.module.read_text() + edit)
    assert run(VERIFY) == 2
    error = capsys.readouterr().err
    assert "error[DFS804]" in error
    assert said in error
    assert "DFS900" not in error


def test_a_step_that_raises_is_a_finding(workspace: Workspace, capsys: Capture) -> None:
    assert workspace.compile() == 0
    workspace.change(workspace.module, "aten.relu.default(", "aten.rellu.default(")
    assert run(VERIFY) == 1
    output = capsys.readouterr()
    assert "  batch 5: text raised AttributeError: " in output.out
    assert "entry forward: FAILED" in output.out
    assert "DFS900" not in output.err


@pytest.mark.parametrize("device", ["blah", "cpu:3"])
def test_an_unknown_device(workspace: Workspace, capsys: Capture, device: str) -> None:
    assert run([*VERIFY, "--device", device]) == 2
    assert "error[DFS801]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("trial", "said"),
    [
        ("5", "trial"),
        ("lambda *_: 1 / 0", "the trial of the target raised ZeroDivisionError"),
        ("lambda *_: None", "the trial of the target raised TypeError"),
    ],
)
def test_a_trial_that_is_none(
    workspace: Workspace, capsys: Capture, trial: str, said: str
) -> None:
    field = "dims={"
    workspace.change(workspace.targets, field, f"trial={trial},\n        {field}")
    assert run(VERIFY) == 2
    error = capsys.readouterr().err
    assert "error[DFS110]" in error
    assert said in error


def test_arguments_that_cannot_be_made(workspace: Workspace, capsys: Capture) -> None:
    size = 'sizes["batch"]'
    workspace.change(workspace.targets, size, f"[0, 1, 2, 3, 4][{size}]")
    assert run(VERIFY) == 2
    assert "arguments of the entry 'forward' raised IndexError" in (
        capsys.readouterr().err
    )


def test_claims_of_the_schedule_are_checked(
    workspace: Workspace, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (schedule,) = (
        pipeline.understand(Source("stack.dfs", workspace.schedule.read_text()))
        .unwrap()
        .schedules
    )
    claimed = {("expand[0]", "prev.reduce[1]"), ("reduce[0]", "expand[1]")}
    assert {tuple(sorted(one)) for one in verify_room.claims_of(schedule)} == {
        tuple(sorted(one)) for one in claimed
    }
    wrong = frozenset({("expand[0]", "reduce[0]")})
    monkeypatch.setattr(verify_room, "claims_of", lambda _: wrong)
    assert run(VERIFY) == 1
    output = capsys.readouterr().out
    assert re.search(r"order of \d+ operations: .*, 1 claims that do not hold", output)
    assert "    claimed, but ordered: expand[0] | reduce[0]" in output


def test_claims_need_the_lines_of_the_map(
    workspace: Workspace, capsys: Capture
) -> None:
    assert workspace.compile() == 0
    workspace.module.write_text(workspace.module.read_text() + "# mine\n")
    assert run(VERIFY) == 1
    output = capsys.readouterr().out
    assert "claims of windows not checked: the module was edited" in output


def test_a_buffer_that_the_model_counts_in(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(
        workspace.targets,
        "        self.head = nn.Linear(width, 2)\n",
        "        self.head = nn.Linear(width, 2)\n"
        '        self.register_buffer("steps", torch.zeros(width))\n',
    )
    workspace.change(
        workspace.targets,
        "        for layer in",
        "        self.steps.add_(1.0)\n        for layer in",
    )
    assert workspace.compile() == 0
    assert run(VERIFY) == 0
    output = capsys.readouterr().out
    assert "batch 5: text against model: equal within" in output
    assert "1 output, 1 input afterwards, 1 buffer" in output
    workspace.change(workspace.module, "aten.add_.Tensor(", "aten.add.Tensor(")
    assert run(VERIFY) == 1
    assert "buffer steps differs by" in capsys.readouterr().out


def test_usual_sizes_fill_every_piece() -> None:
    text = """dfs 1

schedule many:
    split batch into {pieces} as piece

    each layer in .layers.*:
        part all = rest
        order:
            all
"""

    def sizes(pieces: str) -> tuple[int, ...]:
        source = Source("many.dfs", text.format(pieces=pieces))
        (schedule,) = pipeline.understand(source).unwrap().schedules
        return usual_sizes(schedule)

    assert sizes("2") == (1, 2, 3, 8)
    assert sizes("16") == (1, 2, 3, 8, 16, 17)
    assert sizes("[8, 1]") == (1, 2, 3, 5, 6, 8)


STATED = ("part reduce = rest", "part reduce (rowwise = true) = rest + (own in .)")
SORTING = (
    "return x + self.down(torch.relu(self.up(self.norm(x))))",
    """order = torch.argsort(x[:, 0])
        y = self.down(torch.relu(self.up(self.norm(x)))[order])
        return x + y[torch.argsort(order * 1)]""",
)


def test_what_is_stated_of_rows_is_checked(
    workspace: Workspace, capsys: Capture
) -> None:
    workspace.change(workspace.targets, *SORTING)
    own = ("reduce = rest", "reduce = rest + (own in .)")
    workspace.change(workspace.schedule, *own)
    assert workspace.compile() == 1
    assert "error[DFS601]" in capsys.readouterr().err
    workspace.change(workspace.schedule, *own[::-1])
    workspace.change(workspace.schedule, *STATED)
    assert workspace.compile() == 0
    text = workspace.module.read_text()
    assert "rowwise = true: that its rows do not depend on each other is stated" in text
    capsys.readouterr()
    assert run(VERIFY) == 0
    said = capsys.readouterr().out
    for layer in range(3):
        assert f"part reduce states that rows are apart (argsort in layers.{layer}" in (
            said
        )


def test_a_false_statement_fails(workspace: Workspace, capsys: Capture) -> None:
    old, new = SORTING
    never_back = new.replace("y[torch.argsort(order * 1)]", "y")
    workspace.change(workspace.targets, old, never_back)
    workspace.change(workspace.schedule, *STATED)
    assert workspace.compile() == 0
    capsys.readouterr()
    assert run([*VERIFY, "--output-format", "json"]) == 1
    (report,) = json.loads(capsys.readouterr().out)["results"]
    first = report["rows"][0]
    assert first["who"] == "part reduce"
    assert first["unproved"].startswith("argsort in layers.0: argsort over the split")
    assert "differs when cut in pieces" in first["problem"]


def test_stress_finds_nothing_in_a_whole_module(
    workspace: Workspace, capsys: Capture
) -> None:
    assert run([*VERIFY, "--stress", "6"]) == 0
    output = capsys.readouterr().out
    assert "stack_halves.py, entry forward, stress at batch 5: ok" in output
    assert "interleaved, 6 runs with delays" in output
    assert "text against reference: equal bit for bit" in output


def test_stress_names_the_steps_that_a_missing_wait_leaves_unordered(
    workspace: Workspace, capsys: Capture
) -> None:
    assert workspace.compile() == 0
    text = workspace.module.read_text()
    lines = [line for line in text.splitlines() if ".wait(" in line]
    workspace.module.write_text(text.replace(lines[1], ""))
    capsys.readouterr()
    words = ("--stress", "6", "--output-format", "json")
    assert run([*VERIFY, *words]) == 1
    results = json.loads(capsys.readouterr().out)["results"]
    stressed = [one for one in results if "runs" in one]
    assert [one["batch"] for one in stressed] == [2, 5]
    for report in stressed:
        (way,) = report["runs"]
        assert way["failures"]
        assert way["failures"][0]["pair"]["first_stream"] == "side"
        assert way["failures"][0]["pair"]["second_stream"] == "main"


def test_overlap_needs_a_device(workspace: Workspace, capsys: Capture) -> None:
    assert run([*VERIFY, "--overlap"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "error[DFS808]" in output.err
    assert "on the CPU a step runs on one thread" in output.err
    assert "`verify --stress` and `profile` work on the CPU too" in output.err


@pytest.mark.parametrize("words", [("--overlap",), ("--stress", "3")])
def test_without_a_cuda_device_it_is_said_what_works(
    words: tuple[str, ...],
    workspace: Workspace,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run([*VERIFY, *words, "--device", "cuda"]) == 2
    error = capsys.readouterr().err
    assert "`cuda` was asked for, and PyTorch finds no CUDA device here" in error
    assert "also run on the CPU" in error


@pytest.mark.parametrize("option", ["--one-stream", "--eager"])
def test_options_of_overlap_need_it(
    option: str, workspace: Workspace, capsys: Capture
) -> None:
    assert run([*VERIFY, option]) == 2
    assert f"{option} is for --overlap" in capsys.readouterr().err
