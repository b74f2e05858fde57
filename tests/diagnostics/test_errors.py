"""Diagnostics as an exception of the Python interface."""

from __future__ import annotations

import pickle

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError, Label, Severity
from dynaflow_dsl.source import Source, Span

TEXT = "dfs 1\nstream side\n"


def error() -> DiagnosticError:
    span = Span(Source("a.dfs", TEXT), 6, 17)
    return DiagnosticError(
        [
            Diagnostic("DFS103", "stream side", Label(span), helps=("leave it out",)),
            Diagnostic("DFS501", "a.py is stale", severity=Severity.WARNING),
        ]
    )


def test_its_text_has_places_and_ways_out() -> None:
    text = str(error())
    assert text.startswith("error[DFS103]: stream side\n --> a.dfs:2:1\n")
    assert "= help: leave it out" in text
    assert "warning[DFS501]: a.py is stale" in text
    assert not text.endswith("\n")


def test_it_goes_to_another_process() -> None:
    again = pickle.loads(pickle.dumps(error()))
    assert str(again) == str(error())
    assert again.diagnostics[0].code == "DFS103"
