"""Commands that torchrun has started, one process for each rank."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias, TypeVar

import click

from dynaflow_dsl.cli.defects import internal_error
from dynaflow_dsl.cli.failures import Failures, LeftAloneError, failures_here
from dynaflow_dsl.cli.report import (
    ExitCode,
    OutputError,
    ReaderGoneError,
    Reporter,
)
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError

T = TypeVar("T")

# Why each rank has failed, in their order, this one's reason among them, where all have
# come: who has not failed says None.
Meet: TypeAlias = Callable[[str | None], list[Any]]

# What torchrun tells the processes that it starts. Once they have joined, which rank
# this one is is what torch.distributed says: `running_ranks`.
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
    from dynaflow_dsl.runtime.groups import running_ranks

    _, count = running_ranks()
    return count


def tell_ranks(word: Any) -> list[Any]:
    """What all ranks say, in their order: a collective of all of them.

    Where torchrun has started none, this process's word alone.
    """
    count = rank_count()
    if count == 1:
        return [word]
    import torch.distributed as dist

    found: list[Any] = [None] * count
    dist.all_gather_object(found, word)
    return found


def told_to_first(word: T) -> list[T]:
    """On rank 0 what all ranks say, in their order; nothing on the others.

    A collective of all of them, for words that are long.
    """
    import torch.distributed as dist

    from dynaflow_dsl.runtime.groups import running_ranks

    rank, count = running_ranks()
    if count == 1:
        return [word]
    found: list[Any] | None = [None] * count if rank == 0 else None
    dist.gather_object(word, found)
    return found or []


@contextmanager
def joined_ranks(
    reporter: Reporter, seconds: int, *, all_or_none: bool = False
) -> Iterator[Meet]:
    """Be one of the ranks that torchrun has started; without it nothing happens.

    What is given brings them together after work that may have failed on some of them.
    Collectives may take `seconds`. One rank speaks of what is as it should be; what is
    not, each of them says. A rank that an exception ends is named on the others, which
    end as well; with `all_or_none` one too that has shown an error. After an exception
    the groups are left to the end of the process: NCCL waits for CUDA graphs that hold
    its collectives, and a traceback keeps such graphs. Raises ClickException where the
    ranks do not come together, and what the work raises.
    """
    if not launched():
        yield lambda reason: [reason]
        return
    # Torch takes a second to import, and most commands are not started so.
    import torch
    import torch.distributed as dist

    from dynaflow_dsl.runtime.groups import running_ranks

    if torch.cuda.is_available():
        _take_device(_own_device(torch.cuda.device_count()))
    try:
        # Without a backend there is one for each kind of device.
        dist.init_process_group(timeout=timedelta(seconds=seconds))
    except (RuntimeError, ValueError) as error:
        me, all_of_them, host, port = (os.environ[name] for name in _VARIABLES)
        first = str(error).strip().partition("\n")[0]
        raise click.ClickException(
            f"rank {me} of {all_of_them} could not join the others at {host}:{port}: "
            f"{first}"
        ) from error
    rank, count = running_ranks()
    reporter.silent = rank > 0
    reporter.say(f"{count} ranks run together")
    failures = failures_here(_end)
    if failures is not None:
        failures.watch()
    ended = None
    try:
        yield partial(_meet, failures, seconds)
        if all_or_none and reporter.code is not ExitCode.FINE:
            ended = reporter.first_error or "it says why"
    except (click.Abort, OutputError, ReaderGoneError):
        raise
    except Exception as error:
        ended = _show(reporter, error)
    if ended is not None:
        if failures is not None:
            failures.leave(ended)
        raise click.exceptions.Exit(max(reporter.code, ExitCode.FINDINGS))
    if failures is not None:
        failures.stop()
    gc.collect()
    dist.destroy_process_group()


@contextmanager
def met(reporter: Reporter, meet: Meet) -> Iterator[None]:
    """Have all ranks come to the end of some work before one goes on.

    An error that was shown meanwhile by one whom the others wait for ends them all.
    """
    before, reporter.first_error = reporter.first_error, ""
    try:
        yield
        meet(reporter.first_error or None)
    finally:
        reporter.first_error = before or reporter.first_error


def _meet(failures: Failures | None, seconds: int, reason: str | None) -> list[Any]:
    """See `Meet`. Raises ClickException where the others do not come."""
    if failures is None:
        return tell_ranks(reason)
    try:
        return failures.meet(reason, seconds)
    except LeftAloneError as error:
        raise click.ClickException(str(error)) from error


def _end(word: str) -> None:
    """End this process, whose work waits for a rank that has failed."""
    from dynaflow_dsl.runtime.stalls import end_process

    click.echo(f"Error: {word}", err=True)
    end_process()


def _show(reporter: Reporter, error: Exception) -> str:
    """Show an exception that ends a rank, and give what the others are told."""
    from dynaflow_dsl.runtime import RuntimeFault

    if isinstance(error, click.ClickException):
        error.show()
        reporter.code = ExitCode.COULD_NOT_RUN
        reporter.first_error = reporter.first_error or error.format_message()
        return error.format_message()
    match error:
        case DiagnosticError():
            found = error.diagnostics
        case RuntimeFault():
            found = (Diagnostic(error.code, error.message),)
        case _:
            found = (internal_error(error),)
    reporter.show(found)
    return next((f"{one.code}: {one.message}" for one in found), "it says why")


def _take_device(place: int) -> None:
    """Work on a GPU from here on. Raises ClickException where it cannot be used."""
    import torch

    try:
        torch.cuda.set_device(place)
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0]
        raise click.ClickException(
            f"GPU {place} of this machine cannot be used: {first}. Others may have all "
            "of its memory."
        ) from error


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
