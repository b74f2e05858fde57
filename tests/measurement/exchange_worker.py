"""One rank of the exchanges that are measured, as a program: RANK WORLD STORE.

Triton's interpreter runs the kernels. Says, as one line of JSON for each case, how far
the results of each way are from those of the operators, by what the measurement prints.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from dynaflow_dsl.measurement import contenders
from dynaflow_dsl.measurement.contenders import largest_difference
from dynaflow_dsl.measurement.exchanges import AllGather, AllToAll, exchanged_by
from dynaflow_dsl.models.exchange import combine, dispatch
from dynaflow_dsl.runtime import Executor, bind_group

LOCAL, CHOICES, LAYERS, WIDTH = 3, 2, 2, 12
CPU = torch.device("cpu")

ROUTINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "uneven": lambda scores: scores * torch.arange(scores.shape[-1]),
    "an expert without tokens": lambda scores: scores.index_fill(
        -1, torch.tensor([1]), -1
    ),
    "a rank without tokens": lambda scores: scores.index_fill(
        -1, torch.arange(LOCAL), -1
    ),
    "all to one rank's": lambda scores: scores.index_fill(
        -1, torch.arange(LOCAL, scores.shape[-1]), -1
    ),
}

Choices = list[torch.Tensor]


def choices_of(how: str, rank: int, world: int, tokens: int, seed: int) -> Choices:
    """The experts of this rank's tokens in each layer."""
    generator = torch.Generator().manual_seed(seed * world + rank)
    scores = torch.rand(LAYERS, tokens, world * LOCAL, generator=generator)
    return list(ROUTINGS[how](scores).topk(CHOICES).indices)


def step(
    tokens: torch.Tensor, choices: Choices, weights: torch.Tensor, world: int
) -> list[torch.Tensor]:
    """What each of some layers gets for its experts, and what the last one gives."""
    seen: list[torch.Tensor] = []
    room = world * tokens.shape[0] * CHOICES
    for experts in choices:
        rows, ends, arrived = dispatch(tokens, experts, room, LOCAL, world, "ep")
        seen += [rows, ends.float(), arrived.float()]
        number = torch.searchsorted(ends, torch.arange(room), right=True)
        made = (rows * (1.5 + dist.get_rank() * LOCAL + number[:, None])).to(rows)
        # What experts leave past the last row is not looked at.
        made[int(ends[-1]) :] = float("nan")
        given = (made, experts, weights, arrived, LOCAL, world, "ep")
        tokens = combine(*given)
    return [*seen, tokens]


def compare(
    how: str, rank: int, world: int, tokens: int, dtype: torch.dtype
) -> dict[str, float]:
    generator = torch.Generator().manual_seed(7 + rank)
    given = torch.randn(tokens, WIDTH, generator=generator).to(dtype)
    weights = torch.rand(tokens, CHOICES, generator=generator)
    choices = choices_of(how, rank, world, tokens, 1)
    expected = step(given, choices, weights, world)
    found: dict[str, float] = {}
    with exchanged_by(AllGather(), CPU):
        found["all-gather"] = largest_difference(
            step(given, choices, weights, world), expected
        )
    way = AllToAll()
    with exchanged_by(way, CPU):
        found["recording"] = largest_difference(
            step(given, choices, weights, world), expected
        )
        way.repeat()
        # Two steps: each begins with the counts of the first layer.
        for _ in range(2):
            again = step(given, choices, weights, world)
        found["all-to-all"] = largest_difference(again, expected)
    other = AllToAll()
    with exchanged_by(other, CPU):
        step(given, choices_of(how, rank, world, tokens, 2), weights, world)
        other.repeat()
        made = step(given, choices, weights, world)
        found["other counts"] = largest_difference(made[-1:], expected[-1:])
    # The operators are themselves again.
    after = step(given, choices, weights, world)
    found["afterwards"] = largest_difference(after, expected)
    return found


class Layers(torch.nn.Module):
    """Some layers of experts, and what a compiler has to do between them."""

    def __init__(self, choices: Choices, world: int) -> None:
        super().__init__()
        self.choices, self.world = choices, world

    def forward(self, tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return step(tokens + 1, self.choices, weights * 2, self.world)[-1] - 1


def compiled(rank: int, world: int) -> dict[str, float]:
    """The contenders as they are made, but for what needs a device to capture."""
    choices = choices_of("uneven", rank, world, 9, 1)
    case = contenders.Case(
        adapted=lambda: Layers(choices, world),
        load=nothing_loaded,
        arguments=(torch.randn(9, WIDTH), torch.rand(9, CHOICES)),
        in_place=(),
        device=CPU,
    )
    # Inductor would import Triton's own library, which is interpreted here.
    contenders._compiled = lambda case, mode: torch.compile(
        case.adapted(), backend="aot_eager", fullgraph=True, dynamic=False
    )
    contenders._captured = twice
    expected = contenders.make(case, "eager")()
    return {
        name: largest_difference(contenders.make(case, name)(), expected)
        for name in contenders.EXCHANGES
    }


def nothing_loaded(**options: object) -> Executor:
    raise AssertionError("no schedule is measured")


def twice(call: Callable[[], Any], *kept: object) -> Callable[[], Any]:
    """Where steps are warmed up and captured, as many of them as there may be."""
    call()
    result = call()
    return lambda: result


def refused(rank: int, world: int) -> dict[str, str]:
    """Every rank says it, also one that has room for what it gets."""
    tokens, experts = torch.ones(9, WIDTH), torch.zeros(9, 1, dtype=torch.int64)
    said: dict[str, str] = {}
    for way in (AllToAll(), AllGather()):
        try:
            way.dispatch(tokens, experts, 9 * world - 1, LOCAL, world, "ep")
        except RuntimeError as error:
            said[type(way).__name__] = str(error)
    return said


def say(case: str, found: Mapping[str, object]) -> None:
    print(json.dumps({"case": case, **found}), flush=True)


def main(rank: int, world: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=120),
    )
    assert dist.group.WORLD is not None
    bind_group("ep", dist.group.WORLD)
    for how in ROUTINGS:
        say(how, compare(how, rank, world, 9, torch.float32))
    say("bfloat16", compare("uneven", rank, world, 70, torch.bfloat16))
    say("compiled", compiled(rank, world))
    say("no room", refused(rank, world))
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
