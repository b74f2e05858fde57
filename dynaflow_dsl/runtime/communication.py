"""Parts with collectives: called in the order of their stream, named if they fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dynaflow_dsl.runtime.notes import line_now
from dynaflow_dsl.runtime.ranks import Ranks
from dynaflow_dsl.runtime.streams import Call, Failed, Streams


def communicating(
    ranks: Ranks,
    streams: Streams,
    groups: Sequence[str],
    call: Call,
    text: Call,
    step: Callable[[int | None], str],
    file: str,
) -> Call:
    """How an executor that has collectives calls one of its parts.

    `groups` are those that the part uses, none for most. `text` is its own function
    with its weights, and `step` names the step that a line of the module, `file`, is.
    """
    if not groups:
        return streams.led(call, text, None)

    def started() -> Failed:
        line = line_now(file)
        return lambda error: ranks.failure(error, groups, step(line))

    led = streams.led(call, text, started)

    def part(*arguments: Any) -> Any:
        if ranks.stalls is not None:
            line = line_now(file)
            ranks.stalls.started((step, line), partial(step, line))
        try:
            return led(*arguments)
        except RuntimeError as error:
            found = ranks.failure(error, groups, step(line_now(file)))
            if found is error:
                raise
            raise found from error

    return part
