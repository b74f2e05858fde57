from __future__ import annotations

import torch
from torch import nn

from dynaflow_dsl.runtime import fingerprint as loading
from dynaflow_dsl.runtime.fingerprint import fingerprint, first_difference
from dynaflow_dsl.trace import fingerprint as tracing
from dynaflow_dsl.trace.fingerprint import fingerprint as traced_fingerprint
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


def test_tracing_and_loading_agree(toy: Toy) -> None:
    for model in (toy, Configured(3), nn.Linear(2, 2)):
        assert fingerprint(model) == dict(traced_fingerprint(model))
    assert loading._NOT_THE_MODEL == tracing._NOT_THE_MODEL


def test_equal_models_have_no_difference(toy: Toy) -> None:
    assert first_difference(fingerprint(toy), Toy()) is None


def test_differences_are_named() -> None:
    expected = fingerprint(Configured(3))
    difference = first_difference(expected, Configured(4))
    assert difference == "its configuration differs"
    assert first_difference({"transformers": "1.0"}, Configured(3)) == (
        "it was traced with transformers 1.0, and transformers is not in use here"
    )
