from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import LoadError, Streams, make_streams
from dynaflow_dsl.runtime.cuda_streams import CurrentStream, SideStream
from dynaflow_dsl.runtime.stream_names import group_of_stream


class Noting:
    """A stream that writes down what it is asked to do."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, traceback: object) -> None: ...

    def record(self) -> str:
        self.log.append(f"{self.name} records")
        return self.name

    def wait(self, event: str) -> None:
        self.log.append(f"{self.name} waits for {event}")


def test_main_comes_first_then_the_named_ones_in_order() -> None:
    streams = make_streams(torch.device("cpu"), ("side", "copy"))
    assert [stream.name for stream in streams] == ["main", "side", "copy"]


def test_join_goes_both_ways() -> None:
    log: list[str] = []
    Streams(Noting("main", log), Noting("a", log), Noting("b", log)).join()
    assert log == [
        "a records",
        "main waits for a",
        "b records",
        "main waits for b",
        "main records",
        "a waits for main",
        "b waits for main",
    ]


def test_join_of_main_alone_does_nothing() -> None:
    log: list[str] = []
    Streams(Noting("main", log)).join()
    assert log == []


def test_a_device_without_streams_is_refused() -> None:
    with pytest.raises(LoadError, match="`meta` was asked for") as caught:
        make_streams(torch.device("meta"), ())
    assert caught.value.code == "DFS801"


def test_a_stream_of_a_device_is_named_while_it_is_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: None)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: None)
    # PyTorch has given one of its streams to two of schedules.
    shared: Any = SimpleNamespace(device=torch.device("cuda", 0), cuda_stream=7)
    first, second = SideStream("first", shared), SideStream("second", shared)
    main = CurrentStream(torch.device("cuda", 0))
    found = []
    for stream in (main, first, second, main):
        with stream:
            found.append(group_of_stream("tp"))
    assert found == ["tp", "tp:first", "tp:second", "tp"]
    # A step that is called from a stream of another one.
    with first:
        with second:
            pass
        assert group_of_stream("tp") == "tp:first"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_device_is_refused() -> None:
    with pytest.raises(LoadError, match="finds no CUDA device") as caught:
        make_streams(torch.device("cuda"), ())
    assert caught.value.code == "DFS801"
