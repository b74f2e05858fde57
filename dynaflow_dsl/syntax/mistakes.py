"""Messages for mistakes that people make, looked up by the state of the parser.

`grammars/mistakes/` holds one file for each mistake: what to say, and broken examples.
Parsing an example shows in which state of the parser, and at which kind of word, such a
mistake is noticed; the same state and word in a user's file get the same message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias, cast

from lark import Lark, UnexpectedInput, UnexpectedToken
from lark.parsers.lalr_analysis import Reduce

from dynaflow_dsl.resources import folder
from dynaflow_dsl.syntax.parser import parser
from dynaflow_dsl.syntax.words import KEYWORDS

# State of the parser and kind of word; ANY stands for every kind.
Key: TypeAlias = tuple[int, str]
ANY = "any"

# Terminals that end a statement.
_ENDS = ("_NL", "_DEDENT")

# Where the message points: at the unexpected word, at what is joined to it on the left,
# or at the end of the statement before it.
Place: TypeAlias = Literal["word", "joined", "before"]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One file of `grammars/mistakes/`."""

    file: str
    code: str
    message: str
    label: str
    helps: tuple[str, ...]
    place: Place
    kind: Literal["one", "any"]
    examples: tuple[str, ...]


def read_mistake(path: Path) -> Mistake:
    """Read `key: value` lines and then examples, each after a line of `---`.

    `code` and `message` are obligatory; `words: any` makes the message hold for every
    word in the examples' states. Raises ValueError for a key that does not exist.
    """
    front, *examples = path.read_text(encoding="utf-8").split("---\n")
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    unknown = fields.keys() - {"code", "message", "label", "help", "place", "words"}
    if unknown or not examples:
        raise ValueError(f"{path.name}: unknown keys {unknown} or no example")
    return Mistake(
        path.name,
        fields["code"],
        fields["message"],
        fields.get("label", "here"),
        (fields["help"],) if "help" in fields else (),
        cast(Place, fields.get("place", "word")),
        cast(Literal["one", "any"], fields.get("words", "one")),
        tuple(examples),
    )


def read_mistakes() -> tuple[Mistake, ...]:
    """All mistakes, by file name."""
    files = sorted((folder("grammars") / "mistakes").glob("*.mistake"))
    return tuple(map(read_mistake, files))


def keyword_terminals(tables: Lark) -> Mapping[str, str]:
    """The parser's own name of each keyword."""
    terminals = (
        (terminal.pattern.value, terminal.name) for terminal in tables.terminals
    )
    return {word: name for word, name in terminals if word in KEYWORDS}


def error_keys(error: UnexpectedToken, tables: Lark) -> tuple[Key, ...]:
    """The keys under which a message for an error may stand, the best one first.

    A keyword where the grammar has none is read as a name; its own message goes first.
    """
    state = _settled(error)
    kinds = [error.token.type, ANY]
    keyword = keyword_terminals(tables).get(error.token)
    if error.token.type == "NAME" and keyword is not None:
        kinds.insert(0, keyword)
    return tuple((state, kind) for kind in kinds)


def _settled(error: UnexpectedToken) -> int:
    """The state of the parser, at the begin of a statement once all that ended there
    is reduced.

    It notices a wrong word before that, in a state that depends on how the statement
    before ended: with options or without, say.
    """
    parser_state = error.interactive_parser.parser_state
    states = parser_state.parse_conf.states
    stack = list(parser_state.state_stack)
    ended = False
    while True:
        actions = states[stack[-1]].values()
        rules = {rule for action, rule in actions if action is Reduce}
        if len(rules) != 1 or any(action is not Reduce for action, _ in actions):
            return cast(int, stack[-1])
        (rule,) = rules
        ended = ended or bool(rule.expansion and rule.expansion[-1].name in _ENDS)
        if not ended:
            return cast(int, stack[-1])
        if rule.expansion:
            del stack[-len(rule.expansion) :]
        _, following = states[stack[-1]][rule.origin.name]
        stack.append(following)


def example_key(example: str, mistake: Mistake, tables: Lark) -> Key:
    """Where an example fails. Raises ValueError when it is no mistake any more."""
    try:
        tables.parse(example)
    except UnexpectedToken as error:
        first, *_, last = error_keys(error, tables)
        return last if mistake.kind == ANY else first
    except UnexpectedInput as error:
        raise ValueError(f"{mistake.file}: no word can be read: {error}") from error
    raise ValueError(f"{mistake.file}: this example is correct:\n{example}")


def mistake_table(mistakes: Iterable[Mistake], tables: Lark) -> dict[Key, Mistake]:
    """Messages by key. Raises ValueError when two mistakes look the same."""
    table: dict[Key, Mistake] = {}
    for mistake in mistakes:
        for example in mistake.examples:
            key = example_key(example, mistake, tables)
            other = table.setdefault(key, mistake)
            if other is not mistake:
                raise ValueError(f"{mistake.file} and {other.file} share {key}")
    return table


@cache
def known_mistakes() -> Mapping[Key, Mistake]:
    """The table for the parser in use; made when a file first has an error."""
    return mistake_table(read_mistakes(), parser())
