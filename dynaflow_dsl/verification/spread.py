"""Operations that give other bits each time, and how far that takes a step.

Additions by atomics come in another order in each run, on one stream too. Where a step
is not equal to itself, equality bit for bit can be asked of nothing; what is left is to
stay as near as two runs on one stream are to each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dynaflow_dsl.runtime.distances import distance, usual_magnitude
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.module_map import read_map
from dynaflow_dsl.verification.results import Result, copied, tensors_of
from dynaflow_dsl.verification.state import ModelState, same_bits

# Runs on one stream that are compared with the first.
RUNS = 5
# Another order of additions may be this much further away than those that were seen.
FACTOR = 4.0

# Operators that PyTorch names in its notes on `torch.use_deterministic_algorithms` for
# CUDA, as far as inference has them.
LISTED = frozenset(
    {
        "aten::_embedding_bag",
        "aten::bincount",
        "aten::cumsum",
        "aten::histc",
        "aten::index_add",
        "aten::index_add_",
        "aten::index_copy",
        "aten::index_copy_",
        "aten::index_put",
        "aten::index_put_",
        "aten::kthvalue",
        "aten::median",
        "aten::put_",
        "aten::resize_",
        "aten::scatter",
        "aten::scatter_",
        "aten::scatter_add",
        "aten::scatter_add_",
        "aten::scatter_reduce",
        "aten::scatter_reduce_",
    }
)


@dataclass(frozen=True, slots=True)
class Spread:
    """How far runs of one step on one stream were apart, at most.

    `operations` are those whose results differed though what they were given did not.
    """

    largest: float
    operations: tuple[str, ...]

    @property
    def allowed(self) -> float:
        """How far another run may be from one of those."""
        return FACTOR * self.largest

    def __str__(self) -> str:
        said = f"one stream differs from itself by {self.largest:.1e}"
        if not self.operations:
            return f"{said}, in no operation of the text alone"
        return f"{said}: {', '.join(self.operations)}"


def find_spread(
    run: Callable[[], Result], first: Result, operations: Callable[[], Sequence[str]]
) -> Spread | None:
    """How far `run` goes from what it gave first; None where every run is equal.

    `run` must run on one stream. `operations` looks for those that make the difference.
    """
    largest = 0.0
    differs = False
    around = usual_magnitude([*first.tensors, *first.buffers.values()])
    for _ in range(RUNS):
        other = run()
        pairs = [*zip(other.tensors, first.tensors, strict=True)]
        pairs += [
            (tensor, first.buffers[name])
            for name, tensor in other.buffers.items()
            if name in first.buffers
        ]
        for one, expected in pairs:
            if not same_bits(one, expected):
                differs = True
                apart = distance(one, expected, around)
                largest = max(largest, apart.relative)
    return Spread(largest, tuple(operations())) if differs else None


def unrepeatable(
    executor: Executor, arguments: Sequence[Any], state: ModelState
) -> tuple[str, ...]:
    """Operations that give other bits for the same bits, with their steps.

    `executor` runs its text as it stands, on one stream. Two runs are compared
    operation by operation; where both agree, what PyTorch lists is named instead.
    """
    runs = []
    for _ in range(2):
        given = copied(arguments)
        digests = _Digests(type(executor).step.__code__.co_filename)
        try:
            with digests:
                executor(*given)
        finally:
            state.restore()
        runs.append(digests.seen)
    found = [
        one.named
        for one, other in zip(*runs, strict=False)
        if _values(one.given) == _values(other.given)
        and _values(one.made) != _values(other.made)
    ]
    if not found:
        found = [
            f"{one.named}, which did not differ when looked at alone"
            for one in runs[0]
            if one.listed
        ]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Seen:
    """An operation with digests of what it read and of what it left."""

    operator: str
    place: str
    listed: bool
    given: tuple[torch.Tensor, ...]
    made: tuple[torch.Tensor, ...]

    @property
    def named(self) -> str:
        where = f" in {self.place}" if self.place else ""
        known = "" if self.listed else " (not listed by PyTorch)"
        return f"{self.operator}{where}{known}"


class _Digests(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes a digest of what every operation reads and leaves."""

    def __init__(self, file: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[_Seen] = []
        self._file = file
        self._map = read_map(Path(file))

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        given = tuple(_digest(one) for one in tensors_of((args, named)))
        result = func(*args, **named)
        # What was written in place is among the arguments.
        left = [*tree_leaves(result), *tree_leaves((args, named))]
        self.seen.append(
            _Seen(
                str(func),
                self._place(),
                func._schema.name in LISTED,
                given,
                tuple(_digest(one) for one in tensors_of(left)),
            )
        )
        return result

    def _place(self) -> str:
        """The step that runs, by the outermost line of the module."""
        frame: FrameType | None = sys._getframe()
        line = 0
        while frame is not None:
            if frame.f_code.co_filename == self._file:
                line = frame.f_lineno
            frame = frame.f_back
        entry = self._map.plan_lines(line)
        return "" if entry is None else entry.label.removeprefix("prev.")


# Integers of the width of an element, to read its bits as.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _digest(tensor: torch.Tensor) -> torch.Tensor:
    """A number of all bits and their places; it stays on the device."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.detach().contiguous().flatten()
    bits = flat.view(_INTEGERS[flat.element_size()]).to(torch.int64)
    places = torch.arange(1, bits.numel() + 1, device=bits.device)
    return (bits * places).sum()


def _values(digests: Sequence[torch.Tensor]) -> list[int]:
    return [int(one) for one in digests]
