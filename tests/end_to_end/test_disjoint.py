"""A cache of pages that all pieces share, and each row writes places of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import run
from dynaflow_dsl.runtime.errors import CheckError
from dynaflow_dsl.trace import load_target
from tests.verification.mutations import import_module

TARGET = """
import torch
from torch import nn

from dynaflow_dsl.trace import Entry, TraceSpec

PLACES = 64


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.up = nn.Linear(4, 4)

    def forward(self, x, cache, slots, pages):
        cache[slots] = self.up(self.norm(x))
        seen = cache[pages]
        return x + seen.mean(1)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x, slots, pages, caches: list[torch.Tensor]):
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, slots, pages)
        return x


def arguments(sizes):
    rows = sizes["batch"]
    pages = torch.randperm(PLACES)[: 4 * rows].view(rows, 4)
    slots = SLOTS
    caches = [torch.randn(PLACES, 4) for _ in range(2)]
    return torch.randn(rows, 4), slots, pages, caches


def target() -> TraceSpec:
    torch.manual_seed(0)
    return TraceSpec(
        model=Model().eval(),
        entries={"run": Entry(arguments)},
        dims={"x": ("batch", None), "slots": ("batch",), "pages": ("batch", None)},
        dimensions={"batch": (1, 16)},
        disjoint=("caches",),
    )
"""
SCHEDULE = """dfs 1

model "paged_target.py:target"

schedule paged:
    stream side
    split batch into 2 as half
    each layer in .layers.*:
        part norm on side = .norm
        part attn = rest + (own in .)
        stagger half by 1:
            norm
            attn
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paged.dfs").write_text(SCHEDULE)
    write(tmp_path, "pages[:, 2].clone()")
    return tmp_path


def write(folder: Path, slots: str, *, disjoint: str = '("caches",)') -> None:
    text = TARGET.replace("SLOTS", slots).replace('("caches",)', disjoint)
    (folder / "paged_target.py").write_text(text)


VERIFY = ["verify", "paged.dfs", "--text-only", "--batch", "2", "--batch", "5"]


def test_rows_write_pages_of_their_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compile", "paged.dfs"]) == 0
    text = (folder / "executors" / "paged.py").read_text()
    assert "Each piece writes places of its own into what all pieces share" in text
    assert run(VERIFY) == 0
    said = capsys.readouterr().out
    assert said.count("'disjoint' of the target states that rows are apart") == 2


def test_rows_that_share_a_place_are_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, "pages[:1, 2].repeat(rows)")
    assert run(["compile", "paged.dfs"]) == 0
    assert run(VERIFY) == 1
    said = capsys.readouterr().out
    assert "NOT so: batch 2: input 3 is written differently in pieces" in said


def test_without_the_statement_it_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, "pages[:, 2].clone()", disjoint="()")
    assert run(["compile", "paged.dfs"]) == 1
    said = capsys.readouterr().err
    assert "error[DFS601]" in said
    assert "writes rows into a tensor that all microbatches share" in said


@pytest.mark.parametrize(
    ("disjoint", "reason"),
    [
        ('("cashes",)', "'disjoint' of the target names 'cashes', but the model's"),
        ('("slots",)', "'disjoint' names 'slots', which has named"),
    ],
)
def test_statements_that_cannot_be_meant(
    folder: Path, capsys: pytest.CaptureFixture[str], disjoint: str, reason: str
) -> None:
    write(folder, "pages[:, 2].clone()", disjoint=disjoint)
    assert run(["compile", "paged.dfs"]) == 1
    assert reason in capsys.readouterr().err


def test_snapshots_hold_the_statement(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trace", "paged.dfs"]) == 0
    snapshot = (folder / "paged.graph.json").read_text()
    assert snapshot.count('"disjoint": true') == 2
    assert run(["check", "paged.dfs"]) == 0
    # A snapshot made before is a snapshot without.
    (folder / "paged.graph.json").write_text(snapshot.replace(', "disjoint": true', ""))
    assert run(["check", "paged.dfs"]) == 1
    assert "error[DFS601]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("slots", "apart"),
    [("pages[:, 2].clone()", True), ("pages[:1, 2].repeat(rows)", False)],
)
def test_a_checked_step_sees_pieces_that_meet(
    folder: Path, slots: str, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, slots)
    assert run(["compile", "paged.dfs"]) == 0
    spec = load_target("paged_target.py:target", {}, None).unwrap()
    monkeypatch.setenv("DFSC_CHECK", "1")
    module = import_module(folder / "executors" / "paged.py")
    step = module.load(spec.model, compile=False)
    arguments = spec.entries["run"].arguments({"batch": 4})
    if apart:
        step(*arguments)
        return
    with pytest.raises(CheckError, match=r"places that .* has written in a tensor"):
        step(*arguments)
