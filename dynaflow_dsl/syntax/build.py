"""Parse tree to syntax tree: one small function for each form of the grammar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias, cast

from lark import Token, Tree

from dynaflow_dsl.diagnostics import Diagnostic, Label
from dynaflow_dsl.source import Source, Span
from dynaflow_dsl.syntax import model as syntax

Node: TypeAlias = Tree[Token]
Child: TypeAlias = Node | Token

MAX_DIGITS = 18

_ARITHMETIC: Mapping[str, Literal["+", "-", "*", "//", "%"]] = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "floor_divide": "//",
    "modulo": "%",
}
_SET_OPERATORS: Mapping[str, Literal["+", "-"]] = {"union": "+", "difference": "-"}


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds the syntax tree of one source.

    `line_ends` maps the start of each logical line to its end: that is the span of the
    statement there. Literals that are out of bounds are put into `found`.
    """

    source: Source
    line_ends: Mapping[int, int]
    found: list[Diagnostic] = field(default_factory=list)

    def file(self, tree: Node) -> syntax.SyntaxTree:
        """The whole file."""
        _version, *rest = nodes(tree)
        model = None
        if rest and rest[0].data == "model":
            model = self.model(rest.pop(0))
        declarations = tuple(self.declaration(node) for node in rest)
        return syntax.SyntaxTree(self.source, model, declarations)

    # ---- declarations ----------------------------------------------------------------

    def model(self, tree: Node) -> syntax.Model:
        """`model "TARGET" (options)`."""
        target = self.string(token(tree, "STRING"))
        return syntax.Model(target, self.arguments(tree), self.statement_span(tree))

    def declaration(self, tree: Node) -> syntax.Declaration:
        """Whatever stands at the top of a file."""
        span = self.statement_span(tree)
        match tree.data:
            case "import_names":
                file = self.string(token(tree, "STRING"))
                return syntax.Import(file, self.names(tree), span)
            case "kernel":
                target = self.string(token(tree, "STRING"))
                return syntax.Kernel(
                    self.name(tree), target, self.arguments(tree), span
                )
            case "parts":
                parts = tuple(self.part(node) for node in nodes(tree))
                return syntax.PartGroup(self.name(tree), parts, span)
            case "schedule":
                return self.schedule(tree)
            case "select":
                return self.select(tree)
        raise unknown(tree)

    def schedule(self, tree: Node) -> syntax.Schedule:
        """`schedule NAME(parameters):`."""
        span = self.statement_span(tree)
        body = (node for node in nodes(tree) if node.data != "parameters")
        return syntax.Schedule(
            self.name(tree),
            self.arguments(tree, "parameters"),
            tuple(self.statement(node) for node in body),
            comment_above(self.source, span.line),
            span,
        )

    def select(self, tree: Node) -> syntax.Select:
        """`select NAME(parameters):`."""
        conditions: list[syntax.Require | syntax.Equal] = []
        cases: list[syntax.When] = []
        for node in nodes(tree):
            match node.data:
                case "require":
                    conditions.append(self.require(node))
                case "equal":
                    span = self.statement_span(node)
                    conditions.append(syntax.Equal(self.names(node), span))
                case "when":
                    cases.append(self.when(node))
        last = child(tree, "otherwise")
        otherwise = syntax.Otherwise(
            self.call(child(last, "call")), self.statement_span(last)
        )
        span = self.statement_span(tree)
        return syntax.Select(
            self.name(tree),
            self.arguments(tree, "parameters"),
            tuple(conditions),
            tuple(cases),
            otherwise,
            comment_above(self.source, span.line),
            span,
        )

    def when(self, tree: Node) -> syntax.When:
        """`when CONDITION: SCHEDULE`."""
        condition, choice = nodes(tree)
        return syntax.When(
            self.expression(condition), self.call(choice), self.statement_span(tree)
        )

    # ---- statements ------------------------------------------------------------------

    def statement(self, tree: Node) -> syntax.Statement:
        """A statement of a schedule."""
        span = self.statement_span(tree)
        match tree.data:
            case "require":
                return self.require(tree)
            case "stream":
                return syntax.Stream(self.name(tree), self.arguments(tree), span)
            case "split":
                dimension, index = self.names(tree)
                into = self.expression(nodes(tree)[0])
                return syntax.Split(dimension, into, index, self.arguments(tree), span)
            case "capture":
                sizes = self.list_of(child(tree, "list"))
                return syntax.Capture(
                    self.name(tree), sizes, self.arguments(tree), span
                )
            case "each":
                return self.each(tree)
        return self.placement(tree)

    def require(self, tree: Node) -> syntax.Require:
        """`require CONDITION`."""
        condition = self.expression(nodes(tree)[0])
        return syntax.Require(condition, self.statement_span(tree))

    def each(self, tree: Node) -> syntax.Each:
        """`each NAME in PATH having PATH:`."""
        having = None
        body = nodes(tree)
        if body[0].data == "having":
            having = self.path(token(body.pop(0), "PATH"))
        return syntax.Each(
            self.name(tree),
            self.path(token(tree, "PATH")),
            having,
            tuple(self.placement(node) for node in body),
            self.statement_span(tree),
        )

    def placement(self, tree: Node) -> syntax.Placement:
        """A statement that may stand in a schedule and in `each`."""
        span = self.statement_span(tree)
        match tree.data:
            case "part":
                return self.part(tree)
            case "use":
                return syntax.Use(self.name(tree), span)
            case "order":
                return syntax.Order(self.windows(tree), span)
            case "stagger":
                by = optional(tree, "by")
                number = self.number(token(by, "INT")) if by else None
                return syntax.Stagger(self.name(tree), number, self.windows(tree), span)
        raise unknown(tree)

    def part(self, tree: Node) -> syntax.Part:
        """`part NAME (options) on STREAM via KERNEL = SELECTOR`."""
        on = optional(tree, "on")
        via = optional(tree, "via")
        streams: syntax.Name | syntax.ListOf | None = None
        if on is not None:
            lists = nodes(on)
            streams = self.list_of(lists[0]) if lists else self.name(on)
        return syntax.Part(
            self.name(tree),
            self.arguments(tree),
            streams,
            self.call(child(via, "call")) if via else None,
            self.selector(nodes(tree)[-1]),
            self.statement_span(tree),
        )

    # ---- selectors -------------------------------------------------------------------

    def selector(self, tree: Node) -> syntax.SelectorExpression:
        """A set of operations."""
        span = self.span(tree)
        match tree.data:
            case "path":
                return self.path(token(tree, "PATH"))
            case "part_reference":
                return syntax.PartReference(str(token(tree, "NAME")), span)
            case "operations_in":
                operation, scope = nodes(tree)
                word = cast(Token, operation.children[0])
                return syntax.OperationsIn(
                    self.name_of(word) if word.type == "NAME" else self.string(word),
                    self.selector(scope),
                    span,
                )
        left, right = (self.selector(node) for node in nodes(tree))
        if tree.data == "first_match":
            return syntax.FirstMatch(left, right, span)
        return syntax.SetOperation(_SET_OPERATORS[tree.data], left, right, span)

    def path(self, word: Token) -> syntax.Path:
        """A module path, taken apart."""
        anchor, _, pattern = word.partition(".")
        return syntax.Path(
            cast(Literal["scope", "prev", "next", "root"], anchor or "scope"),
            tuple(pattern.split(".")) if pattern else (),
            self.span(word),
        )

    # ---- timelines -------------------------------------------------------------------

    def windows(self, tree: Node) -> tuple[syntax.Window, ...]:
        """The lines of a timeline."""
        return tuple(
            syntax.Window(
                tuple(self.run(run) for run in nodes(window)),
                self.statement_span(window),
            )
            for window in nodes(tree)
            if window.data == "window"
        )

    def run(self, tree: Node) -> syntax.Run:
        """Steps with commas between them."""
        return syntax.Run(tuple(map(self.step, nodes(tree))), self.span(tree))

    def step(self, tree: Node) -> syntax.Step:
        """A reference, perhaps `after` another one."""
        after = optional(tree, "after")
        return syntax.Step(
            self.reference(child(tree, "reference")),
            self.reference(child(after, "reference")) if after else None,
            self.span(tree),
        )

    def reference(self, tree: Node) -> syntax.Reference:
        """`attn`, `attn[0]`, `prev.mlp[1]`."""
        word, *indices = cast(list[Token], tree.children)
        previous = word.type == "PREV_NAME"
        skipped = len("prev.") if previous else 0
        start, end = offsets(word)
        name = syntax.Name(str(word)[skipped:], Span(self.source, start + skipped, end))
        index: syntax.Number | syntax.Name | syntax.AllPieces | None = None
        for place in indices:
            match place.type:
                case "INT":
                    index = self.number(place)
                case "NAME":
                    index = self.name_of(place)
                case _:
                    index = syntax.AllPieces(self.span(place))
        return syntax.Reference(name, previous, index, self.span(tree))

    # ---- expressions -----------------------------------------------------------------

    def expression(self, tree: Node) -> syntax.Expression:
        """A value or a condition."""
        span = self.span(tree)
        match tree.data:
            case "integer" | "real":
                return self.number(cast(Token, tree.children[0]))
            case "string":
                return self.string(token(tree, "STRING"))
            case "true" | "false":
                return syntax.Boolean(tree.data == "true", span)
            case "symbol":
                return syntax.Symbol(str(token(tree, "NAME")), span)
            case "list":
                return self.list_of(tree)
        operands = [self.expression(node) for node in nodes(tree)]
        match tree.data:
            case "not_":
                return syntax.Not(operands[0], span)
            case "and_":
                return syntax.Logical("and", operands[0], operands[1], span)
            case "or_":
                return syntax.Logical("or", operands[0], operands[1], span)
            case "compare":
                operator = cast(
                    Literal["==", "!=", "<=", ">=", "<", ">"],
                    str(token(tree, "COMPARE")),
                )
                return syntax.Comparison(operator, operands[0], operands[1], span)
            case "member":
                return syntax.Comparison("in", operands[0], operands[1], span)
        return syntax.Arithmetic(_ARITHMETIC[tree.data], operands[0], operands[1], span)

    def list_of(self, tree: Node) -> syntax.ListOf:
        """`[a, b, ...]`."""
        return syntax.ListOf(tuple(map(self.expression, nodes(tree))), self.span(tree))

    def call(self, tree: Node) -> syntax.Call:
        """`name(a = 1)`."""
        return syntax.Call(self.name(tree), self.arguments(tree), self.span(tree))

    def arguments(
        self, tree: Node, kind: Literal["options", "parameters"] = "options"
    ) -> tuple[syntax.Argument, ...]:
        """The options or parameters of a statement; none when it has no parentheses."""
        listed = optional(tree, kind)
        if listed is None:
            return ()
        return tuple(
            syntax.Argument(
                self.name(node), self.expression(nodes(node)[0]), self.span(node)
            )
            for node in nodes(listed)
        )

    # ---- words -----------------------------------------------------------------------

    def number(self, word: Token) -> syntax.Number:
        """A literal number, exactly."""
        span = self.span(word)
        if len(word) > MAX_DIGITS:
            self.found.append(
                Diagnostic(
                    "DFS007",
                    "this number is too large",
                    Label(span, f"more than {MAX_DIGITS} digits"),
                )
            )
            return syntax.Number(0, span)
        return syntax.Number(Fraction(word) if "." in word else int(word), span)

    def string(self, word: Token) -> syntax.String:
        """A text without its quotes."""
        return syntax.String(word[1:-1], self.span(word))

    def name(self, tree: Node) -> syntax.Name:
        """The first name directly below a node."""
        return self.name_of(token(tree, "NAME"))

    def names(self, tree: Node) -> tuple[syntax.Name, ...]:
        """All names directly below a node."""
        words = (word for word in tree.children if isinstance(word, Token))
        return tuple(self.name_of(word) for word in words if word.type == "NAME")

    def name_of(self, word: Token) -> syntax.Name:
        """A name and its place."""
        return syntax.Name(str(word), self.span(word))

    # ---- places ----------------------------------------------------------------------

    def span(self, node: Child) -> Span:
        """From the first to behind the last character of a node."""
        return Span(self.source, *offsets(node))

    def statement_span(self, tree: Node) -> Span:
        """The logical line that a statement begins with."""
        start, _end = offsets(tree)
        return Span(self.source, start, self.line_ends[start])


def comment_above(source: Source, line: int) -> str:
    """The comment lines right above a line, without their `#`."""
    block: list[str] = []
    while (text := source.line(line - 1)).startswith("#"):
        block.append(text[1:].removeprefix(" ").rstrip())
        line -= 1
    return "\n".join(reversed(block)).strip("\n")


def nodes(tree: Node) -> list[Node]:
    """The children of a node that are no words."""
    return [node for node in tree.children if isinstance(node, Tree)]


def optional(tree: Node, kind: str) -> Node | None:
    """The first child of a kind, if there is one."""
    return next((node for node in nodes(tree) if node.data == kind), None)


def child(tree: Node, kind: str) -> Node:
    """The first child of a kind."""
    return next(node for node in nodes(tree) if node.data == kind)


def token(tree: Node, kind: str) -> Token:
    """The first word of a kind directly below a node."""
    words = (word for word in tree.children if isinstance(word, Token))
    return next(word for word in words if word.type == kind)


def offsets(node: Child) -> tuple[int, int]:
    """Start and end of a node, in characters."""
    place = node if isinstance(node, Token) else node.meta
    return cast(int, place.start_pos), cast(int, place.end_pos)


def unknown(tree: Node) -> AssertionError:
    """For a form that the grammar has and this module has not."""
    return AssertionError(f"no syntax node for {tree.data}")
