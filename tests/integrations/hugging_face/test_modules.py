"""Which module a schedule runs: the committed one while it is current."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from dynaflow_dsl.cli.foreign import import_module_file
from dynaflow_dsl.cli.main import run as dfsc
from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.integrations.errors import ScheduleError
from dynaflow_dsl.integrations.transformers import report, schedule, unschedule
from tests.integrations.hugging_face.decoders import (
    CAPACITY,
    file_of,
    generate,
    model_of,
    prompts,
    text_of,
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a schedule, as the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.dfsc]\nschedules = ["."]\n')
    file_of(tmp_path)
    return tmp_path


def run(path: str | Path = "halves.dfs", **options: Any) -> tuple[str, ...]:
    """The modules that a scheduled generation ran; its tokens are the model's."""
    model, inputs = model_of(), prompts()
    expected = generate(model, inputs)
    schedule(model, path, compile=False, **options)
    assert torch.equal(generate(model, inputs), expected)
    found = report(model)
    assert found.own == {}
    unschedule(model)
    return found.modules


def files(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "executors").glob("*.*")}


def test_in_memory_nothing_is_written(home: Path) -> None:
    assert run() == ("in memory",)
    assert not (home / "executors").exists()


def test_what_was_written_is_run_and_its_lengths_hold(home: Path) -> None:
    assert run(capacity=CAPACITY, write=True) == ("executors/halves.py",)
    written = files(home)
    document = json.loads(written["halves.map.json"])
    assert document["target"]["name"].endswith("integrations.transformers:schedule")
    # Without a word about the capacity it is that of the module.
    assert run() == ("executors/halves.py",)
    assert run(write=True) == ("executors/halves.py",)
    assert files(home) == written


def test_a_stale_module_is_passed_over_and_left_alone(home: Path) -> None:
    run(capacity=CAPACITY, write=True)
    written = files(home)
    text = text_of().replace("by 1", "by 2")
    (home / "halves.dfs").write_text(text)
    with pytest.warns(RuntimeWarning, match=r"DFS501.*the schedule in halves.dfs"):
        assert run() == ("in memory",)
    assert files(home) == written
    assert run(write=True) == ("executors/halves.py",)
    assert files(home) != written
    assert run() == ("executors/halves.py",)


def test_another_capacity_makes_the_module_stale(home: Path) -> None:
    run(capacity=CAPACITY, write=True)
    said = r"DFS502.*the model's graph changed"
    with pytest.warns(RuntimeWarning, match=said) as caught:
        assert run(capacity=40) == ("in memory",)
    # Who called `schedule` is where it is shown.
    shown = [each.filename for each in caught if each.category is RuntimeWarning]
    assert shown == [__file__]


def test_an_edited_module_is_not_written_over(home: Path) -> None:
    run(capacity=CAPACITY, write=True)
    module = home / "executors" / "halves.py"
    module.write_text(module.read_text() + "\n# mine\n")
    with pytest.warns(RuntimeWarning, match=r"DFS504.*was edited by hand"):
        assert run() == ("in memory",)
    with pytest.raises(DiagnosticError, match="DFS504") as refused:
        run(write=True)
    assert "write=True" not in " ".join(refused.value.diagnostics[0].helps)
    assert module.read_text().endswith("# mine\n")
    # Without its map nothing says that it was edited; it is kept all the same.
    module.with_suffix(".map.json").unlink()
    with pytest.raises(DiagnosticError, match="is missing"):
        run(write=True)
    assert module.read_text().endswith("# mine\n")


def test_a_file_of_somebody_else_is_not_written_over(home: Path) -> None:
    module = home / "executors" / "halves.py"
    module.parent.mkdir()
    module.write_text("raise SystemExit\n")
    with pytest.warns(RuntimeWarning, match="is not a generated module"):
        assert run() == ("in memory",)
    with pytest.raises(DiagnosticError, match="is not a generated module"):
        run(write=True)
    assert module.read_text() == "raise SystemExit\n"


def test_a_module_that_torch_compile_made(home: Path) -> None:
    """Both would write one file by turns."""
    run(capacity=CAPACITY, write=True)
    path = home / "executors" / "halves.map.json"
    document = json.loads(path.read_text())
    document["target"] = {"name": "", "arguments": {}}
    module = path.with_name("halves.py")
    module.write_text(module.read_text() + "# another\n")
    document["body"] = hashlib.sha256(module.read_bytes()).hexdigest()
    path.write_text(json.dumps(document))
    written = files(home)
    said = (
        "executors/halves.py is the module of a program's torch.compile, and "
        "`schedule` of dynaflow_dsl.integrations.transformers makes another one of "
        "this name"
    )
    with pytest.warns(RuntimeWarning, match=re.escape(said)):
        assert run() == ("in memory",)
    with pytest.raises(DiagnosticError, match="DFS507") as refused:
        run(write=True)
    assert refused.value.diagnostics[0].helps[0] == (
        'choose another folder with folder="..."'
    )
    assert files(home) == written
    assert run(capacity=CAPACITY, folder="others", write=True) == ("others/halves.py",)


def test_a_module_of_another_model_is_stale(home: Path) -> None:
    text = (home / "halves.dfs").read_text()
    other = text.replace("model.layers", "encoder.layer").replace(
        ".input_layernorm + .self_attn", ".attention"
    )
    (home / "halves.dfs").write_text(other)
    target = "dynaflow_dsl.models.bert:encode"
    assert dfsc(["compile", "halves.dfs", "--model", target, "-M", "layers=2"]) == 0
    written = files(home)
    (home / "halves.dfs").write_text(text)
    with pytest.warns(RuntimeWarning, match="the model's graph changed"):
        assert run(capacity=CAPACITY) == ("in memory",)
    assert files(home) == written


def test_parameters_hold_until_others_are_given(home: Path) -> None:
    text = (
        text_of().replace("halves:", "halves(ways = 2):").replace("into 2", "into ways")
    )
    (home / "halves.dfs").write_text(text)
    run(capacity=CAPACITY, write=True, parameters={"ways": "3"})
    assert "batch in 3 pieces" in files(home)["halves.py"].decode()
    assert run() == ("executors/halves.py",)
    with pytest.warns(RuntimeWarning, match="compiled with other parameters"):
        assert run(parameters={"ways": "2"}) == ("in memory",)


def test_facts_are_required_and_given(home: Path) -> None:
    text = text_of().replace(
        "    stream", "    require layers == 2 and mine\n\n    stream"
    )
    (home / "halves.dfs").write_text(text)
    with pytest.raises(DiagnosticError, match="DFS106"):
        run()
    assert run(facts={"mine": True}) == ("in memory",)
    with pytest.raises(DiagnosticError, match="DFS115"):
        run(facts={"mine": False})


def test_a_select_chooses_in_each_step(home: Path) -> None:
    text = text_of() + (
        "\nselect by_size:\n"
        "    when phase == decode and batch >= 3: halves\n"
        "    when phase == prefill and batch * seq >= 45: halves\n"
        "    else: sequential\n"
    )
    (home / "halves.dfs").write_text(text)
    assert run(capacity=CAPACITY, write=True) == ("executors/by_size.py",)
    assert run() == ("executors/by_size.py",)


def test_captured_sizes_want_prompts_of_one_length(home: Path) -> None:
    text = text_of().replace("    split", "    capture batch at [2, 4]\n    split")
    (home / "halves.dfs").write_text(text)
    with pytest.raises(
        DiagnosticError, match=r"error\[DFS314\]: nothing says for which sizes of"
    ):
        run(capacity=CAPACITY)
    assert run(capacity=CAPACITY, sequence=4) == ("in memory",)


@pytest.mark.parametrize("length", [1, CAPACITY + 1])
def test_a_length_of_prompts_that_cannot_be(length: int, home: Path) -> None:
    message = rf"sequence is {length}; it must be more than 1 and at most the capacity"
    with pytest.raises(ScheduleError, match=message):
        run(capacity=CAPACITY, sequence=length)


def test_a_module_that_was_imported(home: Path) -> None:
    run(capacity=CAPACITY, write=True)
    module = import_module_file(home / "executors" / "halves.py")
    (found,) = run(module)
    assert found.endswith("halves.py")


PRETRAINED = 'model "dynaflow_dsl.models.pretrained:serve" (path = "saved"{more})\n'


@pytest.mark.parametrize("more", [", capacity = 48", ", capacity = 48, sequence = 4"])
def test_what_dfsc_compiled_for_a_saved_model_is_current(more: str, home: Path) -> None:
    model_of().save_pretrained("saved")
    text = text_of().replace("dfs 1\n", "dfs 1\n\n" + PRETRAINED.format(more=more))
    (home / "halves.dfs").write_text(text)
    assert dfsc(["compile", "halves.dfs"]) == 0
    written = files(home)
    model, inputs = AutoModelForCausalLM.from_pretrained("saved").eval(), prompts()
    expected = generate(model, inputs)
    schedule(model, "halves.dfs", compile=False, strict=True)
    assert torch.equal(generate(model, inputs), expected)
    assert report(model).modules == ("executors/halves.py",)
    # Prompts of nine tokens are three of four.
    steps = 3 if "sequence" in more else 1
    assert report(model).steps == {"prefill": steps, "decode": 11}
    # One that goes on from a cache does not fill its pieces.
    assert files(home) == written
    assert dfsc(["compile", "--check", "halves.dfs"]) == 0


def test_what_is_written_for_a_saved_model_is_found_by_dfsc(home: Path) -> None:
    model_of().save_pretrained("saved")
    model = AutoModelForCausalLM.from_pretrained("saved").eval()
    schedule(model, "halves.dfs", capacity=CAPACITY, write=True, compile=False)
    assert dfsc(["compile", "--check", "halves.dfs"]) == 0


def test_entries_that_a_module_has_not(home: Path) -> None:
    """Prompts by the model's own forward, without a word: nothing was scheduled."""
    targets = (
        "from dynaflow_dsl.models.decoder import decoder_spec\n"
        "from tests.integrations.hugging_face.decoders import model_of\n"
        "def decode():\n    return decoder_spec(model_of(), capacity=48)\n"
    )
    (home / "targets.py").write_text(targets)
    assert dfsc(["compile", "halves.dfs", "--model", "targets.py:decode"]) == 0
    model, inputs = model_of(), prompts()
    expected = generate(model, inputs)
    schedule(model, "halves.dfs", compile=False, strict=True)
    assert torch.equal(generate(model, inputs), expected)
    assert report(model).steps == {"decode": 11}
    assert report(model).own == {"the module has no entry `prefill`": 1}
    assert report(model).unsplit == {}
    generate(model, {name: one[:1] for name, one in inputs.items()})
    assert report(model).unsplit == {"decode": 11}
    assert str(report(model)) == (
        "module: executors/halves.py\n22 steps of decode, 11 of them unsplit\n"
        "2 calls by the model's own forward: the module has no entry `prefill`"
    )


def test_the_text_does_not_depend_on_the_process(home: Path) -> None:
    run(capacity=CAPACITY, write=True)
    written = files(home)
    program = (
        "from dynaflow_dsl.integrations.transformers import schedule\n"
        "from tests.integrations.hugging_face.decoders import model_of\n"
        "schedule(model_of(), 'halves.dfs', capacity=48, folder='again', write=True,"
        " compile=False)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    again = {path.name: path.read_bytes() for path in (home / "again").glob("*.*")}
    assert again == written


def test_a_model_in_memory_is_compared_by_the_program_that_has_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capacity=CAPACITY, write=True)
    written = files(home)
    assert dfsc(["compile", "--check", "halves.dfs"]) == 0
    assert "up to date by its text; the program that gives its model to" in (
        capsys.readouterr().err
    )
    (home / "halves.dfs").write_text(text_of().replace("by 1", "by 2"))
    assert dfsc(["compile", "--check", "halves.dfs"]) == 1
    said = capsys.readouterr()
    assert "DFS501" in said.out + said.err
    assert 'schedule(model, "halves.dfs", write=True)' in said.out + said.err
    assert dfsc(["compile", "halves.dfs"]) == 0
    assert "writes executors/halves.py" in capsys.readouterr().err
    assert files(home) == written
