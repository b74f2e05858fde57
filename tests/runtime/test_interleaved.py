"""Parts that are compiled while kernels of other parts still are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._guards import TracingContext, tracing
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.triton_bundler import TritonBundler
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode

from dynaflow_dsl.runtime import Executor, LoadError, TensorSpec, inductor
from dynaflow_dsl.runtime import compile as compile_room
from dynaflow_dsl.runtime.compile import compile_parts
from dynaflow_dsl.runtime.inductor import apart, waiting_for_kernels
from dynaflow_dsl.runtime.interleaved import interleaved
from dynaflow_dsl.runtime.weights import Weights
from tests.runtime.test_variants import WithoutKernels

aten = torch.ops.aten


def wait() -> None:
    """What generated code does at its end."""
    AsyncCompile().wait({})


@pytest.fixture
def seen() -> list[str]:
    return []


def waiting(seen: list[str], name: str) -> Callable[[], str]:
    def task() -> str:
        seen.append(f"{name} begins")
        wait()
        seen.append(f"{name} ends")
        return name

    return task


def test_the_next_task_begins_inside_the_one_that_waits(seen: list[str]) -> None:
    tasks = [waiting(seen, name) for name in "abc"]

    assert interleaved(tasks) == ["a", "b", "c"]

    begun, ended = ["a begins", "b begins", "c begins"], ["c ends", "b ends", "a ends"]
    assert seen == [*begun, *ended]


def test_tasks_that_do_not_wait_run_in_turn(seen: list[str]) -> None:
    assert interleaved([lambda: seen.append("a"), lambda: seen.append("b")]) == [
        None,
        None,
    ]
    assert seen == ["a", "b"]


def test_a_failure_belongs_to_its_own_task(seen: list[str]) -> None:
    def failing() -> str:
        raise ValueError("b is wrong")

    tasks = [waiting(seen, "a"), failing, waiting(seen, "c")]

    with pytest.raises(ValueError, match="b is wrong"):
        interleaved(tasks)

    # The one that waited came to its end, and no other began.
    assert seen == ["a begins", "a ends"]


def test_the_first_failure_in_the_order_of_tasks_is_raised() -> None:
    def outer() -> None:
        wait()
        raise ValueError("first")

    def inner() -> None:
        raise ValueError("second")

    with pytest.raises(ValueError, match="first"):
        interleaved([outer, inner])


def test_without_room_on_the_stack_tasks_wait_for_each_other(
    seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.getrecursionlimit", lambda: 0)
    tasks = [waiting(seen, name) for name in "ab"]

    assert interleaved(tasks) == ["a", "b"]

    assert seen == ["a begins", "a ends", "b begins", "b ends"]


def test_inductor_is_as_it_was_afterwards() -> None:
    before = AsyncCompile.wait, AsyncCompile.__dict__["use_process_pool"]

    with pytest.raises(ZeroDivisionError):
        interleaved([lambda: 1 / 0])

    assert (AsyncCompile.wait, AsyncCompile.__dict__["use_process_pool"]) == before


def test_other_threads_wait_as_ever() -> None:
    called: list[int] = []
    with waiting_for_kernels(lambda: called.append(threading.get_ident())):
        other = threading.Thread(target=wait)
        other.start()
        other.join()
        assert called == []
        wait()
    assert called == [threading.get_ident()]


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Worker processes of Inductor that are never ready."""
    started: list[str] = []

    def starting(cls: Any) -> bool:
        started.append("started")
        cls._ready_future = Future()
        return False

    monkeypatch.setattr(AsyncCompile, "_ready_future", None)
    monkeypatch.setattr(AsyncCompile, "use_process_pool", classmethod(starting))
    return started


def test_workers_get_all_kernels_even_before_they_are_ready(workers: list[str]) -> None:
    assert not AsyncCompile.use_process_pool()
    with waiting_for_kernels(lambda: None):
        assert AsyncCompile.use_process_pool()
    assert not AsyncCompile.use_process_pool()
    assert len(workers) == 3


def test_workers_that_never_start_are_no_silent_hang(
    workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inductor, "WORKERS_START", 0.01)
    with waiting_for_kernels(lambda: None):
        AsyncCompile.use_process_pool()
        with pytest.raises(RuntimeError, match="COMPILE_THREADS=1"):
            wait()


def test_where_there_can_be_no_workers_kernels_are_compiled_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AsyncCompile, "_ready_future", None)
    monkeypatch.setattr(
        AsyncCompile, "use_process_pool", classmethod(lambda cls: False)
    )
    with waiting_for_kernels(lambda: None):
        assert not AsyncCompile.use_process_pool()


def test_compilations_that_are_apart_share_nothing() -> None:
    bundler: Any = TritonBundler
    before = bundler._entries
    bundler._entries = kernels = ["a kernel"]
    mode = FakeTensorMode()
    try:
        with tracing(TracingContext(mode)), V.set_aot_compilation(True):
            with apart():
                assert bundler._entries is None
                assert TracingContext.try_get() is None
                assert not V.aot_compilation
                bundler._entries = ["another"]
            assert bundler._entries is kernels
            assert V.aot_compilation
            context = TracingContext.try_get()
            assert context is not None
            assert context.fake_mode is mode
    finally:
        bundler._entries = before


def scaled(scale: float) -> Callable[..., torch.Tensor]:
    def function(w: object, rows: torch.Tensor) -> torch.Tensor:
        return aten.sin.default(aten.mul.Tensor(rows, scale))

    return function


PARTS = {"first": scaled(0.5), "second": scaled(0.25), "third": scaled(2.0)}


def sequential(self: Any, rows: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = self.third(0, self.second(0, self.first(0, rows)))
    return result


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Begin and end of each compilation, by the number that its graph multiplies by."""
    written: list[str] = []

    def logged(graph: torch.fx.GraphModule, *rest: Any) -> bytes:
        (product,) = (node for node in graph.graph.nodes if "mul" in node.name)
        scale = product.args[1]
        written.append(f"{scale} begins")
        content = inductor.compile_graph(graph, *rest)
        written.append(f"{scale} ends")
        return content

    monkeypatch.setattr(compile_room, "compile_graph", logged)
    return written


def compiled(folder: Path) -> Callable[[torch.Tensor], torch.Tensor]:
    inputs = {"rows": TensorSpec("float32", "batch", 4)}
    body = {"entry": "test", "inputs": inputs, "sequential": sequential}
    executor: type[Executor] = type("Tested", (WithoutKernels,), body)
    functions = {name: [function] for name, function in PARTS.items()}
    weights: dict[str, list[Weights]] = {name: [{}] for name in PARTS}
    calls = compile_parts(executor, functions, weights, torch.device("cpu"), folder)

    def run(rows: torch.Tensor) -> torch.Tensor:
        for name in PARTS:
            rows = calls[name][0](rows)
        return rows

    return run


ROWS = torch.arange(12.0).reshape(3, 4)
EXPECTED = ((ROWS * 0.5).sin() * 0.25).sin().mul(2.0).sin()


@pytest.mark.slow
def test_parts_are_compiled_inside_each_other(tmp_path: Path, log: list[str]) -> None:
    torch.testing.assert_close(compiled(tmp_path)(ROWS), EXPECTED)

    begun = ["0.5 begins", "0.25 begins", "2.0 begins"]
    assert log == [*begun, "2.0 ends", "0.25 ends", "0.5 ends"]

    # What was kept is whole: it is loaded without a compilation.
    torch.testing.assert_close(compiled(tmp_path)(ROWS), EXPECTED)
    assert len(log) == 6


@pytest.mark.slow
def test_a_part_that_cannot_be_compiled_spoils_no_other(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = inductor.compile_graph

    def refusing(graph: torch.fx.GraphModule, *rest: Any) -> bytes:
        if "0.25" in str(graph.graph):
            raise RuntimeError("not this one")
        return real(graph, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(inductor, "compile_graph", refusing)
        with pytest.raises(LoadError, match="part `second`"):
            compiled(tmp_path)
    kept = len(list(tmp_path.glob("*.part")))

    log.clear()
    torch.testing.assert_close(compiled(tmp_path)(ROWS), EXPECTED)
    assert len(log) == 2 * (len(PARTS) - kept)


def test_a_compilation_by_torch_compile_on_another_thread_waits(tmp_path: Path) -> None:
    entered, errors = threading.Event(), []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        entered.set()
        # As Inductor does: there is one list of kernels in the process.
        TritonBundler.begin_compile()
        TritonBundler.end_compile()
        return graph.forward

    def other() -> None:
        try:
            torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
        except Exception as error:
            errors.append(error)

    # What Dynamo does first takes a while.
    torch.compile(lambda x: x + 2, backend=backend)(torch.ones(2))
    entered.clear()
    thread = threading.Thread(target=other)
    with inductor.inductor_cache(tmp_path):
        TritonBundler.begin_compile()
        thread.start()
        at_once = entered.wait(timeout=1)
        TritonBundler.end_compile()
    thread.join(timeout=60)
    assert errors == []
    assert entered.is_set()
    assert not at_once


def test_compiling_waits_for_torch_compile_on_another_thread_that_comes_here(
    tmp_path: Path,
) -> None:
    entered, left = threading.Event(), threading.Event()

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        entered.set()
        threading.Event().wait(timeout=0.5)
        # As the backend of schedules does, which loads.
        with inductor.inductor_cache(tmp_path):
            left.set()
        return graph.forward

    def other() -> None:
        torch.compile(lambda x: x - 1, backend=backend)(torch.ones(2))

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    assert entered.wait(timeout=60)
    with inductor.inductor_cache(tmp_path):
        assert left.is_set()
        # Here parts may be compiled that use `torch.compile` themselves.
        torch.compile(lambda x: x * 3, backend="eager")(torch.ones(2))
    thread.join(timeout=60)
    assert not thread.is_alive()
