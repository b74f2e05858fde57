"""Streams whose matrix products are planned for some multiprocessors."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import LoadError, gemm_target
from dynaflow_dsl.runtime.cuda_streams import SideStream
from dynaflow_dsl.runtime.gemm_target import GemmTarget
from dynaflow_dsl.runtime.stream_names import name_of_current_stream


class Cublas:
    """A library that counts multiprocessors, and says whether it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []
        self.status = 0

    def cublasSetSmCountTarget(  # noqa: N802 - as it is called
        self, handle: Any, count: Any
    ) -> int:
        self.told.append((handle.value, count.value))
        return self.status


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cublas]:
    library = Cublas()
    monkeypatch.setattr(gemm_target, "_cublas", lambda: library)
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: 77)
    device = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    yield library
    torch._C._set_sm_carveout_experimental(None)


def test_products_are_planned_for_the_stream_and_then_as_before(cublas: Cublas) -> None:
    target = gemm_target.gemm_target(0, "side", 24)
    torch._C._set_sm_carveout_experimental(8)  # what the user has set
    target.begin()
    assert torch._C._get_sm_carveout_experimental() == 132 - 24
    assert cublas.told == [(77, 24)]
    target.end()
    assert torch._C._get_sm_carveout_experimental() == 8
    assert cublas.told[1:] == [(77, 0)]


def test_a_library_that_refuses_is_no_silent_success(cublas: Cublas) -> None:
    cublas.status = 7
    with pytest.raises(RuntimeError, match="status 7"):
        GemmTarget(0, 24, 132).begin()
    assert torch._C._get_sm_carveout_experimental() is None


def test_more_than_the_device_has(cublas: Cublas) -> None:
    with pytest.raises(LoadError, match=r"`side` .* 133 .*the device has 132"):
        gemm_target.gemm_target(0, "side", 133)
    assert gemm_target.gemm_target(0, "side", 132).sms == 132


def test_a_pytorch_that_cannot_tell_cublas(
    cublas: Cublas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise OSError("no library")

    monkeypatch.setattr(gemm_target, "_cublas", missing)
    with pytest.raises(LoadError, match="leave `gemm_sms` out"):
        gemm_target.gemm_target(0, "side", 24)


def test_one_stream_takes_the_kernels_that_many_take(
    cublas: Cublas, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dynaflow_dsl.runtime.cuda_streams import in_turn
    from dynaflow_dsl.runtime.model import StreamOptions

    options = {"side": StreamOptions(gemm_sms=24), "other": StreamOptions("high")}
    device = torch.device("cuda", 0)
    main, side, other = in_turn(device, ["side", "other"], options)
    seen = []
    for stream in (main, side, other):
        with stream:
            seen.append(torch._C._get_sm_carveout_experimental())
    assert seen == [None, 132 - 24, None]
    assert cublas.told == [(77, 24), (77, 0)]


@pytest.mark.parametrize("where", ["begin", "end"])
def test_a_library_that_refuses_leaves_the_stream_of_the_caller(
    where: str, cublas: Cublas, monkeypatch: pytest.MonkeyPatch
) -> None:
    current: list[Any] = ["the caller's"]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current[-1])
    monkeypatch.setattr(torch.cuda, "set_stream", current.append)
    stream: Any = SimpleNamespace(device=0)
    side = SideStream("side", stream, GemmTarget(0, 24, 132))
    if where == "begin":
        cublas.status = 7
    with pytest.raises(RuntimeError, match="status 7"), side:  # noqa: PT012
        assert where == "end"
        cublas.status = 7
    assert current == ["the caller's", stream, "the caller's"]
    assert name_of_current_stream() == "main"
