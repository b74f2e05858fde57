"""Many random programs: none that leaks may be accepted.

    python -m tests.graph.rowwise.random_graphs --examples 100000 --output found.json
    python -m tests.graph.rowwise.random_graphs --programs sorted --examples 10000

Two of five are chains of any operators; the others are calls of one operator each,
with arguments drawn by its signature, so that every rule comes often; many go on along
an axis, so that many mix rows. Every program is checked, and run whole, in pieces and
with one row poisoned whatever the verdict is; what is accepted is also run as one row's
program, mapped over all rows. Counts
of verdicts, and of how often each operator occurred in a program that was accepted and
in one that was not, are printed and written. `test_random_graphs.py` runs a few.

Torch computes without vector instructions here. With them, an element may be rounded
otherwise at the end of a tensor than in its middle, so a piece of another size breaks a
tie otherwise (the larger one of two equal numbers), though no row reaches another.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.graph.rowwise import check_rows
from tests.graph.rowwise.building import Builder
from tests.graph.rowwise.interpreter import difference, leaking_row
from tests.graph.rowwise.programs import INPUTS, KINDS, Step, program
from tests.graph.rowwise.signatures import OPERATORS, call_of
from tests.graph.rowwise.sorted_programs import sorted_program
from tests.graph.rowwise.vmapped import NotVmappedError, vmapped_difference


@dataclass(slots=True)
class Found:
    """How many programs were what. `unsound` are numbers of leaking accepted ones."""

    verdicts: Counter[str] = field(default_factory=Counter)
    accepted_with: Counter[str] = field(default_factory=Counter)
    refused_with: Counter[str] = field(default_factory=Counter)
    unsound: list[int] = field(default_factory=list)


def drawn(number: int) -> tuple[tuple[int, ...], list[Step]]:
    """The inputs and steps of the program of this number, always the same."""
    random = Random(number)
    inputs = tuple(random.randrange(len(INPUTS)) for _ in range(random.randint(2, 4)))
    # Short programs are accepted more often, long ones mix more.
    steps = [
        Step(
            kind=_kind(random),
            first=random.randrange(12),
            second=random.randrange(12),
            one=random.randrange(12),
            other=random.randrange(12),
            inside=random.random() < 0.9,
        )
        for _ in range(random.randint(2, 9))
    ]
    return inputs, steps


def _kind(random: Random) -> int:
    """Any kind; the last ones choose among many operators, so they come more often."""
    if random.random() < 0.6:
        return random.randrange(len(KINDS))
    return len(KINDS) - 1 - random.randrange(5)


def made(number: int) -> tuple[Graph, list[str], Builder] | None:
    """The program of this number, the names of its region, and its inputs."""
    torch.manual_seed(number)
    round_, place = divmod(number, 5)
    if place < 3:
        operator = OPERATORS[(3 * round_ + place) % len(OPERATORS)]
        return call_of(operator, Random(number))
    return program(*drawn(number))


Maker: TypeAlias = Callable[[int], tuple[Graph, list[str], Builder] | None]
MAKERS: Mapping[str, Maker] = {"any": made, "sorted": sorted_program}


def examine(number: int, found: Found, maker: Maker = made) -> None:
    """Check one program and run it."""
    one = maker(number)
    if one is None or not one[1]:
        found.verdicts["empty"] += 1
        return
    graph, region, build = one
    accepted = not check_rows(graph, "batch", region).refusals
    tensors = build.tensors()
    shown = difference(graph, region, tensors)
    if shown is None and len(region) == len(graph.operations):
        try:
            shown = leaking_row(graph, tensors)
        except RuntimeError:
            # Decompositions of matrices refuse NaN; the pieces have judged already.
            found.verdicts["(not poisoned)"] += 1
    if accepted and shown is None and len(region) == len(graph.operations):
        try:
            shown = vmapped_difference(graph, tensors)
            found.verdicts["(one row's program agrees)"] += shown is None
        except NotVmappedError:
            found.verdicts["(one row's program not mapped)"] += 1
    leaks = "leaks" if shown else "does not leak"
    found.verdicts[f"{'accepted' if accepted else 'refused'}, {leaks}"] += 1
    names = {item.operator for item in graph.operations if item.name in region}
    (found.accepted_with if accepted else found.refused_with).update(names)
    if accepted and shown:
        found.unsound.append(number)


def main(given: Sequence[str] | None = None) -> int:
    """Examine so many programs, print the counts, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument(
        "--programs", choices=MAKERS, default="any", help="sorted: rows sorted and back"
    )
    parser.add_argument("--output", type=Path)
    parser.add_argument("--summary", type=Path, help="only say what a file holds")
    options = parser.parse_args(given)
    if options.summary:
        print(summary(json.loads(options.summary.read_text())))
        return 0
    # Torch reads it once, at its first operation.
    os.environ["ATEN_CPU_CAPABILITY"] = "default"
    if torch.backends.cpu.get_cpu_capability() != "DEFAULT":
        parser.error("torch has computed already, so its kernels are chosen")
    found = Found()
    numbers = range(options.first, options.first + options.examples)
    for number in numbers:
        examine(number, found, MAKERS[options.programs])
        done = number + 1 - options.first
        if done % 1000 == 0 or done == options.examples:
            print(done, dict(found.verdicts), found.unsound, flush=True)
            if options.output:
                options.output.write_text(_json(found, options.first, done))
    operators = {*found.accepted_with, *found.refused_with}
    for operator in sorted(operators):
        print(
            f"{found.accepted_with[operator]:7} {found.refused_with[operator]:7}  "
            f"{operator}"
        )
    return 1 if found.unsound else 0


def summary(counts: Mapping[str, Any]) -> str:
    """What a written run found, in two sentences for the document."""
    verdicts, examples = counts["verdicts"], counts["examples"]
    shares = {
        name: f"{100 * count / examples:.1f} %"
        for name, count in verdicts.items()
        if not name.startswith("(")
    }
    each = {
        name: sum(pair)
        for name, pair in counts[
            "programs with each operator: accepted, refused"
        ].items()
        if name in OPERATORS
    }
    least = min(OPERATORS, key=lambda name: each.get(name, 0))
    return (
        f"Of {examples:,} programs {', '.join(f'{v} {k}' for k, v in shares.items())}; "
        f"leaking and accepted: {counts['leaking and accepted'] or 'none'}. "
        f"{len(each)} of {len(OPERATORS)} named rules occur, the rarest, {least}, in "
        f"{each.get(least, 0)} programs."
    )


def _json(found: Found, first: int, done: int) -> str:
    return (
        json.dumps(
            {
                "torch": torch.__version__,
                "first": first,
                "examples": done,
                "verdicts": dict(sorted(found.verdicts.items())),
                "leaking and accepted": found.unsound,
                "programs with each operator: accepted, refused": {
                    name: [found.accepted_with[name], found.refused_with[name]]
                    for name in sorted({*found.accepted_with, *found.refused_with})
                },
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    sys.exit(main())
