"""An edit of one window changes that window's blocks of the module, and nothing else.

Its steps stand once in each stretch of the program: in the first iteration, in the loop
over the others, and behind the last one. For every shipped schedule one window after
the other is edited, and `dfsc diff` says it in one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from dynaflow_dsl import pipeline
from dynaflow_dsl.comparison import compare
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.resolve.model import Schedule, ScheduleFile
from dynaflow_dsl.resources import folder
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse
from dynaflow_dsl.trace import load_target, trace

SCHEDULES = folder("schedules")
FACTS = {"arch": "sm90"}
FILES = [
    file
    for file in sorted(SCHEDULES.rglob("*.dfs"))
    if "\nschedule " in (text := file.read_text(encoding="utf-8"))
    # Those of engines are for models that only the engine has.
    and "\nmodel " in text
]
TIMELINE = re.compile(
    r"^(?P<margin> +)(?:order|stagger .*):\n(?:(?P=margin) +[^\n]*\n)+", re.MULTILINE
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    FILES,
    ids=lambda path: path.relative_to(SCHEDULES).with_suffix("").as_posix(),
)
def test_one_window_is_its_own_blocks_and_one_sentence(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    file = read(path, text)
    model = traced(file)
    schedule, *_ = file.schedules
    before = with_windows(text, [window.text for window in windows(schedule)])
    module = compiled(path, before, model)
    assert module is not None
    edited = 0
    for number, after in edits(before, schedule):
        other = compiled(path, after, model)
        if other is None:
            continue
        edited += 1
        window = windows(schedule)[number].text
        for block, steps in changed_blocks(module, other):
            assert steps <= steps_of(window), block
        sentences = differences(path, before, after)
        assert len(sentences) == 1
        assert window in sentences[0]
    assert edited or all(len(window.runs) == 1 for window in windows(schedule))


def read(path: Path, text: str) -> ScheduleFile:
    return pipeline.understand(Source(path.as_posix(), text)).unwrap()


def traced(file: ScheduleFile) -> TracedModel:
    assert file.model is not None
    target, arguments = file.model.target, dict(file.model.arguments)
    return trace(
        load_target(target, arguments, None).unwrap(), target, arguments
    ).unwrap()


def windows(schedule: Schedule) -> list:
    """Those of the first section, whose timeline stands first in the text."""
    return list(schedule.sections[0].windows)


def with_windows(text: str, lines: list[str]) -> str:
    """The schedule with these windows in an `order`, whatever its timeline was."""
    found = TIMELINE.search(text)
    assert found is not None
    margin = found["margin"]
    body = "".join(f"{margin}    {line}\n" for line in lines)
    return f"{text[: found.start()]}{margin}order:\n{body}{text[found.end() :]}"


def edits(text: str, schedule: Schedule) -> Iterator[tuple[int, str]]:
    """Each window with its runs in the other order: who is issued first."""
    lines = [window.text for window in windows(schedule)]
    for number, line in enumerate(lines):
        runs = line.split(" | ")
        if len(runs) > 1:
            other = " | ".join(reversed(runs))
            yield (
                number,
                with_windows(text, [*lines[:number], other, *lines[number + 1 :]]),
            )


def compiled(path: Path, text: str, model: TracedModel) -> str | None:
    made = pipeline.compile_schedules(read(path, text), model, FACTS).value
    return made.text if made is not None else None


def changed_blocks(old: str, new: str) -> Iterator[tuple[str, set[str]]]:
    """Blocks that differ, each with the steps in its title; the header is left out."""
    before, after = blocks(old), blocks(new)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, i, end, j, stop in matcher.get_opcodes():
        if tag != "equal":
            assert end - i == stop - j, "a block came or went"
            changed = [
                pair
                for pair in zip(before[i:end], after[j:stop], strict=True)
                # Who waits for two steps does so in the order in which they are issued.
                if calls(pair[0]) != calls(pair[1])
            ]
            for block in [block for pair in changed for block in pair]:
                lines = [line.strip() for line in block.splitlines()]
                # The first block of a loop begins with the line that opens it.
                title = next(line for line in lines if not line.startswith("for "))
                assert title.startswith("# "), block
                yield block, steps_of(title.removeprefix("# ").rpartition(" · ")[2])


def calls(block: str) -> list[str]:
    """The lines of a block without waits, what serves them alone, and comments."""
    lines = [line.partition("  # ")[0].strip() for line in block.splitlines()]
    follows = re.compile(r"#|del |.*\.wait\(|.*\.record\(")
    return [line for line in lines if line and not follows.match(line)]


def blocks(module: str) -> list[str]:
    _, _, body = module.partition("\n\n")
    return [block for block in body.split("\n\n") if block.strip()]


def steps_of(window: str) -> set[str]:
    return {step.strip().removeprefix("prev.") for step in re.split(r"[|,]", window)}


def differences(path: Path, old: str, new: str) -> list[str]:
    sources = [Source(path.as_posix(), text) for text in (old, new)]
    one, other = (parse(source).unwrap() for source in sources)
    return [change.sentence for change in compare(one, other, {}, {}).changes]
