"""How long a collective takes: machines of some ranks each, and the links between them.

The costs are the usual ones of rings (latency and bandwidth): Thakur, Rabenseifner and
Gropp, Optimization of Collective Communication Operations in MPICH, 2005.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """What a rank sends: bytes per second, and seconds before the first arrives."""

    bandwidth: float
    latency: float

    def seconds(self, moved: float, messages: int) -> float:
        """Of messages one after the other, which have so many bytes in all."""
        return moved / self.bandwidth + messages * self.latency


@dataclass(frozen=True, slots=True)
class Cluster:
    """Machines with `size` ranks each, and a link of every rank in and out of its."""

    size: int
    inside: Link
    between: Link

    def seconds(self, kind: str, moved: float, ranks: int) -> float:
        """A collective of `moved` bytes: what a rank has before (an all-reduce, a
        reduce-scatter, an all-to-all) or behind it (an all-gather).

        Between machines an all-reduce is of what each rank has summed inside. Raises
        ValueError for a kind that has no cost here, and for ranks that leave a machine
        partly used.
        """
        here = min(ranks, self.size)
        machines, rest = divmod(ranks, here)
        if rest:
            raise ValueError(f"{ranks} ranks are no whole machines of {self.size}")
        match kind:
            case "all_reduce":
                return 2 * self._half(moved, here, machines)
            case "all_gather" | "reduce_scatter":
                return self._half(moved, here, machines)
            case "all_to_all":
                # Both links at once; each other rank gets a message of its own.
                each = moved / ranks
                near = self.inside.seconds(each * (here - 1), here - 1)
                far = self.between.seconds(each * (ranks - here), ranks - here)
                return max(near, far)
        raise ValueError(f"a collective of the kind {kind} has no cost here")

    def _half(self, moved: float, here: int, machines: int) -> float:
        """Scatter sums, or gather: rings inside machines, and between them of a part.

        Each half of an all-reduce is one of the two.
        """
        share = moved / here
        near = self.inside.seconds(share * (here - 1), here - 1)
        far = self.between.seconds(share / machines * (machines - 1), machines - 1)
        return near + far


def fitted(samples: Sequence[tuple[float, float]]) -> Link:
    """The link of two ranks whose all-reduces of so many bytes took so many seconds.

    By least squares of the relative errors. Raises ValueError where that is no link.
    """
    if len({moved for moved, _ in samples}) < 2:
        raise ValueError("a link is fitted to all-reduces of two sizes and more")
    # seconds = moved / bandwidth + 2 latency, each divided by its seconds.
    rows = [(moved / seconds, 2 / seconds) for moved, seconds in samples]
    aa = sum(a * a for a, _ in rows)
    ab = sum(a * b for a, b in rows)
    bb = sum(b * b for _, b in rows)
    a, b = (sum(row[k] for row in rows) for k in (0, 1))
    determinant = aa * bb - ab * ab
    per_byte = (a * bb - b * ab) / determinant
    latency = (b * aa - a * ab) / determinant
    if per_byte <= 0:
        raise ValueError("larger all-reduces took no longer: that is no link")
    return Link(1 / per_byte, max(latency, 0.0))
