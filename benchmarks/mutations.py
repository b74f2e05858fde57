"""What happens to the shipped schedules when their plans are broken on purpose.

    python -m benchmarks.mutations > benchmarks/results/mutations.json
    python -m benchmarks.mutations --table > docs/mutations.md

Every wait, record, free, hold, slice, allocation, join of pieces and join of streams of
every plan is left out or moved, one at a time, and everything, steps too, is given
something else than it should have: a stream, an event, a layer, a piece, a tensor. The
simulator, which shares no code with `prove`, runs the result in every order of its
streams and says whether it does harm.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dynaflow_dsl import pipeline
from dynaflow_dsl.plan.model import Plan
from dynaflow_dsl.prove import prove
from dynaflow_dsl.resolve.model import Scalar
from dynaflow_dsl.resources import folder
from dynaflow_dsl.trace import load_target, trace
from dynaflow_dsl.trace.kernels import KernelReader
from tests.prove.program_mutations import mutations
from tests.simulator.verdict import judge_plan

LAYERS = 4
RESULTS = Path(__file__).parent / "results" / "mutations.json"
FACTS: Mapping[str, Scalar] = {"arch": "sm90"}

# Above this number of ways in which the queues of a plan can stand, each kernel is held
# back once instead of trying all orders.
LIMIT = 20_000


def main(arguments: Sequence[str] | None = None) -> None:
    """One JSON document, or the page made of it, to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("schedules", nargs="*", help="below schedules/; default: all")
    parser.add_argument("--table", action="store_true", help="print the page")
    options = parser.parse_args(arguments)
    if options.table:
        print(page(json.loads(RESULTS.read_text(encoding="utf-8"))), end="")
        return
    rows = {}
    for path in options.schedules or shipped():
        for name, plan in plans(path):
            print(f"{path}: {name}", file=sys.stderr)
            rows[f"{path}: {name}"] = counted(plan)
    print(json.dumps({"layers": LAYERS, "plans": rows}, indent=2))


def shipped() -> list[str]:
    """The files below schedules/ that have a plan of their own."""
    root = folder("schedules")
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*.dfs")
        if "\nmodel " in path.read_text(encoding="utf-8")
    )


def plans(path: str) -> Iterator[tuple[str, Plan]]:
    """The plans of a file for its model of four layers, with what each is for."""
    file = pipeline.read_schedule(folder("schedules") / path).unwrap()
    assert file.model is not None
    given = dict(file.model.arguments) | {"layers": LAYERS}
    spec = load_target(file.model.target, given, file.model.span).unwrap()
    model = trace(spec, file.model.target, given).unwrap()
    kernels = KernelReader(spec.device, spec.dtype)
    checked = pipeline.check_schedules(file, model, FACTS, kernels).unwrap()
    for proved in checked.plans:
        binding = proved.plan.binding
        yield f"{binding.schedule.name}, {binding.graph.entry}", proved.plan


def counted(plan: Plan) -> dict[str, Any]:
    """How many mutations of each kind do harm, and how `prove` takes them."""
    assert not judge_plan(plan, LIMIT).faults
    table: Counter[tuple[str, str]] = Counter()
    found: Counter[str] = Counter()
    differing, starved = [], 0
    for mutation in mutations(plan):
        verdict = judge_plan(mutation.plan, LIMIT)
        refused = prove(mutation.plan, equal=("batch",)).value is None
        harmful = bool(verdict.faults)
        starved += not verdict.complete
        found.update(verdict.kinds)
        word = "harmful" if harmful else "harmless"
        table[mutation.kind, word] += 1
        table[mutation.kind, "refused"] += harmful and refused
        table[mutation.kind, "accepted"] += not (harmful or refused)
        if harmful != refused:
            differing.append(f"{mutation.kind}: {mutation.what}")
    kinds = sorted({kind for kind, _ in table})
    words = ("harmful", "refused", "harmless", "accepted")
    return {
        "mutations": {kind: {w: table[kind, w] for w in words} for kind in kinds},
        "faults": dict(sorted(found.items())),
        "starved": starved,
        "differing": differing,
    }


HARMLESS = """\
A mutation is harmless when what it changes has no effect on any order: a wait, a
record or a slice that moves past statements of other streams or of the host; a name
that lives longer than it has to (a free that is left out or comes later, up to the
place where the name is given away); a name that goes earlier, but still after its
maker's stream knows all readers; a record that comes later in its stream, so that
waits for it wait for more; a value held until the join that would have been given
away safely; a join of streams for which main has waited anyway; a buffer more than
there has to be; a step or a record on a stream that has waited for as much; a wait
for another event that knows as much; the axis of a single piece. No wait can be left
out: the waits of a plan are irredundant ([decision
5](decisions/0005-waits-are-irredundant.md)).
"""


def page(document: Mapping[str, Any]) -> str:
    """docs/mutations.md."""
    rows: Mapping[str, Mapping[str, Any]] = document["plans"]
    kinds: dict[str, Counter[str]] = {}
    for row in rows.values():
        for kind, counts in row["mutations"].items():
            kinds.setdefault(kind, Counter()).update(counts)
    every = sum((counts["harmful"] + counts["harmless"]) for counts in kinds.values())
    lines = [
        "# Mutations",
        "",
        "Would the proof notice if the compiler forgot a wait, or dropped a tensor",
        "too early? Here every statement of the shipped schedules' plans that keeps",
        "order or memory (models cut to four layers) is left out, moved by a",
        "statement or a block, or turned around, one at a time; and every statement,",
        "steps too, is given another stream, event, layer, piece or tensor than it",
        "should have. A simulator that shares no code with `prove` runs each result",
        "in every order that its streams allow, and says whether anything goes wrong.",
        "`prove` must refuse what does harm and accept what does not.",
        "",
        "`python -m benchmarks.mutations` makes",
        "[benchmarks/results/mutations.json](../benchmarks/results/mutations.json),",
        "and with `--table` this page. CI runs a part of it (`tests/prove`).",
        "",
        f"{every} mutations of {len(rows)} plans:",
        "",
        "| mutation | harmful | refused of these | harmless | accepted of these |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [_line(kind, counts) for kind, counts in sorted(kinds.items())]
    lines.append(_line("all", sum(kinds.values(), Counter())))
    differing = [f"{n}: {d}" for n, row in rows.items() for d in row["differing"]]
    said = [f"- {each}" for each in differing] or [
        "`prove` and the simulator agree on all of them."
    ]
    lines += ["", *said, "", "## Harmless ones", "", HARMLESS]
    lines += ["## By plan", "", "| plan | harmful | harmless | faults seen |"]
    lines.append("|---|---:|---:|---|")
    for name, row in rows.items():
        total = sum(map(Counter, row["mutations"].values()), Counter[str]())
        seen = ", ".join(row["faults"])
        lines.append(f"| {name} | {total['harmful']} | {total['harmless']} | {seen} |")
    return "\n".join(lines) + "\n"


def _line(kind: str, counts: Mapping[str, int]) -> str:
    words = ("harmful", "refused", "harmless", "accepted")
    return f"| {kind} | {' | '.join(str(counts[word]) for word in words)} |"


if __name__ == "__main__":
    main()
