"""For how many multiprocessors cuBLAS plans matrix products.

By itself it cuts a small product into as many tiles as there are multiprocessors, which
is fastest for the product alone. Beside other work, tiles that find no free one wait,
and so does the neighbour. Planned for a few, a product is a little slower and leaves
the rest alone. Unlike a partition of the device, this keeps nothing from anybody.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from dynaflow_dsl.runtime.errors import LoadError


@dataclass(slots=True)
class GemmTarget:
    """Between `begin` and `end`, products are planned for `sms` multiprocessors.

    It holds for this thread's products in cuBLAS and for all of the process in
    cuBLASLt, as PyTorch has it.
    """

    index: int
    sms: int
    most: int
    _before: int | None = field(default=None, init=False)

    def begin(self) -> None:
        """Plan products so that are called from here on."""
        self._tell_cublas(self.sms)
        self._before = torch._C._get_sm_carveout_experimental()
        torch._C._set_sm_carveout_experimental(self.most - self.sms)

    def end(self) -> None:
        """Plan products as before `begin`."""
        torch._C._set_sm_carveout_experimental(self._before)
        self._tell_cublas(0)

    def _tell_cublas(self, sms: int) -> None:
        # The handle is the thread's own; PyTorch sets its stream anew in each call.
        handle: int = torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]
        result = _cublas().cublasSetSmCountTarget(
            ctypes.c_void_p(handle), ctypes.c_int(sms)
        )
        if result != 0:
            raise RuntimeError(f"cublasSetSmCountTarget failed (status {result})")


def gemm_target(index: int, name: str, sms: int) -> GemmTarget:
    """What plans the products of a stream; raises LoadError (DFS807) where none can."""
    asked = f"the stream `{name}` asks for products for {sms} multiprocessors"
    most = torch.cuda.get_device_properties(index).multi_processor_count
    if sms > most:
        raise LoadError(
            "DFS807",
            f"{asked} (`gemm_sms`), and the device has {most}: give it fewer.",
        )
    if not hasattr(torch._C, "_set_sm_carveout_experimental") or not _has_cublas():
        raise LoadError(
            "DFS807",
            f"{asked} (`gemm_sms`), and this PyTorch ({torch.__version__}) cannot tell "
            "cuBLAS: leave `gemm_sms` out.",
        )
    return GemmTarget(index, sms, most)


def _has_cublas() -> bool:
    try:
        return hasattr(_cublas(), "cublasSetSmCountTarget")
    except OSError:
        return False


@cache
def _cublas() -> Any:
    """The library that PyTorch has loaded. Raises OSError where there is none."""
    major = (torch.version.cuda or "none").partition(".")[0]
    windows = hasattr(ctypes, "WinDLL")
    return ctypes.CDLL(f"cublas64_{major}.dll" if windows else f"libcublas.so.{major}")
