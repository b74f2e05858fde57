"""`dfsc explain`: the page of a diagnostic code."""

from __future__ import annotations

import difflib

import click

from dynaflow_dsl.cli.report import Reporter, output_format_option
from dynaflow_dsl.diagnostics.codes import Explanation, explanation, explanations


@click.command("explain")
@click.argument("code", required=False)
@output_format_option
@click.pass_obj
def command(reporter: Reporter, code: str | None) -> int:
    """Explain a diagnostic code such as DFS302; without one, list all."""
    if code is None:
        for page in explanations().values():
            text = f"{page.code} {page.name}: {page.summary}"
            reporter.result(text, _data(page))
        return reporter.code
    known = explanation(code)
    if known is None:
        near = difflib.get_close_matches(code.upper(), explanations(), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise click.UsageError(f"there is no code {code}{hint}")
    terminal = reporter.output is not None and reporter.output.isatty()
    reporter.result(_text(known, terminal), _data(known))
    return reporter.code


def _data(page: Explanation) -> dict[str, str]:
    return {
        "code": page.code,
        "name": page.name,
        "summary": page.summary,
        "page": page.page,
    }


def _text(page: Explanation, terminal: bool) -> str:
    if not terminal:
        return page.text.rstrip("\n")
    # Rich is slow to import and only formats for a terminal.
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.capture() as capture:
        console.print(Markdown(page.text))
    return capture.get().rstrip("\n")
