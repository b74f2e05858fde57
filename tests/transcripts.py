"""Markdown that is a test: files, commands, and what the commands print.

All of a document happens in one folder, or in one for each heading of the second level
when `apart`. A block of code that has a
name behind its language is a file of that name, and a block of `console` holds commands
after `$`, each followed by all that it prints; a last line `exit N` is the exit code,
unless it is 0. `dfsc` is run inside this process, everything else by a shell.

After an intended change, `pytest FILE --update` rewrites what commands print.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from dynaflow_dsl.cli.main import run

BLOCK = re.compile(
    r"^## [^\n]+\n|^```(?P<kind>[a-z]+)(?: (?P<name>[^\n]+))?\n(?P<text>.*?)^```\n",
    re.DOTALL | re.MULTILINE,
)
COMMAND = re.compile(r"^\$ ([^\n]+)\n((?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)


def check_transcript(
    file: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    update: bool,
    apart: bool = False,
) -> None:
    """Run a document in `folder`; fail at the first command that prints otherwise."""
    text = file.read_text(encoding="utf-8")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "88")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    answered = "".join(_answered(text, folder, monkeypatch, apart=apart))
    if update:
        file.write_text(answered, encoding="utf-8")
    assert answered == text or update


def _answered(
    text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, apart: bool
) -> Iterator[str]:
    number, end, commands = 0, 0, 0
    for block in BLOCK.finditer(text):
        yield text[end : block.start()]
        end = block.end()
        if block["kind"] is None and apart:
            number += 1
        here = folder / f"{number}"
        here.mkdir(exist_ok=True)
        monkeypatch.chdir(here)
        if block["kind"] == "console":
            commands += 1
            answers = (
                f"$ {line}\n{_run(line)}" for line, _ in COMMAND.findall(block["text"])
            )
            yield f"```console\n{''.join(answers)}```\n"
            continue
        if block["name"] is not None:
            path = here / block["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], encoding="utf-8")
        yield block[0]
    yield text[end:]
    assert commands, "no command was run"


def _run(line: str) -> str:
    if not line.startswith("dfsc "):
        done = subprocess.run(
            line, shell=True, capture_output=True, text=True, check=False
        )
        return f"{done.stdout}{done.stderr}{_exit(done.returncode)}"
    output = io.StringIO()
    stdin = sys.stdin
    command, _, fed = line.partition(" < ")
    try:
        if fed:
            sys.stdin = open(fed, encoding="utf-8")  # noqa: PTH123, SIM115
        with redirect_stdout(output), redirect_stderr(output):
            code = run(shlex.split(command)[1:])
    finally:
        if sys.stdin is not stdin:
            sys.stdin.close()
        sys.stdin = stdin
    return f"{output.getvalue().rstrip()}\n{_exit(code)}".lstrip("\n")


def _exit(code: int) -> str:
    return f"exit {code}\n" if code else ""
