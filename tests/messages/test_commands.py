"""What commands print, whole: each Markdown file in `commands` is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts import check_transcript

FILES = sorted((Path(__file__).parent / "commands").glob("*.md"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_commands(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool
) -> None:
    check_transcript(file, tmp_path, monkeypatch, update=update, apart=True)
