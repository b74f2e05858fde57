"""What counts as the code of a class, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.runtime.definitions import Definition, Start, definitions

FILES = {
    "nets/__init__.py": "",
    "nets/blocks.py": '''
import math

import torch
from torch import nn

from nets import tables
from nets.parts import Base, halve
from .shapes import *

SCALE = 2.0
ACTIVATIONS = {}


def doubled(x):
    return x * SCALE


def register(name):
    def keep(function):
        ACTIVATIONS[name] = function
        return function
    return keep


@register("late")
def late(x):
    return x


class Block(Base):
    """A block."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from nets.lazy import shifted

        unused = 3
        return doubled(halve(x)) + tables.rows(x) + shifted(x) + wide(x)


class Other(nn.Module):
    def forward(self, x):
        return math.sqrt(x)


def unused(x):
    return x


def model(layers=2):
    return nn.Sequential(Block())


if __name__ == "__main__":
    print(model())
''',
    "nets/parts/__init__.py": "from .bases import Base\nfrom .halves import halve\n",
    "nets/parts/bases.py": "from torch import nn\nclass Base(nn.Module):\n    x = 1\n",
    "nets/parts/halves.py": "def halve(x):\n    return x / by\nby = 2\n",
    "nets/tables.py": "def rows(x):\n    return x\ndef columns(x):\n    return x\n",
    "nets/lazy.py": "def shifted(x):\n    return x + 1\n",
    "nets/shapes.py": "def wide(x):\n    return x\n",
}
# Of each file what runs when it is imported counts as well.
USED = {
    "bases",
    "blocks",
    "halves",
    "lazy",
    "parts",
    "shapes",
    "tables",
    "blocks.ACTIVATIONS",
    "blocks.Block",
    "blocks.SCALE",
    "blocks.doubled",
    "blocks.late",
    "blocks.register",
    "bases.Base",
    "halves.by",
    "halves.halve",
    "lazy.shifted",
    "parts.Base",
    "parts.halve",
    "shapes.wide",
    "tables.rows",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def of_block(folder: Path) -> dict[str, Definition]:
    return definitions([Start("Block", str(folder / "nets" / "blocks.py"))])


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def changed_by(folder: Path, name: str, old: str, new: str) -> set[str]:
    before = of_block(folder)
    edit(folder / "nets" / name, old, new)
    after = of_block(folder)
    return {
        key
        for key in before.keys() | after.keys()
        if before.get(key) is None
        or after.get(key) is None
        or before[key].digest != after[key].digest
    }


def test_names_are_followed_and_others_left_out(folder: Path) -> None:
    found = of_block(folder)
    assert set(found) == USED
    assert found["blocks.Block"].kind == "the class"
    assert found["halves.halve"].kind == "the function"
    assert found["halves.halve"].file == str(folder / "nets" / "parts" / "halves.py")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class Block", "# Why it is so.\n\n\nclass Block"),
        ('"""A block."""', '"""Another word for it,\n\n    in more lines."""'),
        ('    """A block."""\n\n', ""),
        ("x: torch.Tensor) -> torch.Tensor", "\n        x,\n    )"),
        ("    unused = 3\n", "    unused = (\n            3  # for now\n        )\n"),
        ("SCALE = 2.0", "SCALE: float = 2.0"),
        ('@register("late")', "@register('late')"),
        ("return math.sqrt(x)", "return math.sqrt(x + 1)"),
        ("def unused(x):\n    return x", "def unused(x):\n    return -x"),
        ("layers=2", "layers=3"),
        ("    print(model())", "    print(model(), unused(2))"),
    ],
)
def test_what_is_computed_stays_the_same(folder: Path, old: str, new: str) -> None:
    assert changed_by(folder, "blocks.py", old, new) == set()


def test_the_order_of_definitions_does_not_count(folder: Path) -> None:
    before = of_block(folder)
    path = folder / "nets" / "parts" / "halves.py"
    path.write_text("by = 2\n\n\ndef halve(x):\n    return x / by\n", encoding="utf-8")
    assert of_block(folder) == before


@pytest.mark.parametrize(
    ("name", "old", "new", "changed"),
    [
        ("blocks.py", "unused = 3", "unused = 4", {"blocks.Block"}),
        ("blocks.py", "SCALE = 2.0", "SCALE = 2", {"blocks.SCALE"}),
        ("blocks.py", "x * SCALE", "SCALE * x", {"blocks.doubled"}),
        ("blocks.py", '("late")', '("later")', {"blocks.late"}),
        (
            "blocks.py",
            "class Block(",
            "ACTIVATIONS[0] = 1\n\n\nclass Block(",
            {"blocks.ACTIVATIONS", "blocks"},
        ),
        ("parts/halves.py", "by = 2", "by = 3", {"halves.by"}),
        ("parts/bases.py", "x = 1", "x = 2", {"bases.Base"}),
        ("tables.py", "def rows(x):\n    return x", "rows = abs", {"tables.rows"}),
        ("lazy.py", "x + 1", "x - 1", {"lazy.shifted"}),
        ("shapes.py", "return x", "return -x", {"shapes.wide"}),
        ("parts/bases.py", "from torch", "from other", {"bases.Base"}),
    ],
)
def test_changed_code_counts_where_it_is(
    folder: Path, name: str, old: str, new: str, changed: set[str]
) -> None:
    found = changed_by(folder, name, old, new)
    # A name that is written to in passing is used by what writes it.
    assert found - {"blocks.ACTIVATIONS"} == changed - {"blocks.ACTIVATIONS"}


def test_files_without_a_package_know_their_neighbours(tmp_path: Path) -> None:
    net, beside = tmp_path / "net.py", tmp_path / "helpers.py"
    net.write_text("import helpers as h\nclass Net:\n    x = h.scale(2)\n")
    beside.write_text("def scale(x):\n    return x\n")
    found = definitions([Start("Net", str(net))])
    assert set(found) == {"net", "net.Net", "helpers", "helpers.scale"}


def test_installed_files_are_not_left(tmp_path: Path, folder: Path) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    before = of_block(folder)
    (folder / "nets").rename(packages / "nets")
    after = of_block(packages)
    assert {key.partition(".")[0] for key in after} == {"blocks"}
    for key, definition in after.items():
        assert definition.digest == before[key].digest


@pytest.mark.parametrize("text", ["def (:\n", "\0"])
def test_files_that_cannot_be_read_define_nothing(folder: Path, text: str) -> None:
    (folder / "nets" / "parts" / "bases.py").write_text(text, encoding="utf-8")
    assert set(of_block(folder)) == USED - {"bases.Base", "bases"}
    (folder / "nets" / "parts" / "bases.py").unlink()
    assert set(of_block(folder)) == USED - {"bases.Base", "bases"}


def test_circles_end(folder: Path) -> None:
    text = "from nets.parts import Base\n"
    (folder / "nets" / "parts" / "bases.py").write_text(text, encoding="utf-8")
    assert set(of_block(folder)) == USED


NET = "class Net:\n    def forward(self, x):\n        return f(x)\n"
DOUBLED = "def f(x):\n    return x * 1\n"
TABLE = "TABLE = {}\n\n\ndef keep(f):\n    TABLE[0] = f\n    return f\n\n\n"
OF_TABLE = "from table import TABLE\n" + NET.replace("f(x)", "TABLE[0](x)")


@pytest.mark.parametrize(
    ("files", "changed"),
    [
        # A table that is filled behind its definition, by whatever runs there.
        ({"net.py": OF_TABLE, "table.py": "TABLE = {}\nTABLE[0] = 1\n"}, "table.py"),
        ({"net.py": OF_TABLE, "table.py": "TABLE = {}\nTABLE.f(a=1)\n"}, "table.py"),
        (
            {
                "net.py": OF_TABLE,
                "table.py": f"{TABLE}@keep\ndef g(x):\n    return 1\n",
            },
            "table.py",
        ),
        (
            {"net.py": OF_TABLE, "table.py": f"{TABLE}@keep\nclass C:\n    x = 1\n"},
            "table.py",
        ),
        (
            {"net.py": OF_TABLE, "table.py": f"{TABLE}_ = keep(lambda x: x * 1)\n"},
            "table.py",
        ),
        (
            {
                "net.py": "T = {}\ntry:\n    import no_such\nexcept ImportError:\n"
                "    T[0] = 1\n" + NET.replace("f(x)", "T[0]")
            },
            "net.py",
        ),
        (
            {
                "net.py": "T = {}\nmatch 0:\n    case _:\n        T[0] = 1\n"
                + NET.replace("f(x)", "T[0]")
            },
            "net.py",
        ),
        # Imported for what it does.
        (
            {
                "net.py": f"import fills\n{OF_TABLE}",
                "table.py": "TABLE = {}\n",
                "fills.py": "from table import TABLE\nTABLE[0] = 1\n",
            },
            "fills.py",
        ),
        # Handed on under another name.
        (
            {
                "net.py": f"from parts import f\n{NET}",
                "parts/__init__.py": "from .all import f1 as f\n",
                "parts/all.py": "def f1(x):\n    return x\ndef f2(x):\n    return -x\n",
            },
            "parts/__init__.py",
        ),
        # One of two places, of which nobody knows which one is there.
        (
            {
                "net.py": "try:\n    from fast import f\nexcept ImportError:\n"
                f"    from slow import f\n{NET}",
                "fast.py": DOUBLED,
                "slow.py": "def f(x):\n    return x\n",
            },
            "fast.py",
        ),
        (
            {
                "net.py": "try:\n    from fast import f\nexcept ImportError:\n"
                f"    def f(x):\n        return x\n{NET}",
                "fast.py": DOUBLED,
            },
            "fast.py",
        ),
        # Modules as values.
        (
            {
                "net.py": "import ops\n" + NET.replace("f(x)", "getattr(ops, 'f')(x)"),
                "ops.py": DOUBLED,
            },
            "ops.py",
        ),
        (
            {
                "net.py": f"import ops\nf = [ops]\n{NET.replace('f(x)', 'f[0].f(x)')}",
                "ops.py": DOUBLED,
            },
            "ops.py",
        ),
        # An attribute of a class that is imported.
        (
            {
                "net.py": "class Net:\n    from ops import K\n    x = 0\n",
                "ops.py": "K = 1\n",
            },
            "ops.py",
        ),
        # Packages beside that of the class.
        (
            {
                "nets/__init__.py": "",
                "nets/net.py": f"from common.ops import f\n{NET}",
                "common/__init__.py": "",
                "common/ops.py": DOUBLED,
            },
            "common/ops.py",
        ),
    ],
)
def test_what_is_used_by_other_ways_counts(
    tmp_path: Path, files: dict[str, str], changed: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    net = next(name for name in files if name.endswith("net.py"))
    starts = [Start("Net", str(tmp_path / net))]
    before = definitions(starts)
    old, new = ("f1", "f2") if "f1 as f" in files[changed] else ("1", "2")
    edit(tmp_path / changed, old, new)
    after = definitions(starts)
    # An entry of both sides: what only one of them has is not compared.
    assert any(
        before[key].digest != after[key].digest for key in before.keys() & after.keys()
    )


def test_code_where_python_imports_from_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "app/nets/net.py": f"from library import f\n{NET}",
        "lib/library.py": DOUBLED,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    starts = [Start("Net", str(tmp_path / "app" / "nets" / "net.py"))]
    assert "library.f" not in definitions(starts)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    assert "library.f" in definitions(starts)


def test_what_registers_nothing_of_ours_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(f"from ops import f\n{NET}")
    path = tmp_path / "ops.py"
    other = "import functools\n\n\n@functools.cache\ndef g(x):\n    return 3\n"
    path.write_text(f"{DOUBLED}\n\n{other}")
    starts = [Start("Net", str(tmp_path / "net.py"))]
    before = definitions(starts)
    edit(path, "return 3", "return 4")
    assert definitions(starts) == before
    # One more of them in the file of the class itself.
    (tmp_path / "net.py").write_text(f"from ops import f\n{other}\n\n{NET}")
    after = definitions(starts)
    assert {key: after[key] for key in before} == before


@pytest.mark.parametrize(
    "added", ["TABLE[0] = 3\n", "@keep\ndef h(x):\n    return 1\n", "keep(print)\n"]
)
def test_what_runs_newly_counts(tmp_path: Path, added: str) -> None:
    (tmp_path / "net.py").write_text(OF_TABLE)
    path = tmp_path / "table.py"
    path.write_text(TABLE)
    starts = [Start("Net", str(tmp_path / "net.py"))]
    before = definitions(starts)
    path.write_text(TABLE + added)
    after = definitions(starts)
    assert after["table"].digest != before["table"].digest
