"""Parts compiled for captured sizes alone, beside those for all sizes."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dynaflow_dsl.runtime import Capture
from dynaflow_dsl.runtime import compile as compiling
from dynaflow_dsl.runtime.variants import TensorLayout, Variant
from tests.runtime.fake_graphs import IN_PLACE, FakeGraphs, loaded
from tests.runtime.test_replay import Server, agrees
from tests.runtime.toy_model import Toy

pytestmark = pytest.mark.slow


def test_pieces_of_captured_sizes_run_code_of_their_own(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[tuple[str, tuple[Any, ...]]] = []
    real = compiling._compiled

    def noting(variant: Variant, part: str, *rest: Any) -> Any:
        first = variant.arguments[0]
        assert isinstance(first, TensorLayout)
        made.append((part, first.shape))
        return real(variant, part, *rest)

    monkeypatch.setattr(compiling, "_compiled", noting)
    monkeypatch.setenv("DFSC_CACHE_DIR", str(tmp_path))
    capture = Capture({"batch": (1, 3, 4)}, in_place=IN_PLACE, static=True)
    # The fake device cannot record compiled code; what runs is the same.
    backend = FakeGraphs(elsewhere=True)
    step = loaded(halves, toy, monkeypatch, backend, capture, compiled=True)
    sizes = {shape[0] for part, shape in made if part == "attn"}
    # 3 rows are cut to 2 and 1, 4 to 2 and 2; one row is not cut.
    assert sizes == {"batch", 1, 2}
    assert {shape[0] for part, shape in made if part == "before"} == {"batch", 1, 3, 4}
    server = Server(7)
    for batch in (4, 3, 1, 7):
        agrees(step, toy, server, batch)


def test_steps_that_always_run_unsplit_have_code_for_their_whole_size(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[object] = []
    real = compiling.compile_parts

    def noting(*given: Any, **named: Any) -> Any:
        seen.append(named["static"])
        return real(*given, **named)

    monkeypatch.setattr(compiling, "compile_parts", noting)
    monkeypatch.setenv("DFSC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("DFSC_SEQUENTIAL", "1")
    capture = Capture({"batch": (4,)}, in_place=IN_PLACE, static=True)
    backend = FakeGraphs(elsewhere=True)
    step = loaded(halves, toy, monkeypatch, backend, capture, compiled=True)
    assert seen == [[({"batch": 4}, True)]]
    agrees(step, toy, Server(7), 4)


def test_without_the_option_there_is_one_code_for_all(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    real = compiling.compile_parts

    def noting(*given: Any, **named: Any) -> Any:
        seen.append(named["static"])
        return real(*given, **named)

    monkeypatch.setattr(compiling, "compile_parts", noting)
    capture = Capture({"batch": (4,)}, in_place=IN_PLACE)
    loaded(halves, toy, monkeypatch, FakeGraphs(), capture, compiled=True)
    assert seen == [[]]
