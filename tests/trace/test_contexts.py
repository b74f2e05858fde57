"""Functions and marks of the model's code on the operations of a graph."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.graph.snapshot import dump_snapshot, parse_snapshot
from dynaflow_dsl.marks import mark
from dynaflow_dsl.trace import trace
from dynaflow_dsl.trace.target import load_target
from tests.trace.specs import graph_of, module, spec_of

X = ("batch", 4)
HERE = __name__


def named(graph: Graph, of: Callable[[Any], tuple[str, ...]]) -> list[tuple[str, str]]:
    """Operators without namespace and overload, each with its names in one text."""
    return [(o.operator.split(".")[1], " ".join(of(o))) for o in graph.operations]


def marks(graph: Graph) -> list[tuple[str, str]]:
    return named(graph, lambda operation: operation.marks)


def functions(graph: Graph) -> list[tuple[str, str]]:
    """Functions of this file, without its name."""
    prefix = f"{HERE}."
    return named(
        graph,
        lambda operation: tuple(
            name.removeprefix(prefix)
            for name in operation.functions
            if name.startswith(prefix)
        ),
    )


# ---- marks ---------------------------------------------------------------------------


def test_marks_nest_and_end() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        with mark("outer"):
            y = x.relu()
            with mark("inner"):
                y = y.sigmoid()
            y = y.tanh()
        return y.exp()

    assert marks(graph_of(module(forward), X)) == [
        ("relu", "outer"),
        ("sigmoid", "outer inner"),
        ("tanh", "outer"),
        ("exp", ""),
    ]


def test_a_mark_covers_submodules_and_is_there_in_every_layer() -> None:
    def block(self: Any, x: torch.Tensor) -> torch.Tensor:
        with mark("gate"):
            y = self.inner(x)
        return x + y

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))

    layers = {
        name: module(block, inner=torch.nn.ReLU()) for name in ("first", "second")
    }
    graph = graph_of(module(forward, **layers), X)
    assert [(o.module, *o.marks) for o in graph.operations] == [
        ("first.inner", "gate"),
        ("first",),
        ("second.inner", "gate"),
        ("second",),
    ]


@mark("decorated")
def marked(x: torch.Tensor) -> torch.Tensor:
    return x.relu()


class Marked(torch.nn.Module):
    @mark("method")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return marked(x).tanh()


def test_decorators_mark_functions_and_methods() -> None:
    graph = graph_of(Marked().eval(), X)
    assert marks(graph) == [("relu", "method decorated"), ("tanh", "method")]
    assert functions(graph) == [
        ("relu", "Marked.forward marked"),
        ("tanh", "Marked.forward"),
    ]


def test_marks_stay_when_calls_that_do_nothing_go() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        with mark("nothing"):
            x = x.float().contiguous()
        with mark("something"):
            y, _ = torch.topk(x.contiguous(), 2)
            y.add_(1)
        return y

    assert marks(graph_of(module(forward), X)) == [
        ("topk", "something"),
        ("add_", "something"),
    ]


def test_meta_and_real_models_have_the_same_contexts() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with mark("linear"):
            return self.linear(x)

    def made() -> torch.nn.Module:
        return module(forward, linear=torch.nn.Linear(4, 4))

    with torch.device("meta"):
        meta = made()
    real = graph_of(made(), X)
    assert graph_of(meta, X) == real
    assert marks(real) == [("linear", "linear")]


def test_contexts_are_in_the_snapshot() -> None:
    traced = trace(spec_of(Marked().eval(), X), "target", {}).unwrap()
    assert traced.graphs[0].operations[0].marks == ("method", "decorated")
    assert parse_snapshot(dump_snapshot(traced), "m").unwrap() == traced


# ---- functions -----------------------------------------------------------------------


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments).exp()

    return wrapper


@wrapping
def wrapped(x: torch.Tensor) -> torch.Tensor:
    return x.sigmoid()


def plain(x: torch.Tensor) -> torch.Tensor:
    def nested(x: torch.Tensor) -> torch.Tensor:
        return x.tanh()

    return nested(x).relu()


class Calling(torch.nn.Module):
    @staticmethod
    def helper(x: torch.Tensor) -> torch.Tensor:
        return x.neg()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = wrapped(plain(self.helper(x)))
        y = sum([x.abs() for _ in range(1)])
        return (lambda x: x.floor())(y)


def test_functions_have_qualified_names() -> None:
    assert functions(graph_of(Calling().eval(), X)) == [
        ("neg", "Calling.forward Calling.helper"),
        ("tanh", "Calling.forward plain plain.nested"),
        ("relu", "Calling.forward plain"),
        ("sigmoid", "Calling.forward wrapping.wrapper wrapped"),
        # What a wrapper does itself is not done by the function inside.
        ("exp", "Calling.forward wrapping.wrapper"),
        ("abs", "Calling.forward"),
        ("add", "Calling.forward"),
        ("floor", "Calling.forward"),
    ]


def test_torch_and_the_library_of_python_do_not_count() -> None:
    @contextlib.contextmanager
    def scope() -> Any:
        yield

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with scope():
            x = torch.nn.functional.normalize(x)
        return functools.reduce(torch.add, [x, x], x)

    names = {
        name
        for operation in graph_of(module(forward), X).operations
        for name in operation.functions
    }
    assert names == {
        f"{HERE}.test_torch_and_the_library_of_python_do_not_count.forward"
    }


def test_recursion_names_a_function_once() -> None:
    def halve(x: torch.Tensor, depth: int) -> torch.Tensor:
        return halve(x * 0.5, depth - 1) if depth else x

    graph = graph_of(module(lambda self, x: halve(x, 2)), X)
    name = "test_recursion_names_a_function_once.halve"
    assert functions(graph) == [("mul", name), ("mul", name)]


def test_functions_of_a_file_begin_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "targets.py").write_text(
        """
import torch
from dynaflow_dsl.trace import Entry, TraceSpec

def gate(x):
    return x.sigmoid()

class Model(torch.nn.Module):
    def forward(self, x):
        return gate(x)

def target():
    return TraceSpec(
        model=Model().eval(),
        entries={"run": Entry(lambda sizes: (torch.rand(sizes["batch"], 2),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, None)},
    )
"""
    )
    spec = load_target(f"{tmp_path}/targets.py:target", {}, None).unwrap()
    traced = trace(spec, "target", {}).unwrap()
    (operation,) = traced.graphs[0].operations
    assert operation.functions == ("targets.Model.forward", "targets.gate")


@pytest.mark.parametrize("times", [2])
def test_tracing_again_gives_the_same(times: int) -> None:
    model = Calling().eval()
    assert len({graph_of(model, X) for _ in range(times)}) == 1
