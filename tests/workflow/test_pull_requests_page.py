from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.commands import ROOT
from tests.transcripts import check_transcript


def test_the_page_says_what_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool
) -> None:
    page = ROOT / "docs" / "pull_requests.md"
    check_transcript(page, tmp_path, monkeypatch, update=update)
