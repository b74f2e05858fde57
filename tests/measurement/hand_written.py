"""Profiles made of a few lines: what ran when on which stream, and what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynaflow_dsl.measurement.profile import HOST, Profile
from dynaflow_dsl.measurement.timeline import TimedStep, Timeline, Work
from dynaflow_dsl.runtime.watch import Step

STREAMS = ("main", "comm")


@dataclass(frozen=True)
class Ran:
    """A step in the order of issue: its kernels in microseconds of one run.

    `awaits` are numbers of steps that it waits for; `ranks` those that meet in it.
    """

    label: str
    stream: str
    layer: int | None
    kernels: Sequence[tuple[float, float]]
    awaits: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    line: int = 7

    @property
    def step(self) -> Step:
        part = self.label.partition("[")[0]
        part = "" if " " in part else part
        return Step(
            self.label, part, self.stream, self.layer or 0, self.layer, self.line
        )


def profile_of(
    steps: Sequence[Ran],
    runs: Mapping[int, tuple[float, float]] | None = None,
    device: str = "cuda:0 (Fake)",
    origin: int = 0,
) -> Profile:
    """A profile; `runs` are the beginning of each run and how often slower it is.

    A step's range reaches from its first kernel to its last.
    """
    timed = []
    for run, (start, slower) in (runs or {0: (0.0, 1.0)}).items():
        for number, one in enumerate(steps):
            kernels = [(start + slower * b, start + slower * e) for b, e in one.kernels]
            work = tuple(
                Work(f"kernel of {one.label}", begin, end) for begin, end in kernels
            )
            timed.append(
                TimedStep(one.step, run, kernels[0][0], kernels[-1][1], work, number)
            )
    timed.sort(key=lambda one: one.begin)
    return Profile(
        device,
        STREAMS,
        Timeline(tuple(timed), ()),
        replayed=device != HOST,
        awaited=tuple(one.awaits for one in steps),
        meets={k: one.ranks for k, one in enumerate(steps) if one.ranks},
        origin=origin,
    )


def two_layers() -> list[Ran]:
    """Two halves of two layers: main waits for each sum of the second half.

    In a layer main computes for 10 us, waits 4, computes for 10 and waits 2. It pauses
    1 us between two kernels of `mlp[0]` in each layer.
    """
    found: list[Ran] = []
    for layer, start in enumerate((0.0, 26.0)):
        before = () if layer == 0 else (3,)
        base = len(found)
        found += [
            Ran("attn[0]", "main", layer, [(start, start + 10)], before, line=10),
            Ran(
                "sum[0]", "comm", layer, [(start + 10, start + 14)], (base,), (0, 1), 11
            ),
            Ran(
                "mlp[0]",
                "main",
                layer,
                [(start + 14, start + 18), (start + 19, start + 24)],
                (base + 1,),
                line=12,
            ),
            Ran(
                "sum[1]",
                "comm",
                layer,
                [(start + 20, start + 26)],
                (base,),
                (0, 1),
                13,
            ),
        ]
    return found
