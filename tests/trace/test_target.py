from pathlib import Path

import pytest

from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.trace import Scalar, load_target

TARGET = """
from pathlib import Path
from typing import Required, TypedDict, Unpack

import torch

from dynaflow_dsl.trace import Entry, TraceSpec


def good(width: int = 4, *, scale: float = 1.0, name: "str" = "x") -> TraceSpec:
    return TraceSpec(
        model=torch.nn.Linear(width, width).eval(),
        entries={"run": Entry(lambda sizes: (torch.rand(2, width),))},
        facts={"width": width, "name": name},
    )


def needs(layers: int) -> TraceSpec:
    return good(layers)


def anything(**arguments) -> TraceSpec:
    return good(len(arguments))


class Options(TypedDict, total=False):
    width: Required[int]
    name: str


def typed(**options: Unpack[Options]) -> TraceSpec:
    return good(options["width"])


def fails(layers: int = 1) -> TraceSpec:
    raise ValueError(f"no model has\\n{layers} layers")


def leaves() -> TraceSpec:
    raise SystemExit(3)


def missing_file() -> TraceSpec:
    return Path("not-there.json").read_text()


def wrong() -> TraceSpec:
    return "a model"


def empty() -> TraceSpec:
    return TraceSpec(model=torch.nn.Linear(1, 1), entries={})


def odd_facts() -> TraceSpec:
    return TraceSpec(
        model=torch.nn.Linear(1, 1),
        entries={"run": Entry(lambda sizes: ())},
        facts={"shape": [1, 2]},
    )


number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "targets.py").write_text(TARGET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(target: str, **arguments: Scalar) -> Diagnostic:
    source = Source("halves.dfs", f'model "{target}"\n')
    span = Span(source, 6, len(source.text) - 1)
    result = load_target(target, arguments, span)
    assert result.value is None
    (diagnostic,) = result.diagnostics
    assert diagnostic.code == "DFS110"
    assert diagnostic.primary is not None
    assert diagnostic.primary.span == span
    assert "\n" not in diagnostic.message
    return diagnostic


def test_a_file_is_loaded_and_its_function_called(folder: Path) -> None:
    arguments: dict[str, Scalar] = {"width": 3, "scale": 2, "name": "y"}
    spec = load_target("targets.py:good", arguments, None).unwrap()
    assert spec.facts == {"width": 3, "name": "y"}
    assert load_target("targets.py:anything", {"a": 1, "b": 2}, None).ok


def test_a_package_is_loaded_and_its_function_called() -> None:
    target = "dynaflow_dsl.models.llama:decode"
    spec = load_target(target, {"layers": 1, "meta": True}, None).unwrap()
    assert list(spec.entries) == ["decode"]


def test_two_files_of_one_name_are_two_modules(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "targets.py").write_text(TARGET.replace('"width": width, ', ""))
    first = load_target("targets.py:good", {}, None).unwrap()
    second = load_target("other/targets.py:good", {}, None).unwrap()
    assert set(first.facts) != set(second.facts)


@pytest.mark.parametrize(
    "target", ["", "module", ":f", "module:", "module:f()", "a:b c"]
)
def test_what_names_no_target_is_refused(target: str) -> None:
    diagnostic = refused(target)
    assert "names no trace target" in diagnostic.message
    assert "package.module:function" in diagnostic.helps[0]


def test_missing_files_modules_and_functions_are_named(folder: Path) -> None:
    assert refused("nowhere.py:f").message == "there is no file 'nowhere.py'"
    assert "no module 'nowhere'" in refused("nowhere:f").message
    assert "'dynaflow_dsl.modles'" in refused("dynaflow_dsl.modles.llama:f").message
    missing = refused("targets.py:god")
    assert missing.message == "'targets.py' has no function 'god'"
    assert missing.notes[0].startswith("its functions: good, needs, anything, typed,")
    assert missing.helps == ("did you mean 'good'?",)
    of_family = refused("dynaflow_dsl.models.qwen2:flat")
    assert of_family.notes == ("its functions: decode, prefill, serve",)
    assert "has no function 'number'" in refused("targets.py:number").message


@pytest.mark.parametrize("target", ["targets.py:better", "nearby.py:better"])
def test_a_file_that_was_meant_from_the_folder_of_the_schedule(
    folder: Path, target: str
) -> None:
    (folder / "plans").mkdir()
    file = target.partition(":")[0]
    (folder / "plans" / file).write_text(TARGET)
    text = f'model "{target}"\n'
    span = Span(Source("plans/a.dfs", text), 0, len(text) - 1)
    (found,) = load_target(target, {}, span).diagnostics
    assert found.helps == (
        "paths of targets are from the current folder: run dfsc in plans, or "
        f"write 'plans/{file}'",
    )


def test_arguments_are_checked_against_the_function(folder: Path) -> None:
    unknown = refused("targets.py:good", widht=3)
    assert "no argument 'widht'" in unknown.message
    assert unknown.helps == ("did you mean 'width'?",)
    assert unknown.notes == ("its arguments: width, scale, name",)
    assert "needs the argument 'layers'" in refused("targets.py:needs").message
    assert "is an int, but got 'x'" in refused("targets.py:needs", layers="x").message
    assert "is an int, but got True" in refused("targets.py:good", width=True).message
    assert "is a str, but got 3" in refused("targets.py:good", name=3).message


def test_options_of_a_typed_dictionary_are_arguments(folder: Path) -> None:
    unknown = refused("targets.py:typed", widht=3, width=3)
    assert unknown.notes == ("its arguments: width, name",)
    assert unknown.helps == ("did you mean 'width'?",)
    assert "needs the argument 'width'" in refused("targets.py:typed").message
    assert "is an int, but got 'x'" in refused("targets.py:typed", width="x").message
    assert load_target("targets.py:typed", {"width": 3}, None).value is not None


def test_errors_in_the_function_are_told_by_line(folder: Path) -> None:
    diagnostic = refused("targets.py:fails", layers=3)
    assert diagnostic.message == ("'targets.py:fails' raised ValueError: no model has")
    line = next(n for n, t in enumerate(TARGET.splitlines(), 1) if "no model" in t)
    assert diagnostic.notes[0] == "3 layers"
    assert diagnostic.notes[1].startswith(f"at targets.py:{line}: raise ValueError")
    assert "SystemExit: 3" in refused("targets.py:leaves").message
    assert "FileNotFoundError" in refused("targets.py:missing_file").message


def test_a_long_message_is_cut_and_the_users_own_line_is_named(folder: Path) -> None:
    packages = folder / "site-packages"
    packages.mkdir()
    (packages / "library.py").write_text(
        "def validate():\n"
        "    raise ValueError('\\n'.join(f'field {n} is wrong' for n in range(12)))\n"
    )
    (folder / "using.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(packages)!r})\n"
        "def made():\n"
        "    import library\n"
        "    library.validate()\n"
    )
    diagnostic = refused("using.py:made")
    assert diagnostic.message.endswith("raised ValueError: field 0 is wrong")
    assert diagnostic.notes[:9] == tuple(f"field {n} is wrong" for n in range(1, 10))
    cut, library, own = diagnostic.notes[9:]
    assert cut == "and 2 more lines"
    assert library.startswith("at library.py:2: raise ValueError")
    assert own == "called from using.py:5: library.validate()"


@pytest.mark.parametrize(
    ("text", "message", "note"),
    [
        ("def f(:\n", "SyntaxError: invalid syntax", "at broken.py:1"),
        (
            "import not_installed_here\n",
            "ModuleNotFoundError",
            "at broken.py:1: import",
        ),
        ("open('missing.txt')\n", "FileNotFoundError", "at broken.py:1: open"),
        ("1 / 0\n", "ZeroDivisionError", "at broken.py:1: 1 / 0"),
    ],
)
def test_errors_while_importing_are_told_by_line(
    folder: Path, text: str, message: str, note: str
) -> None:
    (folder / "broken.py").write_text(text)
    diagnostic = refused("broken.py:f")
    assert "importing 'broken.py' raised" in diagnostic.message
    assert message in diagnostic.message
    assert diagnostic.notes[0].startswith(note)


def test_what_the_function_returns_is_checked(folder: Path) -> None:
    assert "returned a str, not a TraceSpec" in refused("targets.py:wrong").message
    assert "'entries' is empty" in refused("targets.py:empty").message
    assert "the fact 'shape'" in refused("targets.py:odd_facts").message
