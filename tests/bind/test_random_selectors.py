"""Random selectors over random graphs, against an evaluator that knows sets only.

The judge works on what was drawn, before anything was parsed or indexed: it asks of
each operation by itself whether a selector names it, and shares no code with bind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from dynaflow_dsl.bind.dependence import analyse
from dynaflow_dsl.bind.selectors import Scope, evaluate, index_modules
from tests.bind.graphs import graph, schedule

LAYERS = 3
PLACES = ["layers.%i", "layers.%i.a", "layers.%i.a.x", "layers.%i.b", "layers.%i.b.x"]
OUTSIDE = ["", "a", "head", "layers"]
# Operators by kind; what is no kind here is none of those that are drawn.
OPERATORS = {
    "aten.mm.default": {"matmul"},
    "aten.linear.default": {"matmul"},
    "aten.relu.default": {"activation"},
    "aten.add.Tensor": set[str](),
    "_c10d_functional.all_reduce.default": {"all_reduce", "collective"},
    "_c10d_functional.broadcast.default": {"broadcast", "collective"},
}
KINDS = ["all_reduce", "broadcast", "collective", "matmul", "activation", "norm"]
MARKS = ["gate", "up"]
FUNCTIONS = ["m.f", "m.g", "n.f"]


@dataclass(frozen=True)
class Drawn:
    """An operation as the judge knows it; `wait` is the kinds of what it waits for."""

    name: str
    module: str
    operator: str
    kinds: frozenset[str]
    marks: frozenset[str]
    functions: frozenset[str]
    view: bool


@dataclass(frozen=True)
class Choice:
    """A selector: its text, and whether it names an operation in an iteration.

    `own` says the same of the modules that its paths match alone.
    """

    text: str
    names: Callable[[Drawn, int], bool]
    own: Callable[[Drawn, int], bool]


@st.composite
def programs(draw: st.DrawFn) -> tuple[Drawn, ...]:
    places = [place.replace("%i", str(i)) for i in range(LAYERS) for place in PLACES]
    operations: list[Drawn] = []
    for number in range(draw(st.integers(4, 14))):
        module = draw(st.sampled_from([*places, *OUTSIDE]))
        operator = draw(st.sampled_from(list(OPERATORS)))
        marks = draw(st.sets(st.sampled_from(MARKS)))
        functions = draw(st.sets(st.sampled_from(FUNCTIONS)))
        view = operator == "aten.add.Tensor" and draw(st.booleans())
        kinds = frozenset(OPERATORS[operator])
        labels = (frozenset(marks), frozenset(functions))
        operations.append(Drawn(f"o{number}", module, operator, kinds, *labels, view))
        if "collective" in kinds and draw(st.booleans()):
            # The wait may stand in another module.
            where = draw(st.sampled_from([module, *places]))
            name = "_c10d_functional.wait_tensor.default"
            operations.append(
                Drawn(f"w{number}", where, name, kinds, *labels, view=False)
            )
    return tuple(operations)


def text_of(operations: tuple[Drawn, ...]) -> str:
    lines = ["input x"]
    for operation in operations:
        start = operation.name.replace("w", "o")
        operand = start if operation.name.startswith("w") else "x"
        call = f"{'~' * operation.view}{operation.operator}({operand})"
        line = f"{operation.name} = {call}"
        line += f" @ {operation.module}" if operation.module else ""
        if operation.marks:
            line += f" marked {','.join(sorted(operation.marks))}"
        if operation.functions:
            line += f" by {','.join(sorted(operation.functions))}"
        lines.append(line)
    return "\n".join([*lines, f"return {operations[-1].name}"])


def _path(anchor: str, tail: str) -> Choice:
    def below(operation: Drawn, index: int, *, own: bool) -> bool:
        shift = {"": 0, "prev": -1, "next": 1, "root": None}[anchor]
        segments = [part for part in tail.split(".") if part]
        if shift is not None:
            if not 0 <= index + shift < LAYERS:
                return False
            segments = ["layers", str(index + shift), *segments]
        parts = operation.module.split(".") if operation.module else []
        if len(parts) < len(segments) or (own and len(parts) > len(segments)):
            return False
        return all(s in ("*", p) for s, p in zip(segments, parts, strict=False))

    return Choice(
        f"{anchor}.{tail}",
        lambda operation, index: below(operation, index, own=False),
        lambda operation, index: below(operation, index, own=True),
    )


PATHS = st.builds(
    _path,
    # Often what holds much.
    st.sampled_from(["", "", "", "root", "root", "prev", "next"]),
    st.sampled_from(["", "", "a", "b", "a.x", "b.x", "*", "a.*", "gone", "layers.1"]),
)


HERE = st.builds(_path, st.just(""), st.sampled_from(["", "a", "a.x", "*", "a.*"]))


def _some(word: str, test: Callable[[Drawn], bool], operand: Choice) -> Choice:
    return Choice(
        f"({word} in {operand.text})",
        lambda o, i: test(o) and operand.names(o, i),
        lambda o, i: test(o) and operand.own(o, i),
    )


def _kind(kind: str, operand: Choice) -> Choice:
    return _some(kind, lambda o: kind in o.kinds, operand)


def _operator(name: str, operand: Choice) -> Choice:
    return _some(f'"{name}"', lambda o: o.operator.startswith(f"{name}."), operand)


def _star(part: str, operand: Choice) -> Choice:
    return _some(f'"*{part}*"', lambda o: part in o.operator, operand)


def _mark(mark: str, operand: Choice) -> Choice:
    return _some(f'"mark:{mark}"', lambda o: mark in o.marks, operand)


def _function(name: str, operand: Choice) -> Choice:
    return _some(f'"function:{name}"', lambda o: name in o.functions, operand)


def _last(name: str, operand: Choice) -> Choice:
    def named(operation: Drawn) -> bool:
        return any(each.endswith(f".{name}") for each in operation.functions)

    return _some(f'"function:*.{name}"', named, operand)


def _own(operand: Choice) -> Choice:
    return Choice(f"(own in {operand.text})", operand.own, operand.own)


def _add(left: Choice, right: Choice) -> Choice:
    return Choice(
        f"({left.text} + {right.text})",
        lambda o, i: left.names(o, i) or right.names(o, i),
        lambda o, i: left.own(o, i) or right.own(o, i),
    )


def _take(left: Choice, right: Choice) -> Choice:
    return Choice(
        f"({left.text} - {right.text})",
        lambda o, i: left.names(o, i) and not right.names(o, i),
        lambda o, i: left.own(o, i) and not right.names(o, i),
    )


def choices(operations: tuple[Drawn, ...]) -> st.SearchStrategy[Choice]:
    """Selectors; `or` asks whether any operation is named in an iteration at all."""

    def either(left: Choice, right: Choice) -> Choice:
        def there(index: int) -> bool:
            return any(left.names(o, index) for o in operations if not o.view)

        return Choice(
            f"({left.text} or {right.text})",
            lambda o, i: (left if there(i) else right).names(o, i),
            lambda o, i: (left if there(i) else right).own(o, i),
        )

    def wider(inner: st.SearchStrategy[Choice]) -> st.SearchStrategy[Choice]:
        return st.one_of(
            st.builds(_kind, st.sampled_from(KINDS), inner),
            st.builds(_kind, st.sampled_from(KINDS), PATHS),
            st.builds(_operator, st.sampled_from(["aten.mm", "aten.add"]), inner),
            st.builds(_star, st.sampled_from(["all_reduce", "aten", "wait"]), inner),
            st.builds(_mark, st.sampled_from(MARKS), inner),
            st.builds(_function, st.sampled_from(FUNCTIONS), inner),
            st.builds(_last, st.sampled_from(["f", "g"]), inner),
            st.builds(_own, inner),
            st.builds(_add, inner, inner),
            st.builds(_take, inner, inner),
            st.builds(_own, st.builds(_take, HERE, HERE)),
            st.builds(either, inner, inner),
        )

    return st.recursive(PATHS, wider, max_leaves=4)


PROGRAMS_AND_CHOICES = programs().flatmap(
    lambda operations: st.tuples(st.just(operations), choices(operations))
)


@settings(max_examples=400, deadline=None)
@given(PROGRAMS_AND_CHOICES)
def test_a_selector_names_what_sets_say(
    drawn: tuple[tuple[Drawn, ...], Choice],
) -> None:
    operations, choice = drawn
    made = graph(text_of(operations), modules=["layers.0", "layers.1", "layers.2"])
    (part,) = schedule(f"p = {choice.text}").parts
    modules = index_modules(made.modules, analyse(made))
    layers = tuple(f"layers.{i}" for i in range(LAYERS))
    for index in range(LAYERS):
        numbers = evaluate(part.selector, Scope(modules, layers, index, {}))
        named = {made.operations[number].name for number in numbers}
        expected = {o.name for o in operations if not o.view and choice.names(o, index)}
        assert named == expected, choice.text
