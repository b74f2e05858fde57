"""The parser tables: made from the grammar, kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from pathlib import Path

import lark
from lark import Lark

from dynaflow_dsl.resources import folder
from dynaflow_dsl.syntax.layout import IndentTokens


@cache
def parser() -> Lark:
    """The parser of edition 1; a process makes it once, when first needed.

    Making the tables takes a fifth of a second, reading them a hundredth.
    """
    grammar = (folder("grammars") / "dfs.lark").read_text(encoding="utf-8")
    tables = _tables_file(grammar)
    return make_parser(grammar, tables)


def make_parser(grammar: str, tables: Path | None, *, strict: bool = False) -> Lark:
    """A parser for a grammar text; `tables` is where its tables are kept, if anywhere.

    `strict` refuses terminals that collide (needs interegular).
    """
    return Lark(
        grammar,
        parser="lalr",
        postlex=IndentTokens(),
        propagate_positions=True,
        maybe_placeholders=False,
        strict=strict,
        cache=str(tables) if tables else False,
    )


def _tables_file(grammar: str) -> Path | None:
    """Where the tables are kept, or None when there is no safe place.

    They are a pickle, so the folder has to be the user's own and closed to others. The
    name holds all that the tables depend on.
    """
    versions = f"{lark.__version__} {sys.version_info[:2]}"
    digest = hashlib.sha256(f"{versions}\n{grammar}".encode()).hexdigest()[:16]
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(base) if base else Path.home() / ".cache"
        place = root / "dynaflow-dsl"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = place.stat()
        if hasattr(os, "getuid"):
            private = status.st_uid == os.getuid() and not status.st_mode & 0o022
            if not private:
                return None
        if not os.access(place, os.W_OK):
            return None
    except (OSError, RuntimeError):
        return None
    return place / f"grammar-{digest}.pickle"
