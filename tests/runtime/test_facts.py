"""Facts that a module was made with, compared where it is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import (
    Executor,
    LoadError,
    bind_group,
    release_group,
    stand_in_group,
)
from dynaflow_dsl.runtime.facts import facts_here
from dynaflow_dsl.runtime.groups import players
from tests.runtime.toy_model import Toy
from tests.runtime.write_toy_maps import EXECUTORS, module_map
from tests.verification.mutations import write_module

TEXT = (EXECUTORS / "toy_halves.py").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def nobody_plays() -> None:
    """Roles are the process's, and targets of other tests leave stand-ins in them."""
    for role in list(players()):
        release_group(role)


def made_with(
    folder: Path,
    facts: dict[str, Any],
    given: tuple[str, ...] = (),
    parameters: dict[str, str] | None = None,
) -> ModuleType:
    """The toy's module as if its schedule had read these facts."""
    document: dict[str, Any] = json.loads(json.dumps(module_map("toy_halves", TEXT)))
    document["facts"] = facts
    document["given"] = {
        "parameters": parameters or {},
        "facts": {name: facts[name] for name in given},
    }
    return write_module(folder, "toy_halves", TEXT, document)


def refusal(module: ModuleType, toy: Toy, **options: Any) -> LoadError:
    with pytest.raises(LoadError) as caught:
        module.load(toy, compile=False, **options)
    return caught.value


def loads(module: ModuleType, toy: Toy, **options: Any) -> bool:
    return isinstance(module.load(toy, compile=False, **options), Executor)


def test_another_architecture_names_the_command_that_repairs_it(
    tmp_path: Path, toy: Toy
) -> None:
    facts = {"arch": "sm90", "fast": True, "tp_size": 8}
    module = made_with(
        tmp_path, facts, given=("arch", "fast"), parameters={"sms": "[1, 2]"}
    )
    assert loads(module, toy)
    error = refusal(module, toy, facts={"arch": "sm80"})
    assert error.code == "DFS809"
    assert error.message == (
        "toy_halves.py was made for arch = sm90, by -F, and `facts` of `load` says "
        "that arch is sm80 here: compile it for this machine, `dfsc compile "
        "tests/toy_halves.dfs -P 'sms=[1, 2]' -F arch=sm80 -F fast=true`."
    )
    assert loads(module, toy, facts=facts)


def test_the_device_says_what_it_is(
    tmp_path: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    here = facts_here(toy, torch.device("cuda", 1))
    assert here["arch"] == ("sm80", "the device cuda:1")
    # A CPU has no such name: nothing is compared.
    assert "arch" not in facts_here(toy, torch.device("cpu"))


def test_facts_of_the_target_name_it(tmp_path: Path, toy: Toy) -> None:
    module = made_with(tmp_path, {"layers": 8})
    assert loads(module, toy)
    error = refusal(module, toy, facts={"layers": 4})
    assert error.message == (
        "toy_halves.py was made for layers = 8, as tests.runtime.toy_model:decode "
        "said, and `facts` of `load` says that layers is 4 here: load it where layers "
        "is 8, or compile tests/toy_halves.dfs again with a trace target whose layers "
        "is 4."
    )


def test_the_class_of_the_model_is_a_fact(tmp_path: Path, toy: Toy) -> None:
    assert loads(made_with(tmp_path, {"model": "Toy"}), toy)
    module = made_with(tmp_path, {"model": "LlamaForCausalLM"})
    error = refusal(module, toy)
    assert error.code == "DFS809"
    assert "the class of the model says that model is Toy here" in error.message
    # What the caller says goes before what the process finds.
    assert loads(module, toy, facts={"model": "LlamaForCausalLM"})
    # Without checks the process says nothing, and the caller still does.
    assert loads(module, toy, check="none")
    assert refusal(module, toy, check="none", facts={"model": "Toy"}).code == "DFS809"


def test_groups_say_how_many_ranks_there_are(tmp_path: Path, toy: Toy) -> None:
    module = made_with(tmp_path, {"tp_size": 8, "tp_rank": 1})
    assert loads(module, toy)
    try:
        bind_group("tp", stand_in_group(8, 1))
        assert loads(module, toy)
        bind_group("tp", stand_in_group(4, 1))
        error = refusal(module, toy)
    finally:
        release_group("tp")
    assert "the group that plays the role 'tp' says that tp_size is 4" in error.message


@pytest.mark.parametrize(
    ("made", "here", "same"),
    [
        (True, 1, False),
        (1, True, False),
        (2, 2.0, True),
        (0.5, 0.5, True),
        ("2", 2, False),
        (False, False, True),
    ],
)
def test_facts_are_the_same_as_a_requirement_sees_them(
    made: Any, here: Any, same: bool, tmp_path: Path, toy: Toy
) -> None:
    module = made_with(tmp_path, {"fact": made})
    if same:
        assert loads(module, toy, facts={"fact": here})
    else:
        assert refusal(module, toy, facts={"fact": here}).code == "DFS809"


@pytest.mark.parametrize("facts", [["arch"], "arch", {"arch": None}, {1: 2}, {"a": []}])
def test_what_are_no_facts(facts: Any, tmp_path: Path, toy: Toy) -> None:
    assert refusal(made_with(tmp_path, {}), toy, facts=facts).code == "DFS809"


def test_facts_that_the_module_does_not_use_are_passed_over(
    tmp_path: Path, toy: Toy
) -> None:
    assert loads(made_with(tmp_path, {}), toy, facts={"arch": "sm80", "layers": 3})


@pytest.mark.parametrize("facts", [3, {"arch": None}, {"arch": ["sm90"]}])
def test_a_map_whose_facts_are_none_is_broken(
    facts: Any, tmp_path: Path, toy: Toy
) -> None:
    module = made_with(tmp_path, {})
    path = tmp_path / "toy_halves.map.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["facts"] = facts
    path.write_text(json.dumps(document), encoding="utf-8")
    assert refusal(module, toy).code == "DFS803"
