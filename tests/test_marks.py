from __future__ import annotations

import subprocess
import sys
from threading import Thread

import pytest
import torch

import dynaflow_dsl
from dynaflow_dsl.marks import mark, recording


def test_it_is_public_and_needs_no_torch() -> None:
    assert dynaflow_dsl.mark is mark
    code = (
        "import sys; from dynaflow_dsl import mark\n"
        "with mark('a'): pass\n"
        "assert not {'torch', 'numpy', 'lark'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_open_marks_are_recorded_outermost_first() -> None:
    seen: list[list[str]] = []
    with recording() as recorder:
        with mark("outer"), mark("inner"):
            seen.append(list(recorder.open))
        seen.append(list(recorder.open))
        with mark("other"):
            seen.append(list(recorder.open))
    assert seen == [["outer", "inner"], [], ["other"]]


def test_a_decorated_function_is_marked_and_keeps_its_name() -> None:
    with recording() as recorder:

        @mark("gate")
        def gate(depth: int, *, last: int = 0) -> list[str]:
            """Doc."""
            return gate(depth - 1) if depth > last else list(recorder.open)

        assert gate(1) == ["gate", "gate"]
        assert gate(1, last=1) == ["gate"]
        assert recorder.open == []
    assert (gate.__name__, gate.__doc__) == ("gate", "Doc.")
    assert gate(0) == []


def test_a_mark_closes_when_its_body_raises() -> None:
    with recording() as recorder:
        with pytest.raises(ValueError, match="mine"), mark("outer"), mark("inner"):
            raise ValueError("mine")
        assert recorder.open == []


def test_a_mark_that_was_open_before_is_not_seen() -> None:
    outside = mark("outside")
    with outside:
        with recording() as recorder:
            assert recorder.open == []
        with outside:
            pass


def test_other_threads_are_not_seen() -> None:
    def other() -> None:
        with mark("other"):
            seen.append(list(recorder.open))

    seen: list[list[str]] = []
    with recording() as recorder, mark("mine"):
        thread = Thread(target=other)
        thread.start()
        thread.join()
        assert recorder.open == ["mine"]
    assert seen == [["mine"]]


@pytest.mark.parametrize("name", ["", "two words", 'a"', "mark:a", "*", "ä", None])
def test_a_name_that_no_schedule_could_write(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a mark"):
        mark(name)


def test_a_marked_model_compiles_as_one_graph() -> None:
    """Who compiles the model otherwise sees no mark: nothing breaks the graph."""

    @mark("relu")
    def relu(x: torch.Tensor) -> torch.Tensor:
        return x.relu()

    def forward(x: torch.Tensor) -> torch.Tensor:
        with mark("double"):
            y = x * 2
        return relu(y)

    compiled = torch.compile(forward, backend="eager", fullgraph=True)
    x = torch.tensor([-1.0, 2.0])
    assert torch.equal(compiled(x), forward(x))
