"""Breaks the text of a generated step, one line at a time."""

from __future__ import annotations

import re


def step_lines(text: str) -> list[int]:
    """Numbers of the lines of the first `step`."""
    lines = text.split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith("    def step("))
    end = next(n for n, line in enumerate(lines) if "    def sequential(" in line)
    return list(range(start, end))


def without(text: str, word: str) -> dict[str, str]:
    """The text without each line of `step` that holds a word, by what was left out."""
    lines = text.split("\n")
    return {
        f"{n}: {lines[n].strip()}": "\n".join((*lines[:n], *lines[n + 1 :]))
        for n in step_lines(text)
        if word in lines[n] and not lines[n].strip().startswith("#")
    }


def earlier_frees(text: str) -> dict[str, str]:
    """The text with each `del` one statement up, above the wait or call before it."""
    lines = text.split("\n")
    found = {}
    for n in step_lines(text):
        if lines[n].strip().startswith("del ") and ".wait(" in lines[n - 1]:
            moved = (*lines[: n - 1], lines[n], lines[n - 1], *lines[n + 1 :])
            found[f"{n}: {lines[n].strip()}"] = "\n".join(moved)
    return found


def base_dropped(text: str, base: str) -> str:
    """The whole tensor loses its name as soon as its slices have theirs."""
    kept = [
        line
        for n, line in enumerate(text.split("\n"))
        if not (n in step_lines(text) and line.strip() == f"del {base}")
    ]
    sliced = re.compile(rf"( +)\w+(?:, \w+)* = {base}\[")
    at = next(n for n, line in enumerate(kept) if sliced.match(line))
    return "\n".join((*kept[: at + 1], f"        del {base}", *kept[at + 1 :]))


def swapped_slices(text: str, index: str) -> dict[str, str]:
    """The text with each slice of piece 0 taken from piece 1 instead."""
    lines = text.split("\n")
    return {
        f"{n}: {lines[n].strip()}": "\n".join(
            (
                *lines[:n],
                lines[n].replace(f"[{index}_0]", f"[{index}_1]", 1),
                *lines[n + 1 :],
            )
        )
        for n in step_lines(text)
        if f"[{index}_0]" in lines[n]
    }
