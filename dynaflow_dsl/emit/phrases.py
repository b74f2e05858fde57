"""Small pieces of text: how pieces are joined, options chosen, and waits explained."""

from __future__ import annotations

from collections.abc import Sequence

from dynaflow_dsl.emit.layout import Expression, call, listed
from dynaflow_dsl.plan.model import Free, Layer, Statement, Wait


def merged(pieces: Sequence[str], axis: int, order: tuple[int, ...] = ()) -> Expression:
    """Pieces made one tensor; a single one is copied.

    torch.cat lays axes out from the first to the last. With another `order` of axes in
    memory it joins the pieces as they lie.
    """
    if len(pieces) == 1:
        return f"{pieces[0]}.clone()"
    if order:
        inside = [call("torch.permute", [piece, str(order)]) for piece in pieces]
        back = tuple(order.index(k) for k in range(len(order)))
        joined = _cat(inside, order.index(axis))
        return call("torch.permute", [joined, str(back)])
    return _cat(pieces, axis)


def _cat(pieces: Sequence[Expression], axis: int) -> Expression:
    arguments: list[Expression] = [listed(pieces)]
    if axis:
        arguments.append(str(axis))
    return call("torch.cat", arguments)


def which_option(table: Sequence[int], layer: Layer) -> str:
    """The number of the option that a layer of the loop takes."""
    count = len(table)
    period = next(
        p
        for p in range(1, count + 1)
        if all(table[i] == table[i % p] for i in range(count))
    )
    index = str(layer) if layer.offset == 0 else f"({layer})"
    if tuple(table[:period]) == tuple(range(period)):
        return f"{index} % {period}"
    # A tuple of numbers is a constant: no call builds it.
    numbers = ", ".join(map(str, table[:period]))
    if period < count:
        return f"({numbers})[{index} % {period}]"
    return f"({numbers})[{layer}]"


def why_waited(wait: Wait, following: Statement | None) -> str:
    """Why a wait is there, and what it makes safe to free."""
    if wait.after:
        why = f"{wait.label} after {wait.after}, as the schedule says"
    elif wait.weights == "fills":
        why = f"{wait.label} fills the buffer that {wait.other} has read"
    elif wait.weights == "reads":
        why = f"{wait.label} reads {', '.join((*wait.reads, 'its weights'))}"
    elif not wait.reads:
        why = f"{wait.label} must follow it"
    else:
        why = f"{wait.label} reads {', '.join(wait.reads)}"
    if isinstance(following, Free):
        freed = ", ".join(following.variables)
        why = f"{why}; all readers of {freed} are done"
    return why
