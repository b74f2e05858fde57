"""Claims about rows, held against numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

from dynaflow_dsl.verification.rows import RowClaim, RowTrial, Sample, try_claims

PIECES = (slice(0, 2), slice(2, 5))


class Model(nn.Module):
    def __init__(self, inside: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inside = inside
        self.seen = nn.Buffer(torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inside(torch.relu(x) + self.seen))


def put_back(x: torch.Tensor) -> torch.Tensor:
    order = torch.argsort(x[:, 0])
    return torch.sin(x[order])[torch.argsort(order)]


def moved(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x[torch.argsort(x[:, 0])])


def averaged(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(0)


def neighbours(x: torch.Tensor) -> torch.Tensor:
    # In halves of 2 and 3 nothing shows; in a whole row 3 sees row 2.
    return x + 0.0 * torch.roll(x, 1, 0)


def inverted(x: torch.Tensor) -> torch.Tensor:
    squares = x[:, None, :] * x[:, :, None] + torch.eye(4)
    inverse: torch.Tensor = torch.linalg.inv(squares)
    return inverse[:, 0]


def exported(inside: Callable[[torch.Tensor], torch.Tensor]) -> ExportedProgram:
    batch = Dim("batch", min=1, max=64)
    return export(
        Model(inside),
        (torch.randn(5, 4),),
        dynamic_shapes=({0: batch},),
        strict=False,
    )


def tried(
    inside: Callable[[torch.Tensor], torch.Tensor], *pieces: tuple[slice, ...]
) -> RowTrial:
    torch.manual_seed(0)
    program = exported(inside)
    calls = [
        node.name
        for node in program.graph_module.graph.nodes
        if node.op == "call_function" and node.name not in ("relu", "add", "tanh")
    ]
    (reader,) = (n for n in program.graph_module.graph.nodes if n.name == "tanh")
    claim = RowClaim(
        "part a", frozenset(calls), (reader.args[0].name,), "argsort in .a"
    )
    samples = [Sample((torch.randn(p[-1].stop, 4),), p) for p in pieces]
    (trial,) = try_claims(
        [claim],
        program,
        {},
        samples,
        None,
        lambda: None,
    )
    return trial


def test_a_true_claim() -> None:
    trial = tried(put_back, PIECES)
    assert trial.ok
    assert str(trial).startswith(
        "part a states that rows are apart (argsort in .a): 4 comparisons of pieces "
        "and of replaced rows agree"
    )


@pytest.mark.parametrize("inside", [moved, averaged])
def test_a_false_claim_shows_in_pieces(
    inside: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    trial = tried(inside, PIECES)
    assert not trial.ok
    assert trial.problem is not None
    assert trial.problem.startswith("batch 5: ")
    assert "differs when cut in pieces" in trial.problem
    assert "NOT so" in str(trial)


def test_a_false_claim_shows_only_with_a_replaced_row() -> None:
    trial = tried(neighbours, PIECES)
    assert trial.problem is not None
    assert trial.problem.startswith("batch 5: NaN in row 2 reach other rows of ")


def test_what_refuses_nan_is_judged_without() -> None:
    assert tried(inverted, PIECES).ok


def test_what_cannot_run_in_pieces() -> None:
    trial = tried(lambda x: x[torch.tensor([4, 3, 2, 1, 0])], PIECES)
    assert trial.problem is not None
    assert "it cannot run in pieces" in trial.problem


def test_without_pieces_nothing_was_checked() -> None:
    trial = tried(put_back, (slice(0, 5),))
    assert not trial.ok
    assert str(trial).endswith("no step was cut in pieces, so not checked")


def test_rows_are_replaced_in_the_largest_step() -> None:
    small = (slice(0, 1), slice(1, 2))
    assert tried(put_back, small, PIECES).comparisons == 2 + 4
