"""Mutations of texts and of JSON, all from one source of random numbers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

WORDS = [
    word.encode()
    for word in (
        *"dfs schedule parts part each in order stagger by split into as".split(),
        *"stream use from import kernel select when else require capture".split(),
        *"model on via".split(),
        *"prev. next. root. rest own main true false not and or".split(),
        *"after at having".split(),
        *"( ) [ ] { } : , | || = == != + - * // % < > . .. .* **".split(),
        *("'", '"', "#", "$", ";", chr(92)),
        *"0 1 2 64 65 0.5 999999999999999999999 1e9 -1 a b attn[0] prev.mlp[1]".split(),
        "\n",
        "\n    ",
        "\n        ",
        "\n            ",
        "\t",
        "\r\n",
        "\r",
        "\ufeff",
        "\x00",
        "\u2028",
        "\u00e9",
        '"../x.dfs"',
        '"std:llama/halves.dfs"',
        "dfs 1\n",
        "dfs 2\n",
    )
] + [b"\xff", b"\xc3", b"\xf0\x9f"]

VALUES: Sequence[Any] = (
    *(None, True, False, 0, -1, 1, 2**63, 10**30, 0.5, float("inf"), "", "batch", "x"),
    *("aten.add.Tensor", "model.layers.0", [], {}, [[]], [None], {"a": 1}, "\x00"),
)


def mutate_bytes(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """One to six edits: of bytes, of words, of lines, or a piece of another text."""
    edits: Sequence[Callable[[bytes], bytes]] = (
        lambda d: _put(d, bytes([chance.randrange(256)]), chance, 1),
        lambda d: _put(d, chance.choice(WORDS), chance, 0),
        lambda d: _put(d, chance.choice(WORDS), chance, chance.randrange(8)),
        lambda d: _put(d, b"", chance, chance.randrange(1, 20)),
        lambda d: _lines(d, chance),
        lambda d: _put(d, _piece(chance.choice(others), chance), chance, 0),
        lambda d: _put(d, _piece(d, chance) * chance.randrange(1, 40), chance, 0),
        lambda d: d[: chance.randrange(len(d) + 1)],
    )
    for _ in range(chance.randint(1, 6)):
        data = chance.choice(edits)(data)
    return data[:20_000]


def mutate_json(text: str, chance: random.Random) -> str:
    """One to four edits of values anywhere in a document, written again."""
    document = json.loads(text)
    for _ in range(chance.randint(1, 4)):
        places = list(_places(document))
        if not places:
            break
        holder, key = chance.choice(places)
        match chance.randrange(5):
            case 0:
                holder[key] = chance.choice(VALUES)
            case 1:
                del holder[key]
            case 2:
                other, name = chance.choice(places)
                # Written and read again, so that nothing holds itself.
                holder[key] = json.loads(
                    json.dumps(
                        other.get(name, None) if isinstance(other, dict) else None
                    )
                )
            case 3 if isinstance(holder, list):
                holder.insert(key, json.loads(json.dumps(holder[key])))
            case 4 if isinstance(holder[key], str):
                holder[key] = holder[key][1:] + chance.choice("aZ0._:[]")
            case _:
                holder[key] = chance.choice(VALUES)
    return json.dumps(document)


def _places(node: Any) -> Any:
    match node:
        case dict():
            for key, value in node.items():
                yield node, key
                yield from _places(value)
        case list():
            for index, value in enumerate(node):
                yield node, index
                yield from _places(value)


def _put(data: bytes, piece: bytes, chance: random.Random, cut: int) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + piece + data[at + cut :]


def _piece(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    return data[start : start + chance.randrange(60)]


def _lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(3):
        case 0:
            lines[one], lines[other] = lines[other], lines[one]
        case 1:
            lines.insert(one, lines[other])
        case _:
            lines[one] = b" " * chance.randrange(20) + lines[one].lstrip()
    return b"\n".join(lines)
