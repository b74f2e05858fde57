"""Every error code: its name, one sentence, and a page.

The pages are Markdown, one file for each hundred of codes, and are the only place where
a code is described: `dfsc explain`, the documentation and editors read the same text. A
section is

    ## DFS101 reserved-name

    One sentence.

    The page: what it means, why it is a rule, an example, what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGES = Path(__file__).parent / "pages"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a code. `page` is Markdown without the summary."""

    code: str
    name: str
    summary: str
    page: str

    @property
    def text(self) -> str:
        """All of it as Markdown."""
        return f"# {self.code} {self.name}\n\n{self.summary}\n\n{self.page}\n"


@cache
def explanations() -> Mapping[str, Explanation]:
    """All codes, in order."""
    found = {}
    for file in sorted(PAGES.glob("*.md")):
        _title, *sections = file.read_text(encoding="utf-8").split("\n## ")
        for section in sections:
            heading, summary, page = section.strip().split("\n\n", 2)
            code, name = heading.split()
            found[code] = Explanation(code, name, " ".join(summary.split()), page)
    return found


def explanation(code: str) -> Explanation | None:
    """What is known of a code, in any case; None when there is no such code."""
    return explanations().get(code.upper())


def has_long_page(code: str) -> bool:
    """Whether a message should point to its page.

    Messages about the text itself (DFS0xx) already say all there is.
    """
    return not code.startswith("DFS0")
