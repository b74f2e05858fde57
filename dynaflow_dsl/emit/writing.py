"""Functions that write results of a part into tensors that they are given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dynaflow_dsl.bind.model import Body
from dynaflow_dsl.emit.functions import FunctionText, returned
from dynaflow_dsl.emit.layout import (
    Bracket,
    Expression,
    assigned,
    call,
    docstring,
    lay_out,
    listed,
    string,
)
from dynaflow_dsl.graph.model import TensorType
from dynaflow_dsl.plan.model import Call, Program
from dynaflow_dsl.plan.names import RESERVED, free_name

# A part, and the numbers of the results that go into tensors.
Writing: TypeAlias = tuple[str, tuple[int, ...]]


def writing_of(step: Call) -> Writing:
    """What a call that writes results into tensors needs a function for."""
    return step.part, tuple(target.output for target in step.into)


def writings(program: Program) -> Mapping[str, Sequence[tuple[int, ...]]]:
    """The results that steps of each part write, one entry for each set of them."""
    found: dict[str, dict[tuple[int, ...], None]] = defaultdict(dict)
    for block in program.blocks:
        for statement in block.statements:
            if isinstance(statement, Call) and statement.into:
                part, results = writing_of(statement)
                found[part][results] = None
    return {part: tuple(kinds) for part, kinds in found.items()}


def write_into(
    name: str,
    text: str,
    part: str,
    body: Body,
    inputs: Sequence[str],
    results: Sequence[int],
    types: Mapping[str, TensorType],
) -> FunctionText:
    """A function that runs `text`, the part's, and copies some of its `results`.

    `inputs` are the parameters of `text` after `w`; a tensor for each of the results
    comes behind them.
    """
    taken = {*RESERVED, text}
    parameters = [free_name(one, taken) for one in inputs]
    many = len(results) > 1
    outs = {k: free_name(f"out_{k}" if many else "out", taken) for k in results}
    made = [
        free_name("result" if len(body.outputs) == 1 else f"result_{k}", taken)
        for k in range(len(body.outputs))
    ]
    lines = lay_out("def ", call(name, ["w", *parameters, *outs.values()]), ":")
    rows = [(outs[k], f"{types[body.outputs[k]]}, written") for k in results]
    left = [k for k in range(len(body.outputs)) if k not in outs]
    rows += [
        ("returns" if len(left) == 1 else f"returns {made[k]}", str(types[value]))
        for k, value in enumerate(body.outputs)
        if k in left
    ]
    width = max(len(row) for row, _ in rows)
    which = "its result" if len(body.outputs) == 1 else "one of its results"
    if many:
        which = "some of its results" if left else "its results"
    about = [f"{part}, with {which} written into {' and '.join(outs.values())}.", ""]
    table = [f"{row:<{width}}  {type_}" for row, type_ in rows]
    lines += docstring([*about, *table], 4)
    lines += assigned(made, call(text, ["w", *parameters]), 4)
    for k in results:
        lines += lay_out("", call("aten.copy_.default", [outs[k], made[k]]), "", 4)
    return FunctionText(name, (*lines, *returned([made[k] for k in left])), ())


def into_entry(
    functions: Mapping[str, tuple[Sequence[str], Sequence[int]]],
) -> Expression:
    """The item of a part's entry: by attribute, functions and what they write."""
    rows = []
    for attribute, (names, results) in functions.items():
        body: Expression = names[0] if len(names) == 1 else listed(names)
        numbers = Bracket("results=", "(", tuple(map(str, results)))
        made = call("Into", [body, numbers])
        rows.append(Bracket(f"{string(attribute)}: {made.head}", "(", made.items))
    return Bracket("into=", "{", tuple(rows))
