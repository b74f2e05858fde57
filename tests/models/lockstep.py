"""Several ranks as threads of one process, for models that talk through collectives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch

from dynaflow_dsl.models import collectives, exchange

Result = TypeVar("Result")


class Lockstep:
    """Functional collectives between threads; each waits until all have called."""

    def __init__(self, ways: int) -> None:
        self.ways = ways
        self._barrier = threading.Barrier(ways, timeout=60)
        self._given: list[Any] = [None] * ways
        self._here = threading.local()

    def rank(self, _role: str) -> int:
        return int(self._here.rank)

    def all_reduce(self, tensor: torch.Tensor, kind: str, role: str) -> torch.Tensor:
        assert kind == "sum"
        return torch.stack(self._swap(tensor)).sum(0)

    def all_gather_into_tensor(
        self, tensor: torch.Tensor, ranks: int, role: str
    ) -> torch.Tensor:
        assert ranks == self.ways
        return torch.cat(self._swap(tensor))

    def all_to_all_single(
        self, tensor: torch.Tensor, arriving: list[int], leaving: list[int], role: str
    ) -> torch.Tensor:
        assert sum(leaving) == tensor.shape[0]
        pieces = [sent[self.rank(role)] for sent in self._swap(tensor.split(leaving))]
        assert [piece.shape[0] for piece in pieces] == arriving
        return torch.cat(pieces)

    def wait_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """What `function` returns on each rank; raises what the first rank raised."""
        results: dict[int, Result] = {}
        errors: dict[int, BaseException] = {}

        def target(rank: int) -> None:
            self._here.rank = rank
            try:
                with torch.no_grad():
                    results[rank] = function(rank)
            except BaseException as error:
                errors[rank] = error
                self._barrier.abort()

        threads = [
            threading.Thread(target=target, args=(rank,)) for rank in range(self.ways)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._barrier.reset()
        broken = threading.BrokenBarrierError
        for error in sorted(errors.values(), key=lambda e: isinstance(e, broken)):
            raise error
        return [results[rank] for rank in range(self.ways)]

    def _swap(self, given: Any) -> list[Any]:
        self._given[self._here.rank] = given
        self._barrier.wait()
        swapped = list(self._given)
        self._barrier.wait()
        return swapped


def on_ranks(
    monkeypatch: pytest.MonkeyPatch, ways: int, function: Callable[[int], Result]
) -> list[Result]:
    """Run `function` on `ways` ranks at once."""
    ranks = Lockstep(ways)
    monkeypatch.setattr(collectives, "_OPERATORS", ranks)
    monkeypatch.setattr(exchange, "group_rank", ranks.rank)
    # An earlier target in this process may have left a stand-in for the ranks.
    for module in (collectives, exchange):
        monkeypatch.setattr(module, "is_stand_in", lambda role: False)
    return ranks.run(function)
