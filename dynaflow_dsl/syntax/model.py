"""What a `.dfs` file says, statement by statement, with nothing looked up yet.

One class for each form of the grammar; every node has a span. The span of a statement
that opens a block is that of its header line.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from dynaflow_dsl.source import Source, Span

# ---- expressions ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name:
    """A name where it is written."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Number:
    """An integer, or a decimal as an exact fraction."""

    value: int | Fraction
    span: Span


@dataclass(frozen=True, slots=True)
class String:
    """A text without its quotes."""

    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class Boolean:
    """`true` or `false`."""

    value: bool
    span: Span


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name used as a value."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[a, b, ...]`, never empty."""

    items: tuple[Expression, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left + right` and the like."""

    operator: Literal["+", "-", "*", "//", "%"]
    left: Expression
    right: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Not:
    """`not operand`."""

    operand: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Logical:
    """`left and right`, `left or right`."""

    operator: Literal["and", "or"]
    left: Expression
    right: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left == right` and the like; `in` has a list on its right."""

    operator: Literal["==", "!=", "<=", ">=", "<", ">", "in"]
    left: Expression
    right: Expression
    span: Span


Expression: TypeAlias = (
    Number
    | String
    | Boolean
    | Symbol
    | ListOf
    | Arithmetic
    | Not
    | Logical
    | Comparison
)


@dataclass(frozen=True, slots=True)
class Argument:
    """`name = value` in parentheses."""

    name: Name
    value: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """`name` or `name(a = 1)`."""

    name: Name
    arguments: tuple[Argument, ...]
    span: Span


# ---- selectors -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Path:
    """A module path: its anchor, and what follows the first dot, split at dots."""

    anchor: Literal["scope", "prev", "next", "root"]
    pattern: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class PartReference:
    """A name among selectors: another part, or `rest`."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class OperationsIn:
    """`all_reduce in .mlp`, `"*dispatch*" in .mlp`, `own in .`."""

    operation: Name | String
    scope: SelectorExpression
    span: Span


@dataclass(frozen=True, slots=True)
class SetOperation:
    """`left + right`, `left - right`."""

    operator: Literal["+", "-"]
    left: SelectorExpression
    right: SelectorExpression
    span: Span


@dataclass(frozen=True, slots=True)
class FirstMatch:
    """`left or right`: the left one where it exists."""

    left: SelectorExpression
    right: SelectorExpression
    span: Span


SelectorExpression: TypeAlias = (
    Path | PartReference | OperationsIn | SetOperation | FirstMatch
)

# ---- timelines -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllPieces:
    """The index `*`."""

    span: Span


@dataclass(frozen=True, slots=True)
class Reference:
    """`attn`, `attn[0]`, `prev.mlp[1]`, `experts[*]`."""

    name: Name
    previous: bool
    index: Number | Name | AllPieces | None
    span: Span


@dataclass(frozen=True, slots=True)
class Step:
    """A reference in a window, perhaps `after` another one."""

    reference: Reference
    after: Reference | None
    span: Span


@dataclass(frozen=True, slots=True)
class Run:
    """Steps with commas between them."""

    steps: tuple[Step, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Window:
    """One line of a timeline: runs with `|` between them."""

    runs: tuple[Run, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Order:
    """`order:`."""

    windows: tuple[Window, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Stagger:
    """`stagger NAME by N:`."""

    index: Name
    by: Number | None
    windows: tuple[Window, ...]
    span: Span


# ---- statements ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Require:
    """`require CONDITION`."""

    condition: Expression
    span: Span


@dataclass(frozen=True, slots=True)
class Stream:
    """`stream NAME (options)`."""

    name: Name
    options: tuple[Argument, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Split:
    """`split DIMENSION into PIECES as INDEX (options)`."""

    dimension: Name
    into: Expression
    index: Name
    options: tuple[Argument, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Capture:
    """`capture DIMENSION at [SIZES] (options)`."""

    dimension: Name
    sizes: ListOf
    options: tuple[Argument, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Use:
    """`use NAME`."""

    name: Name
    span: Span


@dataclass(frozen=True, slots=True)
class Part:
    """`part NAME (options) on STREAM via KERNEL = SELECTOR`.

    `on` is a name, a list with one entry per piece, or None for `main`.
    """

    name: Name
    options: tuple[Argument, ...]
    on: Name | ListOf | None
    via: Call | None
    selector: SelectorExpression
    span: Span


Placement: TypeAlias = Part | Use | Order | Stagger


@dataclass(frozen=True, slots=True)
class Each:
    """`each NAME in PATH having PATH:`."""

    name: Name
    path: Path
    having: Path | None
    body: tuple[Placement, ...]
    span: Span


Statement: TypeAlias = Require | Stream | Split | Capture | Each | Placement

# ---- declarations --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Model:
    """`model "TARGET" (options)`."""

    target: String
    options: tuple[Argument, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Import:
    """`from "FILE" import NAMES`."""

    file: String
    names: tuple[Name, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Kernel:
    """`kernel NAME = "TARGET" (options)`."""

    name: Name
    target: String
    options: tuple[Argument, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class PartGroup:
    """`parts NAME:`."""

    name: Name
    parts: tuple[Part, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Schedule:
    """`schedule NAME(parameters):`. `doc` is the comment block right above it."""

    name: Name
    parameters: tuple[Argument, ...]
    statements: tuple[Statement, ...]
    doc: str
    span: Span


@dataclass(frozen=True, slots=True)
class Equal:
    """`equal NAMES`: what all ranks see alike."""

    names: tuple[Name, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class When:
    """`when CONDITION: SCHEDULE`."""

    condition: Expression
    choice: Call
    span: Span


@dataclass(frozen=True, slots=True)
class Otherwise:
    """`else: SCHEDULE`."""

    choice: Call
    span: Span


@dataclass(frozen=True, slots=True)
class Select:
    """`select NAME(parameters):`. `doc` is the comment block right above it."""

    name: Name
    parameters: tuple[Argument, ...]
    conditions: tuple[Require | Equal, ...]
    cases: tuple[When, ...]
    otherwise: Otherwise
    doc: str
    span: Span


Declaration: TypeAlias = Import | Kernel | PartGroup | Schedule | Select


@dataclass(frozen=True, slots=True)
class SyntaxTree:
    """One file of edition 1."""

    source: Source
    model: Model | None
    declarations: tuple[Declaration, ...]
