"""The words of the language: which are keywords, and which are kept back."""

from __future__ import annotations

# Every word the grammar gives a meaning; a test compares this with the grammar.
KEYWORDS = frozenset(
    """
    after and as at by capture dfs each else equal false from having import in into
    kernel model not on or order part parts require schedule select split stagger
    stream true use via when
    """.split()
)

# Words with a fixed meaning that the grammar reads as names.
BUILT_IN = frozenset("main next own prev rest root sequential weights".split())

# Names of what a schedule leaves over, as `dfsc show` prints them.
IMPLICIT_PARTS = frozenset(["before", "gap"])

# Kept for later editions.
KEPT = frozenset("blocks loop pass place walk".split())

RESERVED = KEYWORDS | BUILT_IN | IMPLICIT_PARTS | KEPT

# The words that open a statement. `model` is left out: it is also a value.
OPENERS = frozenset(
    """
    capture each else equal from kernel order part parts require schedule select split
    stagger stream use when
    """.split()
)
