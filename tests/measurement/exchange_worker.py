"""One rank of the exchanges that are measured, as a program: RANK WORLD STORE.

Triton's interpreter runs the kernels. Says, as one line of JSON for each case, how far
the results of each way are from those of the operators, by what the measurement prints.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.exc import BackendCompilerFailed
from torch.fx import GraphModule

from dynaflow_dsl.measurement import all_gather, contenders
from dynaflow_dsl.measurement.all_to_all import AllToAll, exchanged_by
from dynaflow_dsl.measurement.contenders import Case, largest_difference
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


class Layers(torch.nn.Module):
    """Layers of experts, each of which multiplies by a number of its own."""

    def __init__(self, rank: int, world: int, choices: Choices) -> None:
        super().__init__()
        self.first, self.world, self.choices = rank * LOCAL, world, choices

    def forward(
        self, tokens: torch.Tensor, weights: torch.Tensor
    ) -> list[torch.Tensor]:
        """What each layer gets for its experts, and what the last one gives."""
        seen: list[torch.Tensor] = []
        room = self.world * tokens.shape[0] * CHOICES
        weights = weights * 2
        for experts in self.choices:
            given = (experts, room, LOCAL, self.world, "ep")
            rows, ends, arrived = dispatch(tokens, *given)
            seen += [rows, ends.float(), arrived.float()]
            number = torch.searchsorted(ends, torch.arange(room), right=True)[:, None]
            made = (rows * (1.5 + self.first + number)).to(rows)
            # What experts leave past the last row is not looked at.
            made = torch.where(number < LOCAL, made, float("nan"))
            back = (arrived, LOCAL, self.world, "ep")
            tokens = combine(made, experts, weights, *back)
        return [*seen, tokens]


@dataclass(frozen=True)
class Ranks:
    """A rank, and the inputs of its steps."""

    rank: int
    world: int
    how: str
    tokens: int
    dtype: torch.dtype

    def case(self, seed: int) -> Case:
        """A step whose routing is that of the seed."""
        generator = torch.Generator().manual_seed(7 + self.rank)
        tokens = torch.randn(self.tokens, WIDTH, generator=generator).to(self.dtype)
        weights = torch.rand(self.tokens, CHOICES, generator=generator)
        choices = choices_of(self.how, self.rank, self.world, self.tokens, seed)
        return Case(
            adapted=lambda: Layers(self.rank, self.world, choices),
            load=nothing_loaded,
            arguments=(tokens, weights),
            in_place=(),
            device=CPU,
        )


def nothing_loaded(**options: object) -> Executor:
    raise AssertionError("no schedule is measured")


def compare(ranks: Ranks) -> dict[str, float]:
    """How far contenders are from the operators, and one with counts of other steps."""
    case = ranks.case(1)
    expected = contenders.make(case, "eager")()
    found = {
        name: largest_difference(contenders.make(case, name)(), expected)
        for name in contenders.EXCHANGES
    }
    way = AllToAll()
    with exchanged_by(way, CPU):
        contenders.make(ranks.case(2), "eager")()
        way.repeat()
        made = contenders.make(case, "eager")()
    # As what a model returns.
    found["other counts"] = largest_difference(made[-1], expected[-1])
    after = contenders.make(case, "eager")()
    found["afterwards"] = largest_difference(after, expected)
    return found


def compile_without_triton() -> None:
    """Contenders as they are made, but for Inductor and what captures.

    Inductor would import Triton's own library, which is interpreted here.
    """

    def gathering(module: GraphModule, examples: list[torch.Tensor]) -> Any:
        all_gather.gather_instead(module)
        return lookup_backend("aot_eager")(module, examples)

    def compiled(case: Case, mode: str | None, backend: Any = "aot_eager") -> Any:
        if backend is all_gather.inductor:
            backend = gathering
        return torch.compile(
            case.adapted(), backend=backend, fullgraph=True, dynamic=False
        )

    def twice(call: Callable[[], Any], *kept: object) -> Callable[[], Any]:
        """Where steps are warmed up and captured, there may be any number of them."""
        call()
        result = call()
        return lambda: result

    contenders._compiled = compiled
    contenders._captured = twice


def unpaired() -> list[str]:
    """What is said of graphs in which weights cannot travel with tokens."""

    def late(tokens: torch.Tensor, experts: torch.Tensor) -> Any:
        rows, _, arrived = dispatch(tokens, experts, 36, LOCAL, 2, "ep")
        weights = tokens[:, :CHOICES].exp()
        return combine(rows, experts, weights, arrived, LOCAL, 2, "ep")

    def alone(tokens: torch.Tensor, experts: torch.Tensor) -> Any:
        return dispatch(tokens, experts, 36, LOCAL, 2, "ep")[0]

    said = []
    for step in (late, alone):
        try:
            compiled: Callable[..., Any] = torch.compile(
                step, backend=all_gather.inductor
            )
            compiled(torch.ones(9, WIDTH), torch.zeros(9, CHOICES, dtype=torch.int64))
        except BackendCompilerFailed as error:
            said.append(str(error.inner_exception))
    return said


def refused(rank: int, world: int) -> dict[str, str]:
    """Every rank says it, also one that has room for what it gets."""
    tokens, experts = torch.ones(9, WIDTH), torch.zeros(9, 1, dtype=torch.int64)
    said: dict[str, str] = {}
    sizes = (9 * world - 1, LOCAL, world, "ep")
    attempts: dict[str, Callable[[], object]] = {
        "all-to-all": lambda: AllToAll().dispatch(tokens, experts, *sizes),
        "all-gather": lambda: all_gather.gather(tokens, experts, tokens, *sizes),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except RuntimeError as error:
            said[name] = str(error)
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
    compile_without_triton()
    for how in ROUTINGS:
        say(how, compare(Ranks(rank, world, how, 9, torch.float32)))
    say("bfloat16", compare(Ranks(rank, world, "uneven", 70, torch.bfloat16)))
    say("no room", refused(rank, world))
    say("unpaired", {"said": unpaired()})
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
