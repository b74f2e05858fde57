"""Tracing leaves no trace in the user's model."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import suppress
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dynaflow_dsl.trace import trace
from dynaflow_dsl.trace.restoring import left_as_it_was
from tests.trace.specs import module, spec_of


class Box:
    """A container that torch copies, and that nobody else can fill."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)


pytree.register_pytree_node(
    Box, lambda box: (list(box.items), None), lambda items, _: Box(*items)
)


def test_attributes_are_the_objects_that_they_were() -> None:
    shared = ["a", {"b": [1]}]
    box = Box(1)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner.shared[1]["b"][0]

    inner = module(lambda _, x: x, shared=shared)
    model = module(forward, shared=shared, pair=(shared, 2), box=box, inner=inner)
    assert trace(spec_of(model, ("batch", 2)), "", {}).value is not None
    assert model.shared is model.pair[0] is inner.shared is shared
    assert model.box is box


def test_what_the_code_keeps_is_gone() -> None:
    """A tensor of a trace has no memory: the model's next own call would read it."""
    held: dict[str, Any] = {
        "log": [1],
        "table": {"a": [1]},
        "ordered": OrderedDict(a=1, b=2),
        "last": deque([1], 2),
        "seen": {1},
    }

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.log.append(x)
        self.table["a"].append(x)
        self.table["x"] = x
        self.ordered.move_to_end("a")
        self.last.extend([x, x])
        self.seen.add(2)
        self.result = x + 1
        return self.result

    model = module(forward, **held)
    assert trace(spec_of(model, ("batch", 2)), "", {}).value is not None
    assert not hasattr(model, "result")
    assert {name: getattr(model, name) for name in held} == {
        "log": [1],
        "table": {"a": [1]},
        "ordered": OrderedDict(a=1, b=2),
        "last": deque([1], 2),
        "seen": {1},
    }
    assert list(model.ordered) == ["a", "b"]
    assert all(getattr(model, name) is value for name, value in held.items())


def test_a_container_that_cannot_be_filled_again_is_a_copy() -> None:
    box = Box(1)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.box.items.append(x)
        return x + 1

    model = module(forward, box=box)
    assert trace(spec_of(model, ("batch", 2)), "", {}).value is not None
    assert model.box.items == [1]


def test_a_trace_that_fails_leaves_nothing_either() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.kept = x + 1
        return self.kept if bool(x.sum() > 0) else x

    model = module(forward)
    assert trace(spec_of(model, ("batch", 2)), "", {}).value is None
    assert not hasattr(model, "kept")


def test_containers_that_hold_themselves() -> None:
    model = module(lambda _, x: x)
    model.ring = ring = [1]
    ring.append(ring)  # type: ignore[arg-type]
    with suppress(ZeroDivisionError), left_as_it_was(model):
        ring.clear()
        raise ZeroDivisionError
    assert ring[1] is ring
