from __future__ import annotations

import torch
from torch import nn

from dynaflow_dsl.runtime.fingerprint import fingerprint, first_difference
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
