"""One of the two ranks of `test_failing_ranks`: RANK STORE MODULE TARGET HOW.

Both run steps of a module on a device each, and the second one dies while steps of both
are under way. The first goes on as if nothing had happened.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from dynaflow_dsl.runtime import bind_group
from tests.verification.mutations import import_module

TIMEOUT = 10.0
BATCH = 16
OPTIONS = {"layers": 3, "device": "cuda", "dtype": "bfloat16", "ways": 2}

# The first collective of a step is then one of a layer, not the embedding's over NCCL.
LLAMA = {**OPTIONS, "vocabulary": False}


def main(rank: int, store: str, module: Path, target: str, how: str) -> None:
    # A size that is not captured is one, and would be another test.
    warnings.filterwarnings("error", "steps of .* are not captured")
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=120),
        device_id=device,
    )
    # Processes start when they can, and fail in time.
    group = dist.new_group(timeout=timedelta(seconds=TIMEOUT))
    name, _, function = target.partition(":")
    role, options = ("tp", LLAMA) if function == "llama" else ("ep", OPTIONS)
    bind_group(role, group)
    spec = getattr(importlib.import_module(name), function)(**options)
    step = import_module(module).load(
        spec.model, device, compile=False, capture=how == "captured"
    )
    torch.manual_seed(0)
    given = spec.entries["decode"].arguments({"batch": BATCH})
    # Where it is captured: uncaptured and recorded, then replayed.
    for _ in range(3):
        step(*given)
    torch.cuda.synchronize()
    print("running", flush=True)
    for _ in range(5):
        step(*given)
    if rank == 1:
        time.sleep(0.5)
        os._exit(3)
    while True:
        step(*given)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), *sys.argv[4:6])
