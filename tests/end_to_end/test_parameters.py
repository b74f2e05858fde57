"""A schedule with parameters, a requirement and imported parts, down to its results."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl import pipeline
from tests.emit.models import llama_spec, llama_traced
from tests.end_to_end.building import Built, halves, run_verify
from tests.verification.mutations import import_module

PIECES = Path(__file__).parent / "schedules" / "pieces.dfs"


def compiled(**parameters: str) -> pipeline.CompiledModule:
    file = pipeline.read_schedule(PIECES, parameters).unwrap()
    return pipeline.compile_schedules(file, llama_traced()[1]).unwrap()


@pytest.mark.parametrize("parameters", [{}, {"ways": "3"}, {"tile": "2"}], ids=str)
def test_results_are_those_of_the_model(
    parameters: dict[str, str], tmp_path: Path
) -> None:
    made = compiled(**parameters)
    path = tmp_path / f"{made.name}.py"
    path.write_text(made.text, encoding="utf-8")
    path.with_suffix(".map.json").write_text(made.map, encoding="utf-8")
    built = Built(llama_spec(), made, import_module(path), tmp_path)
    assert [str(report) for report in run_verify(built) if not report.ok] == []


def test_a_group_makes_the_module_that_its_parts_make() -> None:
    text = halves("llama_pieces")
    file = pipeline.understand(pipeline.Source("pieces.dfs", text)).unwrap()
    inline = pipeline.compile_schedules(file, llama_traced()[1]).unwrap()
    # Behind the header and the documentation, all but the constants of the classes.
    lines = [
        line for line in compiled().text.split("\n") if "parameters = {" not in line
    ]
    start = lines.index("import torch")
    other = inline.text.split("\n")
    assert lines[start:] == other[other.index("import torch") :]


def test_another_number_of_pieces_is_another_module() -> None:
    assert "half_2" in compiled(ways="3").text
    assert "half_2" not in compiled().text
