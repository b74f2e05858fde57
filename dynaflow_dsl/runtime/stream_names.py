"""Which stream of the schedule is current, for what each stream has for itself.

A group of each role is apart for each stream: `tp` is that of main, `tp:comm` one of
the same ranks for the stream `comm`.
"""

from __future__ import annotations

import threading

import torch

_MAIN = "main"

# Of CUDA streams, by device and number.
_NAMES: dict[tuple[int, int], str] = {}

_THREAD = threading.local()


def name_cuda_stream(stream: torch.cuda.Stream, name: str) -> None:
    """Say which stream of schedules this is.

    PyTorch gives out a stream again after some dozens: it keeps its first name.
    """
    _NAMES.setdefault((stream.device.index, stream.cuda_stream), name)


def name_thread(name: str = _MAIN) -> None:
    """Say which stream's work this thread does from here on, on a CPU."""
    _THREAD.name = name


def name_of_current_stream(device: torch.device) -> str:
    """The name in the schedule; `main` for a stream that is none of a schedule's."""
    if device.type != "cuda":
        return getattr(_THREAD, "name", _MAIN)
    index = device.index if device.index is not None else torch.cuda.current_device()
    # The number alone: making an object of the stream takes microseconds.
    number = torch._C._cuda_getCurrentRawStream(index)
    return _NAMES.get((index, number), _MAIN)


def group_of_stream(role: str, device: torch.device) -> str:
    """The group that plays a role on the current stream."""
    name = name_of_current_stream(device)
    return role if name == _MAIN else f"{role}:{name}"
