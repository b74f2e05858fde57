"""What commands import, which is what starting them costs."""

import json
import sys
from pathlib import Path

import pytest

from tests.project.commands import ROOT, run

SCHEDULE = ROOT / "schedules" / "llama" / "halves.dfs"

# Runs a command line, then lists what was imported as the last line of stderr.
PROBE = """
import json, sys
from dynaflow_dsl.cli.main import run
code = run(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""

HEAVY = ("torch", "sympy", "numpy", "transformers")


def imported(tmp_path: Path, *arguments: str) -> tuple[int, set[str]]:
    done = run(sys.executable, "-c", PROBE, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    code, modules = json.loads(done.stderr.splitlines()[-1])
    return code, set(modules)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("explain", "DFS302"),
        ("check", str(SCHEDULE)),
        ("show", str(SCHEDULE)),
        ("show", "--gantt", str(SCHEDULE)),
        ("compile", "--help"),
        ("verify", "--help"),
    ],
    ids=lambda words: " ".join(Path(word).name for word in words),
)
def test_commands_that_run_no_model_import_no_torch(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    code, modules = imported(tmp_path, *arguments)
    assert code == 0
    assert not modules.intersection(HEAVY)


def test_checking_text_imports_no_templates(tmp_path: Path) -> None:
    _, modules = imported(tmp_path, "check", str(SCHEDULE))
    assert "jinja2" not in modules


def test_the_probe_sees_torch(tmp_path: Path) -> None:
    done = run(sys.executable, "-c", f"import torch\n{PROBE}", "--help", cwd=tmp_path)
    assert "torch" in json.loads(done.stderr.splitlines()[-1])[1]
