import sys
from pathlib import Path

import pytest
import torch

from dynaflow_dsl.graph.model import SourceLine
from dynaflow_dsl.runtime.model_code import is_model_code, relative_path
from dynaflow_dsl.trace.lines import line_of_stack, line_of_traceback
from tests.trace.specs import graph_of, module


def helper(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x)


def test_an_operation_has_the_innermost_line_of_model_code() -> None:
    graph = graph_of(module(lambda self, x: helper(x)), ("batch", 4))
    line = graph.operations[0].source
    assert line is not None
    assert line.file == "tests/trace/test_lines.py"
    assert line.code == "return torch.nn.functional.silu(x)"


def test_paths_are_relative_to_packages_project_or_import_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relative_path.cache_clear()
    assert relative_path("/a/lib/site-packages/pkg/x.py") == "pkg/x.py"
    assert relative_path("/a/dist-packages/pkg/x.py") == "pkg/x.py"
    assert relative_path("/nowhere/known/x.py") == "x.py"
    monkeypatch.chdir(tmp_path)
    assert relative_path(str(tmp_path / "models" / "y.py")) == "models/y.py"
    monkeypatch.setattr(sys, "path", ["/elsewhere/source", *sys.path])
    assert relative_path("/elsewhere/source/pkg/z.py") == "pkg/z.py"
    relative_path.cache_clear()


def test_torch_and_the_standard_library_are_no_model_code() -> None:
    assert not is_model_code(torch.nn.Linear.forward.__code__.co_filename)
    assert not is_model_code(Path.exists.__code__.co_filename)
    assert not is_model_code("<string>")
    assert is_model_code(__file__)
    assert is_model_code("/x/lib/python3.11/site-packages/transformers/y.py")


def test_a_stack_without_model_code_has_no_line() -> None:
    torch_file = torch.nn.Linear.forward.__code__.co_filename
    assert line_of_stack(None) is None
    assert line_of_stack("") is None
    assert line_of_stack(f'File "{torch_file}", line 3, in forward') is None
    mixed = f'File "{__file__}", line 1, in f\nFile "{torch_file}", line 3, in forward'
    assert line_of_stack(mixed) == SourceLine(
        "tests/trace/test_lines.py", 1, "import sys"
    )


def test_a_traceback_gives_its_innermost_line() -> None:
    try:
        helper("no tensor")  # type: ignore[arg-type]
    except Exception as error:
        line = line_of_traceback(error.__traceback__)
    assert line is not None
    assert line.code == "return torch.nn.functional.silu(x)"
