"""Commands that torchrun has started, one process for each rank."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import click

from dynaflow_dsl.cli.defects import internal_error
from dynaflow_dsl.cli.report import ExitCode, Reporter
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError

T = TypeVar("T")

# What torchrun tells the processes that it starts.
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

rank_timeout_option = click.option(
    "--rank-timeout",
    "rank_seconds",
    type=click.IntRange(min=1),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="How many seconds ranks wait for each other, where torchrun has started some.",
)


def launched() -> bool:
    """Whether torchrun has started this process, as one of its ranks."""
    return all(name in os.environ for name in _VARIABLES)


def rank_count() -> int:
    """How many ranks there are; one where torchrun has started none."""
    return int(os.environ["WORLD_SIZE"]) if launched() else 1


def tell_ranks(word: Any) -> list[Any]:
    """What all ranks say, in their order: a collective of all of them.

    Where torchrun has started none, this process's word alone.
    """
    if not launched():
        return [word]
    import torch.distributed as dist

    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, word)
    return found


def told_to_first(word: T) -> list[T]:
    """On rank 0 what all ranks say, in their order; nothing on the others.

    A collective of all of them, for words that are long.
    """
    if not launched():
        return [word]
    import torch.distributed as dist

    found: list[Any] | None = None
    if dist.get_rank() == 0:
        found = [None] * dist.get_world_size()
    dist.gather_object(word, found)
    return found or []


@contextmanager
def all_or_none(reporter: Reporter) -> Iterator[None]:
    """What each rank does by itself, after which none goes on where one has failed.

    A rank that fails says why at once, since the others may be busy for long. Raises
    click's Exit on it then, and ClickException that names it on the others. Where
    torchrun has started no ranks, nothing is caught.
    """
    if not launched():
        yield
        return
    failure: str | None = None
    try:
        yield
    except Exception as error:
        failure = _shown(reporter, error)
    if failure is None and reporter.code is not ExitCode.FINE:
        failure = "as it says"
    try:
        words = tell_ranks(failure)
    except RuntimeError:
        if failure is None:
            raise
        words = [failure]  # who is gone needs no word
    if failure is not None:
        raise click.exceptions.Exit(max(reporter.code, ExitCode.FINDINGS))
    for rank, word in enumerate(words):
        if word is not None:
            raise click.ClickException(f"rank {rank} has failed: {word}")


def _shown(reporter: Reporter, error: Exception) -> str:
    """Show an exception that ends a rank; what others are told of it is returned."""
    from dynaflow_dsl.runtime import RuntimeFault

    match error:
        case click.ClickException():
            error.show()
            reporter.code = ExitCode.COULD_NOT_RUN
            return error.format_message()
        case DiagnosticError():
            found = list(error.diagnostics)
        case RuntimeFault():
            found = [Diagnostic(error.code, error.message)]
        case _:
            found = [internal_error(error)]
    reporter.show(found)
    return f"{found[0].code}: {found[0].message}" if found else "as it says"


@contextmanager
def joined_ranks(reporter: Reporter, seconds: int) -> Iterator[None]:
    """Be one of the ranks that torchrun has started; without it nothing happens.

    Collectives may take `seconds`. One rank speaks of what is as it should be; what is
    not, each of them says. After an exception the groups are left to the end of the
    process: NCCL waits for CUDA graphs that hold its collectives, and a traceback
    keeps such graphs. Raises ClickException where the ranks do not come together.
    """
    if not launched():
        yield
        return
    # Torch takes a second to import, and most commands are not started so.
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        torch.cuda.set_device(_own_device(torch.cuda.device_count()))
    try:
        # Without a backend there is one for each kind of device.
        dist.init_process_group(timeout=timedelta(seconds=seconds))
    except (RuntimeError, ValueError) as error:
        rank, count, host, port = (os.environ[name] for name in _VARIABLES)
        first = str(error).strip().partition("\n")[0]
        raise click.ClickException(
            f"rank {rank} of {count} could not join the others at {host}:{port}: "
            f"{first}"
        ) from error
    reporter.silent = dist.get_rank() > 0
    reporter.say(f"{dist.get_world_size()} ranks run together")
    yield
    gc.collect()
    dist.destroy_process_group()


def _own_device(count: int) -> int:
    """Which of a machine's GPUs is this rank's. Raises ClickException without one."""
    place = int(os.environ.get("LOCAL_RANK", "0"))
    if place < count:
        return place
    raise click.ClickException(
        f"rank {place} of this machine has no GPU of its own, since {count} can be "
        f"seen: start torchrun with --nproc-per-node={count} at most, or, to run on "
        "the CPU, with CUDA_VISIBLE_DEVICES= (none)"
    )
