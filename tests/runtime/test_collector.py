from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from dynaflow_dsl.runtime.collector import no_collections


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.enable()


@pytest.mark.parametrize("collecting", [True, False])
def test_the_collector_is_as_it_was_afterwards(collecting: bool) -> None:
    if not collecting:
        gc.disable()
    with no_collections():
        assert not gc.isenabled()
        with no_collections():
            pass
        assert not gc.isenabled()
    assert gc.isenabled() is collecting


def test_the_collector_runs_again_after_a_failure() -> None:
    with pytest.raises(ValueError, match="inside"), no_collections():
        raise ValueError("inside")
    assert gc.isenabled()
