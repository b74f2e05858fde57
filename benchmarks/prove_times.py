"""How long the proof of a plan takes, by the number of its steps.

    python -m benchmarks.prove_times > benchmarks/results/prove_times.json

Plans are those of a model with four parts for each layer on four streams, in halves.
`looped` is the plan as it is, with a loop over layers; in `straight` its statements
are written out, as for a model whose layers all differ.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from dynaflow_dsl.bind import bind
from dynaflow_dsl.graph.model import (
    Graph,
    Input,
    Operation,
    Reference,
    Size,
    TensorType,
    Value,
)
from dynaflow_dsl.measurement import machine
from dynaflow_dsl.pipeline import understand
from dynaflow_dsl.plan import plan
from dynaflow_dsl.plan.model import (
    Block,
    Call,
    Choice,
    InputOperand,
    Layer,
    Loop,
    Operand,
    Plan,
    Program,
    Segment,
    Statement,
    Straight,
)
from dynaflow_dsl.prove import prove
from dynaflow_dsl.source import Source

STEPS = (2000, 5000, 10000, 20000)
ROUNDS = 5
# Steps of one layer: four parts in two halves.
OF_A_LAYER = 8

SCHEDULE = """dfs 1

schedule measured:
    stream left
    stream right
    stream wire

    split batch into 2 as half

    each layer in .layers.*:
        part a on left = .a
        part b on right = .b
        part c on wire = .c
        part d = .d

        stagger half by 1:
            a
            b
            c
            d
"""
ROWS = TensorType((Size(1, ("batch",)), Size(8)), (Size(8), Size(1)), "float32")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prove plans of several lengths; one JSON document to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    times: dict[str, dict[str, float]] = {}
    for steps in options.steps:
        looped = _plan(steps // OF_A_LAYER)
        straight = replace(looped, step=_straight(looped.step))
        times[str(steps)] = {
            "looped": _seconds(looped, options.rounds),
            "straight": _seconds(straight, options.rounds),
        }
    document = {"machine": machine.describe(), "streams": 4, "seconds": times}
    print(json.dumps(document, indent=2))


def _seconds(plan: Plan, rounds: int) -> float:
    """The median time of one proof, in seconds of this process."""
    samples = []
    for _ in range(rounds):
        start = time.process_time()
        prove(plan).unwrap()
        samples.append(time.process_time() - start)
    return round(median(samples), 4)


def _plan(layers: int) -> Plan:
    schedule = understand(Source("measured.dfs", SCHEDULE)).unwrap().schedules[0]
    return plan(bind(schedule, _graph(layers)).unwrap()).unwrap()


def _graph(layers: int) -> Graph:
    """`b` reads what `a` makes, `c` reads both, `d` also what the layer was given."""
    operations: list[Operation] = []

    def run(name: str, module: str, *reads: str) -> str:
        operator = "aten.relu.default" if len(reads) == 1 else "aten.mul.Tensor"
        result = Value(name, ROWS, len(operations) + 1)
        operations.append(
            Operation(
                name=name,
                operator=operator,
                arguments=tuple(map(Reference, reads)),
                keywords=(),
                results=(result,),
                multiple=False,
                writes=(),
                view=False,
                tags=("pointwise",),
                module=module,
                source=None,
            )
        )
        return name

    hidden = run("h0", "embed", "x")
    modules = ["", "embed", "layers", "head"]
    for i in range(layers):
        at = f"layers.{i}"
        modules += [at, *(f"{at}.{part}" for part in "abcd")]
        a = run(f"a{i}", f"{at}.a", hidden)
        b = run(f"b{i}", f"{at}.b", a)
        c = run(f"c{i}", f"{at}.c", a, b)
        hidden = run(f"d{i}", f"{at}.d", c, hidden)
    last = run("y", "head", hidden)
    return Graph(
        "run",
        (Input("x", "step", Value("x", ROWS, 0), 0),),
        tuple(operations),
        (last,),
        (("batch", 1, None),),
        (("x", None),),
        tuple(modules),
    )


def _straight(program: Program) -> Program:
    """Loops written out."""
    segments: list[Segment] = []
    for segment in program.segments:
        if not isinstance(segment, Loop):
            segments.append(segment)
            continue
        for i in range(segment.start, segment.stop):
            blocks = tuple(
                Block(b.title, tuple(_at(s, i) for s in b.statements), b.span)
                for b in segment.blocks
            )
            segments.append(Straight(blocks, segment.section, i))
    return Program(tuple(segments))


def _at(statement: Statement, i: int) -> Statement:
    if not isinstance(statement, Call):
        return statement
    operands = tuple(_operand(operand, i) for operand in statement.operands)
    return replace(statement, layer=Layer(statement.layer.at(i)), operands=operands)


def _operand(operand: Operand, i: int) -> Operand:
    match operand:
        case InputOperand(layer=layer) | Choice(layer=layer) if layer is not None:
            return replace(operand, layer=Layer(layer.at(i)))
    return operand


if __name__ == "__main__":
    main()
