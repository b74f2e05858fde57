from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from dynaflow_dsl.runtime.fingerprint import (
    fingerprint,
    first_difference,
    tensor_difference,
)
from tests.runtime.toy_model import Toy


class Configuration:
    def __init__(self, size: int) -> None:
        self.size = size

    def to_dict(self) -> dict[str, object]:
        return {"size": self.size, "dtype": torch.float32, "_name_or_path": "here"}


class Configured(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.config = Configuration(size)


def test_equal_models_have_no_difference(toy: Toy) -> None:
    assert first_difference(fingerprint(toy), Toy()) is None


def test_differences_are_named() -> None:
    expected = fingerprint(Configured(3))
    difference = first_difference(expected, Configured(4))
    assert difference == "its configuration differs"
    assert first_difference({"transformers": "1.0"}, Configured(3)) == (
        "it was traced with transformers 1.0, and transformers is not in use here"
    )


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.factor = 2.0


def tied() -> Pair:
    model = Pair()
    model.second.weight = model.first.weight
    return model


KNOWN = ("first.weight", "first.bias", "second.weight", "second.bias")


def test_a_tensor_more_is_named() -> None:
    expected = fingerprint(Pair())["tensors"]
    assert tensor_difference(expected, Pair(), KNOWN) is None
    longer = Pair()
    longer.register_buffer("third", torch.zeros(2))
    assert tensor_difference(expected, longer, KNOWN) == (
        "it has other tensors: `third` is not one of the module's"
    )
    longer.register_buffer("fourth", torch.zeros(3))
    assert "`third` is not" in str(tensor_difference(expected, longer, KNOWN))


def test_ties_that_were_made_or_undone_are_named() -> None:
    apart, together = (fingerprint(model)["tensors"] for model in (Pair(), tied()))
    assert tensor_difference(apart, tied(), KNOWN) == (
        "it ties tensors that were apart: `first.weight` and `second.weight` are one "
        "tensor"
    )
    assert tensor_difference(together, Pair(), KNOWN) == (
        "it has other tensors, or ties others, than the traced model (it ties none)"
    )


def test_meta_models_tie_the_same_tensors() -> None:
    with torch.device("meta"):
        meta = tied()
    assert fingerprint(meta) == fingerprint(tied())


def set_factor(model: Pair) -> None:
    model.factor = 3.0


def patch(model: Pair) -> None:
    vars(model.first)["forward"] = torch.relu


def hook(model: Pair) -> None:
    model.first.register_forward_hook(lambda *_: None)


def hook_before(model: Pair) -> None:
    model.first.register_forward_pre_hook(lambda *_: None)


@pytest.mark.parametrize("change", [set_factor, patch, hook, hook_before])
def test_state_that_is_no_tensor_counts(change: Callable[[Pair], None]) -> None:
    model = Pair()
    change(model)
    assert "plain attributes, hooks" in str(
        first_difference(fingerprint(Pair()), model)
    )


def test_state_of_the_machine_does_not_count() -> None:
    model = Pair()
    model.train(False)
    model._count = 3  # type: ignore[assignment]
    for name, value in (
        ("device", "cuda:1"),
        ("place", "<object at 0x7f00aa>"),
        ("name_or_path", "there"),
    ):
        setattr(model, name, value)
    assert fingerprint(model) == fingerprint(Pair())


def test_another_process_says_the_same() -> None:
    script = (
        "from tests.runtime.test_fingerprint import tied, fingerprint\n"
        "print(fingerprint(tied()))\n"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == f"{fingerprint(tied())}\n", done.stderr


def test_versions_are_named_first() -> None:
    expected = {"state": "0" * 12, "torch": "1.0"}
    assert str(first_difference(expected, Pair())).startswith("it was traced with")
