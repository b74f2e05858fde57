"""Which files a kernel's digest is of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynaflow_dsl import kernels
from dynaflow_dsl.runtime import Kernel
from dynaflow_dsl.runtime.kernel_sources import (
    _files,
    _module_of,
    kernel_digest,
    source_digest,
)

FILES = {
    "__init__.py": "from weave.unused import nothing\n",
    "ops/__init__.py": "from weave.unused import nothing\n",
    "ops/add.py": (
        "import math\n"
        "import weave.tables\n"
        "from torch import nn\n"
        "from . import launches\n"
        "from ..shared import scale\n"
        "def add(x):\n"
        "    from weave.ops.lazy import late\n"
        "    return late(scale(x))\n"
    ),
    "ops/launches.py": "def launch(): ...\n",
    "ops/lazy.py": "from weave import deep\ndef late(x): return x\n",
    "deep/__init__.py": "from weave.deep.inner import f\n",
    "deep/inner.py": "from weave.ops import add  # in a circle\nf = 1\n",
    "shared.py": "from other.things import thing\ndef scale(x): return x\n",
    "tables.py": "rows = 1\n",
    "unused.py": "nothing = None\n",
}
USED = [
    "ops/add.py",
    "ops/launches.py",
    "ops/lazy.py",
    "deep/__init__.py",
    "deep/inner.py",
    "shared.py",
    "tables.py",
]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / "weave" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILES[name])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "things.py").write_text("thing = 1\n")
    return tmp_path


def written_in(path: Path, module: str) -> Callable[..., Any]:
    """A function of a module that is not imported."""
    names: dict[str, Any] = {"__name__": module}
    exec(compile("def function(x): ...", str(path), "exec"), names)
    made: Callable[..., Any] = names["function"]
    return made


def files_of(function: Callable[..., Any]) -> list[Path]:
    module = _module_of(function)
    assert module is not None
    return list(_files(module))


def add(package: Path) -> Callable[..., Any]:
    return written_in(package / "weave" / "ops" / "add.py", "weave.ops.add")


@pytest.mark.parametrize("name", USED)
def test_a_file_that_the_kernel_stands_on_counts(package: Path, name: str) -> None:
    before = source_digest(add(package))
    path = package / "weave" / name
    path.write_text(path.read_text() + "changed = 1\n")
    assert source_digest(add(package)) != before


@pytest.mark.parametrize("name", USED)
def test_comments_and_layout_do_not(package: Path, name: str) -> None:
    before = source_digest(add(package))
    path = package / "weave" / name
    text = path.read_text().replace("(x):", "(\n    x: float,\n):")
    path.write_text(f'"""What it is for."""\n\n# Why.\n{text}')
    assert source_digest(add(package)) == before


@pytest.mark.parametrize(
    "name",
    [
        "weave/unused.py",
        "weave/__init__.py",
        "weave/ops/__init__.py",
        "other/things.py",
    ],
)
def test_nothing_else_does(package: Path, name: str) -> None:
    before = source_digest(add(package))
    (package / name).write_text("changed = 1\n")
    assert source_digest(add(package)) == before


def test_a_package_goes_before_a_module_of_its_name(package: Path) -> None:
    inner = package / "weave" / "tables" / "__init__.py"
    inner.parent.mkdir()
    inner.write_text("rows = 2\n")
    found = files_of(add(package))
    assert inner in found
    assert package / "weave" / "tables.py" not in found


def test_a_package_may_be_a_link(package: Path) -> None:
    (package / "weave").rename(package / "checkout")
    (package / "weave").symlink_to(package / "checkout", target_is_directory=True)
    assert set(files_of(add(package))) == {package / "weave" / name for name in USED}


def test_lines_end_as_version_control_has_them(package: Path) -> None:
    before = source_digest(add(package))
    for name in USED:
        path = package / "weave" / name
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert source_digest(add(package)) == before


def test_a_module_without_a_package_is_one_file(tmp_path: Path) -> None:
    path, beside = tmp_path / "mine.py", tmp_path / "beside.py"
    path.write_text("import beside\ndef f(x): return x\n")
    beside.write_text("")
    made = written_in(path, "mine")
    before = source_digest(made)
    beside.write_text("changed = 1\n")
    assert source_digest(made) == before
    path.write_text("changed = 1\n" + path.read_text())
    assert source_digest(made) != before


def test_a_text_that_cannot_be_read_imports_nothing(package: Path) -> None:
    path = package / "weave" / "shared.py"
    path.write_text("def (:\n")
    assert len(source_digest(add(package))) == 12


def test_functions_without_a_file_have_the_digits_of_nothing() -> None:
    assert source_digest(len) == source_digest(None) == source_digest()


def test_what_ships_stands_on_its_own_room_and_not_on_the_runtime() -> None:
    found = {path.parent.name for path in files_of(kernels.copied_all_reduce.function)}
    assert found == {"kernels"}
    names = {path.name for path in files_of(kernels.copied_all_reduce.function)}
    assert {"copied.py", "pipeline.py", "lanes.py", "host_memory.py"} <= names
    assert "exchange.py" not in names


OPS = """
import functools


def one(x):
    return x


def two(x):
    return -x


def scaled(by):
    def run(x, k=1):
        return x * by * k
    return run
"""


def declared(folder: Path, text: str) -> str:
    """The digest of the kernel `made` of a file beside that of its functions."""
    (folder / "ops.py").write_text(OPS)
    names: dict[str, Any] = {"__name__": "ops"}
    exec(compile(OPS, str(folder / "ops.py"), "exec"), names)
    path = folder / "table.py"
    head = "import functools\nfrom dynaflow_dsl.runtime import kernel\n"
    path.write_text(f"{head}made = {text}\n")
    names = {**names, "__name__": "table"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return kernel_digest(names["made"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kernel(reference=one)(one)", "kernel(reference=one, mutates=())(one)"),
        ("kernel(reference=one)(one)", "kernel(reference=one)(two)"),
        ("kernel(reference=one)(one)", "kernel(reference=two)(one)"),
        ("kernel(reference=one, uses=('a',))(one)", "kernel(reference=one)(one)"),
        (
            "kernel(reference=one)(functools.partial(scaled(1), k=1))",
            "kernel(reference=one)(functools.partial(scaled(1), k=2))",
        ),
    ],
)
def test_how_a_kernel_is_declared_counts(tmp_path: Path, old: str, new: str) -> None:
    before = declared(tmp_path, old)
    assert declared(tmp_path, f"(  # why\n    {old}\n)") == before
    assert declared(tmp_path, new) != before


def test_which_function_a_kernel_is_counts(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(OPS)
    names: dict[str, Any] = {"__name__": "ops"}
    exec(compile(OPS, str(tmp_path / "ops.py"), "exec"), names)
    # All of one file, as where a package hands on another one of it.
    digests = {
        kernel_digest(Kernel(function, None))
        for function in (
            names["one"],
            names["two"],
            names["scaled"](1),
            names["scaled"](2),
            functools.partial(names["scaled"](2), k=3),
        )
    }
    assert len(digests) == 5
    assert kernel_digest(Kernel(names["scaled"](2), None)) in digests


def test_the_file_of_a_function_in_a_partial_counts(package: Path) -> None:
    made = functools.partial(add(package), 1)
    before = source_digest(made)
    path = package / "weave" / "tables.py"
    path.write_text("rows = 2\n")
    assert source_digest(made) != before
