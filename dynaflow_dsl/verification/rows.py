"""Checks by numbers that operations are row-wise, where somebody only states it.

Whatever is stated, all other operations run on the whole batch, so that a difference is
theirs: once they run whole, once for each piece, and twice whole with one row of all
that they read replaced, by other numbers and by NaN, which no other row may show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves, tree_map

from dynaflow_dsl.runtime.distances import (
    INFINITE,
    TOLERANCES,
    Distance,
    distance,
    usual_magnitude,
)
from dynaflow_dsl.verification.reference import Context, Poison, Reference


@dataclass(frozen=True, slots=True)
class RowClaim:
    """Operations that are row-wise together, as `who` states.

    `results` are values that others read. `unproved` says which operations no rule
    proves, and why.
    """

    who: str
    operations: frozenset[str]
    results: tuple[str, ...]
    unproved: str


@dataclass(frozen=True, slots=True)
class RowTrial:
    """All comparisons for one claim.

    `largest` is the largest difference over the largest magnitude of a tensor, and
    `problem` what was wrong with the first comparison that was.
    """

    who: str
    unproved: str
    comparisons: int
    largest: float
    problem: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the numbers agree with the claim, and there were some."""
        return self.problem is None and self.comparisons > 0

    def __str__(self) -> str:
        said = f"{self.who} states that rows are apart ({self.unproved})"
        if self.problem is not None:
            return f"{said}: NOT so: {self.problem}"
        if not self.comparisons:
            return f"{said}: no step was cut in pieces, so not checked"
        return (
            f"{said}: {self.comparisons} comparisons of pieces and of replaced rows "
            f"agree (largest {self.largest:.1e})"
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """A step to try claims on: its arguments, and the pieces it is cut into."""

    arguments: Sequence[Any]
    pieces: Sequence[slice]


def try_claims(
    claims: Sequence[RowClaim],
    exported: ExportedProgram,
    weights: Mapping[str, torch.Tensor],
    samples: Sequence[Sample],
    split_input: tuple[int, int] | None,
    restore: Callable[[], None],
    context: Context | None = None,
    dimension: str = "batch",
) -> tuple[RowTrial, ...]:
    """Hold every claim against the numbers of samples that have pieces.

    `restore` puts the weights back that a run may have written. Rows are replaced
    in the largest sample. What is cut runs in `context` of its rows.
    """
    cut = [sample for sample in samples if len(sample.pieces) > 1]
    largest = max(cut, key=lambda sample: sample.pieces[-1].stop, default=None)
    trials = []
    for claim in claims:
        bench = _Bench(claim, exported, weights, split_input, restore, context)
        compared, worst, problem = 0, 0.0, None
        for sample in cut:
            for found in bench.differences(sample, sample is largest):
                compared += 1
                worst = max(worst, found.apart.relative)
                allowed = TOLERANCES.get(found.dtype, 0.0)
                if problem is None and found.apart.relative > allowed:
                    batch = sample.pieces[-1].stop
                    problem = f"{dimension} {batch}: {found.what} ({found.apart})"
        trials.append(RowTrial(claim.who, claim.unproved, compared, worst, problem))
    return tuple(trials)


@dataclass(frozen=True, slots=True)
class _Found:
    what: str
    apart: Distance
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class _Bench:
    """Runs a program with the operations of one claim apart from all others."""

    claim: RowClaim
    exported: ExportedProgram
    weights: Mapping[str, torch.Tensor]
    split_input: tuple[int, int] | None
    restore: Callable[[], None]
    context: Context | None

    def run(
        self, sample: Sample, pieces: Sequence[slice], poison: Poison | None = None
    ) -> tuple[Reference, Sequence[Any]]:
        arguments = tree_map(
            lambda one: one.clone() if isinstance(one, torch.Tensor) else one,
            tuple(sample.arguments),
        )
        names = {node.name for node in self.exported.graph_module.graph.nodes}
        run = Reference(
            self.exported,
            self.weights,
            arguments,
            names - self.claim.operations,
            pieces,
            self.split_input,
            poison,
            blocks=True,
            context=self.context,
        )
        try:
            run.outputs()
        finally:
            self.restore()
        return run, arguments

    def differences(self, sample: Sample, replace: bool) -> Iterator[_Found]:
        """Yield what every comparison shows, alike or not."""
        batch = sample.pieces[-1].stop
        everything = (slice(0, batch),)
        around = usual_magnitude(_tensors(sample.arguments))
        clean, after = self.run(sample, everything)
        try:
            split, after_split = self.run(sample, sample.pieces)
            for name in self.claim.results:
                one, other = split.joined(name), clean.joined(name)
                what = f"{name} differs when cut in pieces"
                yield _Found(what, distance(one, other, around), other.dtype)
        except (RuntimeError, IndexError, ValueError) as error:
            said = str(error).partition("\n")[0]
            what = f"it cannot run in pieces: {said}"
            yield _Found(what, INFINITE, torch.float32)
            return
        tensors = zip(_tensors(after_split), _tensors(after), strict=True)
        for position, (one, other) in enumerate(tensors):
            what = f"input {position} is written differently in pieces"
            yield _Found(what, distance(one, other, around), other.dtype)
        if not replace:
            return
        row = batch // 2
        for how, fill in (("other numbers", _noise), ("NaN", _not_a_number)):
            try:
                dirty, _ = self.run(sample, everything, Poison(row, fill))
            except (RuntimeError, IndexError, ValueError):
                # Decompositions of matrices refuse NaN, which no piece has shown.
                continue
            for name in self.claim.results:
                kept = [run.without_row(name, row) for run in (dirty, clean)]
                what = f"{how} in row {row} reach other rows of {name}"
                yield _Found(what, distance(kept[0], kept[1], around), kept[1].dtype)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _noise(row: torch.Tensor, before: torch.Tensor) -> None:
    """Replace a row by other numbers: drawn ones, or those of its neighbour."""
    if row.is_floating_point() or row.is_complex():
        generator = torch.Generator().manual_seed(0)
        row.copy_(torch.randn(row.shape, generator=generator, dtype=torch.float64))
    else:
        row.copy_(before.clone())


def _not_a_number(row: torch.Tensor, before: torch.Tensor) -> None:
    if row.is_floating_point() or row.is_complex():
        row.fill_(float("nan"))
