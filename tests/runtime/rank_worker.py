"""One rank of `small_ranks`, as a program: RANK WORLD FOLDER JOB.

`FOLDER` holds the module `halves` and others beside it. What a rank has to say goes to
stdout as one line of JSON for each thing it did.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dynaflow_dsl.runtime import InputError, RankError, bind_group, release_group
from dynaflow_dsl.runtime.groups import players
from dynaflow_dsl.runtime.streams import one_stream
from tests.runtime.small_ranks import ROLE, WIDTH, OwnNumber, Stack, whole
from tests.verification.mutations import import_module

LIMIT = 8.0


def main(rank: int, world: int, folder: Path, job: str) -> None:
    torch.set_num_threads(1)
    join(rank, world, folder / f"store_{job}")
    JOBS[job](rank, world, folder)
    sys.stdout.flush()
    # Groups whose collectives have failed are not taken down in order.
    os._exit(0)


def join(rank: int, world: int, store: Path) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=120),
    )
    # Processes start when they can, and fail in time.
    group = dist.new_group(timeout=timedelta(seconds=LIMIT))
    bind_group(ROLE, group)


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def rows(batch: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(batch)
    return torch.randn(batch, WIDTH, generator=generator)


def load(
    rank: int, world: int, folder: Path, name: str = "halves", **options: Any
) -> Any:
    module = import_module(folder / f"{name}.py")
    return module.load(Stack(world, rank), compile=False, **options)


def attempt(run: Callable[[], object]) -> None:
    """Say how it ended, and whether within the groups' timeout and some seconds."""
    begin = time.monotonic()
    try:
        run()
    except (RankError, InputError, ValueError, KeyboardInterrupt) as error:
        said = f"{type(error).__name__} {error}"
        in_time = time.monotonic() - begin < LIMIT + 5
        say(error=said, notes=getattr(error, "__notes__", []), in_time=in_time)
    else:
        say(error=None)


def results(rank: int, world: int, folder: Path) -> None:
    """What all ranks together compute, in halves and, with one row, unsplit."""
    step = load(rank, world, folder)
    in_turn = load(rank, world, folder, streams=one_stream)
    for batch in (1, 2, 5, 5, 8):
        x = rows(batch)
        found = step(x)
        close = torch.allclose(found, whole(x), rtol=1e-5, atol=1e-5)
        say(batch=batch, close=close, equal=torch.equal(found, in_turn(x)))


def differences(rank: int, world: int, folder: Path) -> None:
    """Nothing that differs is run: the ranks can go on afterwards."""
    last = rank == world - 1
    attempt(lambda: load(rank, world, folder, "other" if last else "halves"))
    step = load(rank, world, folder)
    attempt(lambda: step(rows(5 if last else 4)))
    attempt(lambda: step(rows(1 if last else 4)))
    attempt(lambda: step(rows(0 if last else 4)))
    found = step(rows(4))
    say(close=torch.allclose(found, whole(rows(4)), rtol=1e-5, atol=1e-5))


def numbers(rank: int, world: int, folder: Path) -> None:
    """Each rank has a module of its own graph, compared when it is loaded."""
    place = folder / f"own_{rank}"
    attempt(lambda: check_own(rank, load_own(rank, world, place)))
    # The last rank's schedule is another one as well.
    attempt(lambda: load_own(rank, world, other_on_last(rank, world, place)))


def named(rank: int, world: int, folder: Path) -> None:
    """The same of a group that nobody bound: torch knows it by the name in the graph.

    What differs shows when a step begins: `load` waits for nobody.
    """
    core: Any = torch._C._distributed_c10d
    group = players()[ROLE]
    release_group(ROLE)
    core._register_process_group(ROLE, group)
    place = folder / f"own_{rank}"
    step = load_own(rank, world, place)
    attempt(lambda: check_own(rank, step))
    again = load_own(rank, world, other_on_last(rank, world, place))
    for _ in range(2):
        attempt(lambda: again(rows(4)))
    # One that ran goes on, though the others have loaded more since.
    attempt(lambda: check_own(rank, step))


def other_on_last(rank: int, world: int, place: Path) -> Path:
    return place / "other" if rank == world - 1 else place


def load_own(rank: int, world: int, place: Path) -> Any:
    module = import_module(place / "halves.py")
    return module.load(OwnNumber(world, rank), compile=False)


def check_own(rank: int, step: Any) -> None:
    found = step(rows(4))
    torch.testing.assert_close(found, whole(rows(4)) + rank, rtol=1e-5, atol=1e-5)


def destroyed(rank: int, world: int, folder: Path) -> None:
    """Who destroys the groups and makes others goes on when the role is bound anew."""
    step = load(rank, world, folder)
    step(rows(4))
    dist.destroy_process_group()
    attempt(lambda: step(rows(4)))
    attempt(lambda: step(rows(4).double()))
    attempt(lambda: load(rank, world, folder))
    join(rank, world, folder / "store_destroyed_again")
    found = step(rows(4))
    say(close=torch.allclose(found, whole(rows(4)), rtol=1e-5, atol=1e-5))


def absent(rank: int, world: int, folder: Path) -> None:
    """The last rank does not load a module in time; all can load it afterwards."""
    if rank == world - 1:
        time.sleep(LIMIT + 2)
    else:
        attempt(lambda: load(rank, world, folder))
    found = load(rank, world, folder)(rows(4))
    say(close=torch.allclose(found, whole(rows(4)), rtol=1e-5, atol=1e-5))


def breaking(end: Callable[[], object]) -> Callable[[int, int, Path], None]:
    """The last rank does something else in the first half of its second layer."""

    def job(rank: int, world: int, folder: Path) -> None:
        step = load(rank, world, folder)
        step(rows(4))
        if rank == world - 1:
            part, calls = step.compute, []

            def compute(position: int, *arguments: Any) -> Any:
                calls.append(position)
                if calls.count(1) == 1 and position == 1:
                    end()
                return part(position, *arguments)

            step.compute = compute
        attempt(lambda: step(rows(4)))
        # The one that is to fail has a store to leave word in.
        time.sleep(1 if rank else 3)

    return job


def raise_error() -> None:
    raise ValueError("no such row")


def interrupt() -> None:
    raise KeyboardInterrupt


JOBS: dict[str, Callable[[int, int, Path], None]] = {
    "results": results,
    "differences": differences,
    "numbers": numbers,
    "named": named,
    "destroyed": destroyed,
    "absent": absent,
    "dies": breaking(lambda: os._exit(3)),
    "stalls": breaking(lambda: time.sleep(LIMIT + 4)),
    "raises": breaking(raise_error),
    "interrupted": breaking(interrupt),
}

if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
