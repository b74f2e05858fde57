"""Parameters are constants of the module's class, formatted as the rest of it."""

from __future__ import annotations

import ast
import json

import pytest

from dynaflow_dsl.pipeline import compile_schedules, understand
from dynaflow_dsl.source import Source
from tests.emit.formatting import formatted
from tests.emit.models import HALVES, llama_traced

NAMES = "a_parameter_with_a_name_of_some_length"


def module(parameters: str, **given: str) -> tuple[str, dict[str, object]]:
    uses = " and ".join(
        f"{each.split(' = ')[0]} == {each.split(' = ')[0]}"
        for each in parameters.split("; ")
    )
    listed = parameters.replace("; ", ", ")
    text = HALVES.replace("schedule halves:", f"schedule halves({listed}):")
    text = text.replace("    stream side\n", f"    stream side\n    require {uses}\n")
    file = understand(Source("s.dfs", text), given).unwrap()
    compiled = compile_schedules(file, llama_traced()[1]).unwrap()
    return compiled.text, json.loads(compiled.map)


def constant(text: str) -> object:
    tree = ast.parse(text)
    first = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    assigned = {
        ast.unparse(node.targets[0]): node.value
        for node in first.body
        if isinstance(node, ast.Assign)
    }
    return ast.literal_eval(assigned["parameters"])


@pytest.mark.parametrize(
    "parameters",
    [
        "ways = 2",
        'ways = 1 - 2; share = 0.250; word = "it\'s"; deep = true; sizes = [0.4, 0.6]',
        "; ".join(f"{NAMES}_{n} = {n}.5" for n in range(4)),
        f"sizes = [{', '.join(map(str, range(40)))}]",
        f'words = ["{"x" * 60}", "{"y" * 60}"]',
        f'word = "{"x" * 120}"',
    ],
    ids=lambda text: text[:20],
)
def test_modules_are_born_formatted(parameters: str) -> None:
    text, known = module(parameters)
    assert formatted(text) == text
    assert {"halves": constant(text)} == known["parameters"]


def test_all_digits_of_a_decimal_are_kept() -> None:
    text, known = module("share = 0.5", share="0.123456789012345678")
    assert "0.123456789012345678" in text
    assert known["given"] == {
        "parameters": {"share": "0.123456789012345678"},
        "facts": {},
    }


def test_a_part_may_be_called_parameters() -> None:
    text = HALVES.replace("mlp", "parameters")
    file = understand(Source("s.dfs", text)).unwrap()
    compiled = compile_schedules(file, llama_traced()[1]).unwrap()
    assert "self.part_parameters(" in compiled.text
