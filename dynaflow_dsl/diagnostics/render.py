"""Diagnostics as text, in the form that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from dynaflow_dsl.diagnostics.model import Diagnostic
from dynaflow_dsl.diagnostics.render_concise import render_concise
from dynaflow_dsl.diagnostics.render_full import render_full

Form: TypeAlias = Literal["full", "concise", "json", "github", "sarif"]


def render(diagnostics: Sequence[Diagnostic], form: Form = "full") -> str:
    """All diagnostics in one form, in the order given, without colours.

    Ends in a line break, or is empty when there are none; JSON and SARIF are
    documents even then.
    """
    # The forms for programs are imported where one is asked for: every command renders
    # for people, and starts sooner without them.
    match form:
        case "full":
            return "\n".join(render_full(each) + "\n" for each in diagnostics)
        case "concise":
            return "".join(render_concise(each) + "\n" for each in diagnostics)
        case "json":
            from dynaflow_dsl.diagnostics.render_json import render_json

            return render_json(diagnostics)
        case "github":
            from dynaflow_dsl.diagnostics.render_github import render_github

            return "".join(render_github(each) + "\n" for each in diagnostics)
        case "sarif":
            from dynaflow_dsl.diagnostics.render_sarif import render_sarif

            return render_sarif(diagnostics)
