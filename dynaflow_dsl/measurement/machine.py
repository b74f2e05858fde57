"""What a measurement ran on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import torch

PACKAGES = ("torch", "transformers", "triton", "dynaflow-dsl")


def describe(device: str = "cpu") -> dict[str, object]:
    """CPU or GPU, cores, and the versions that matter; holds no name of the machine."""
    found: dict[str, object] = {}
    if torch.device(device).type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
        found["cuda"] = torch.version.cuda
    return found | {
        "cpu": _cpu(),
        "cores": _cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: one for name in PACKAGES if (one := _version(name)) is not None},
    }


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    if file.is_file():
        for line in file.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
