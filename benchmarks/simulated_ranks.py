r"""What a strategy would gain on more ranks than there are: simulated, not measured.

    python -m benchmarks.simulated_ranks llama/two_batch.dfs --whole attn=310 mlp=640 \
        --megabytes attn_reduce=134 mlp_reduce=134 --bandwidth 150 --latency 8

The plan is the one that `dfsc compile` writes: its steps, streams and waits, in order.
How long a step takes is given, or read off measurements with one rank (`--profile`)
and two (`--bench`, `--transports`). Steps of layers count; what surrounds them takes no
time unless it is given. Model arguments such as `-M layers=32` are those of `dfsc
compile`; widths do not change a plan, so that the model may be tiny.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.clusters import Cluster, Link, fitted
from benchmarks.plan_simulation import Cost, Ran, simulate
from dynaflow_dsl import pipeline
from dynaflow_dsl.bind.uses import is_collective
from dynaflow_dsl.operations.aliases import COLLECTIVES
from dynaflow_dsl.operations.names import matches_operator
from dynaflow_dsl.plan.model import Call, Plan, Program
from dynaflow_dsl.resolve.model import Scalar
from dynaflow_dsl.resources import folder
from dynaflow_dsl.trace import load_target, trace

SIMULATED = "SIMULATED, not measured"
MICRO, MEGA, GIGA = 1e-6, 1e6, 1e9

# Tokens on the way to their experts, and back.
_EXCHANGES = ("dynaflow.dispatch", "dynaflow.combine")


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is known of a step on `reference` ranks.

    `whole` and `piece` are seconds of a part that computes, of all rows and of one
    microbatch. `moved` are bytes of a rank in a part's collective, of all rows. With
    `shared`, ranks share the computing of layers, which takes less with more of them;
    else each has rows of its own. `slower` is the factor of a device that computes
    while something is moved.
    """

    whole: Mapping[str, float]
    piece: Mapping[str, float]
    moved: Mapping[str, float]
    cluster: Cluster
    reference: int = 2
    shared: bool = True
    slower: float = 1.0


@dataclass(frozen=True, slots=True)
class Point:
    """One number of ranks. Times are seconds of a step; `compute` and `transport` are
    those of the unsplit step, one without the other."""

    ranks: int
    sequential: float
    scheduled: float
    compute: float
    transport: float

    @property
    def speedup(self) -> float:
        """Of the scheduled step over the sequential one."""
        return self.sequential / self.scheduled

    @property
    def bound(self) -> float:
        """What no order of the same work can exceed."""
        return self.sequential / max(self.compute, self.transport)


def collectives(plan: Plan) -> dict[str, str]:
    """The kind of the collective of each part that has one. Raises ValueError for a
    part with several kinds."""
    found: dict[str, str] = {}
    for part in plan.binding.everything:
        kinds = {
            _kind(operation.operator)
            for body in part.bodies
            for operation in body.operations
            if is_collective(operation)
        }
        if len(kinds) > 1:
            raise ValueError(f"the part {part.name} has collectives of several kinds")
        if kinds:
            found[part.name] = kinds.pop()
    return found


def _kind(operator: str) -> str:
    if operator.startswith(_EXCHANGES):
        return "all_to_all"
    for kind, patterns in COLLECTIVES.items():
        if any(matches_operator(pattern, operator) for pattern in patterns):
            return kind
    return operator


def layer_parts(plan: Plan) -> list[str]:
    """The parts that have to have a time, in the order of the schedule."""
    return [part.name for part in plan.binding.parts]


def simulated(plan: Plan, program: Program, ranks: int, given: Parameters) -> list[Ran]:
    """The steps of one of the plan's programs. Raises ValueError, for a part whose time
    or bytes are not given too."""
    kinds = collectives(plan)
    inner = set(layer_parts(plan))
    split = plan.binding.schedule.split
    pieces = len(split.pieces) if split is not None else 1

    def cost(call: Call) -> Cost:
        # A step of a piece in a plan without a split is the whole.
        part = call.piece is not None and pieces > 1
        times = given.piece if part else given.whole
        compute = times.get(call.part, 0.0)
        if call.part in inner and call.part not in kinds and call.part not in times:
            raise ValueError(f"no time is given for the part {call.part}")
        if given.shared:
            compute *= given.reference / ranks
        transport = 0.0
        if call.part in kinds and (call.part in inner or call.part in given.moved):
            if call.part not in given.moved:
                raise ValueError(f"no bytes are given for the part {call.part}")
            moved = given.moved[call.part] / (pieces if part else 1)
            transport = given.cluster.seconds(kinds[call.part], moved, ranks)
        return Cost(compute, transport)

    return list(simulate(program, plan.streams, cost, given.slower))


def point(plan: Plan, ranks: int, given: Parameters) -> Point:
    """Both programs of a plan on so many ranks."""

    def length(program: Program, parameters: Parameters) -> float:
        return max(one.end for one in simulated(plan, program, ranks, parameters))

    free = Link(float("inf"), 0.0)
    alone = replace(given, cluster=replace(given.cluster, inside=free, between=free))
    sequential = length(plan.sequential, given)
    compute = length(plan.sequential, alone)
    return Point(
        ranks, sequential, length(plan.step, given), compute, sequential - compute
    )


# ---- what two ranks have measured ----------------------------------------------------


def profiled(document: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds by part, of whole steps and of pieces, in a trace of `dfsc profile`.

    Medians over layers, pieces and runs.
    """
    whole: dict[str, list[float]] = {}
    piece: dict[str, list[float]] = {}
    for event in document["traceEvents"]:
        if event.get("cat") == "step" and (part := event["args"].get("part")):
            kind = whole if event["args"].get("microbatch") is None else piece
            kind.setdefault(part, []).append(event["dur"] * MICRO)
    return (
        {part: median(times) for part, times in whole.items()},
        {part: median(times) for part, times in piece.items()},
    )


def measured_link(document: Mapping[str, Any], way: str) -> Link:
    """The link that a document of `benchmarks.transports` is of; ranks are two."""
    return fitted(
        [
            (
                size["megabytes"] * MEGA,
                median(size["milliseconds"][way]) / size["calls"] / 1e3,
            )
            for size in document["sizes"]
        ]
    )


def benched(
    document: Mapping[str, Any], baseline: str | None = None
) -> tuple[float, float]:
    """Seconds of the sequential and the scheduled step in what `dfsc bench` wrote.

    `baseline` is the contender that is sequential; else that of this name, or the first
    where there is none. Raises ValueError for contenders that there are not.
    """
    contenders = document["contenders"]
    others = [name for name in contenders if name != "scheduled"]
    if baseline is None and others:
        baseline = "sequential" if "sequential" in others else others[0]
    if baseline not in others or "scheduled" not in contenders:
        raise ValueError(f"contenders of --bench are {', '.join(contenders)}")
    sequential, scheduled = (
        median(contenders[name]["wall"]) * MICRO for name in (baseline, "scheduled")
    )
    return sequential, scheduled


def scaled_to(plan: Plan, seconds: float, given: Parameters) -> Parameters:
    """The parameters with computing such that the sequential step takes so long.

    Raises ValueError where transports alone would take longer.
    """
    here = point(plan, given.reference, given)
    factor = (seconds - here.transport) / here.compute
    if factor <= 0:
        raise ValueError(
            f"collectives alone take {here.transport / MICRO:.0f} us of the "
            f"{seconds / MICRO:.0f} us that were measured"
        )
    return replace(
        given,
        whole={part: factor * time for part, time in given.whole.items()},
        piece={part: factor * time for part, time in given.piece.items()},
    )


# ---- command line --------------------------------------------------------------------


def read_plan(path: str, arguments: Mapping[str, Scalar], entry: str) -> Plan:
    """The plan of a shipped or own file that has one schedule, for two ranks."""
    shipped = folder("schedules") / path
    file = pipeline.read_schedule(shipped if shipped.is_file() else path).unwrap()
    assert file.model is not None
    given = dict(file.model.arguments) | {"ways": 2, "entries": entry} | dict(arguments)
    spec = load_target(file.model.target, given, file.model.span).unwrap()
    model = trace(spec, file.model.target, given).unwrap()
    checked = pipeline.check_schedules(file, model, {"arch": "sm90"}).unwrap()
    return next(
        each.plan for each in checked.plans if each.plan.binding.graph.entry == entry
    )


def parameters_of(options: argparse.Namespace, plan: Plan) -> Parameters:
    """The parameters that a command line gives, and what was measured."""
    whole = {name: float(time) * MICRO for name, time in options.whole}
    piece = {name: float(time) * MICRO for name, time in options.piece}
    for path in options.profile:
        for mine, found in zip((whole, piece), profiled(_read(path)), strict=True):
            mine |= {part: found[part] for part in found if part not in mine}
    pieces = 1
    if (split := plan.binding.schedule.split) is not None:
        pieces = len(split.pieces)
    for part, time in whole.items():
        piece.setdefault(part, time / pieces * (1 + options.overhead))
    inside = Link(options.bandwidth * GIGA, options.latency * MICRO)
    if options.transports is not None:
        inside = measured_link(_read(options.transports), options.way)
    between = Link(options.node_bandwidth * GIGA, options.node_latency * MICRO)
    kinds = collectives(plan)
    given = Parameters(
        # What a profile has of a collective is its transport.
        whole={part: time for part, time in whole.items() if part not in kinds},
        piece={part: time for part, time in piece.items() if part not in kinds},
        moved={name: float(size) * MEGA for name, size in options.megabytes},
        cluster=Cluster(options.ranks_per_node, inside, between),
        reference=options.reference,
        shared=not any(kind == "all_to_all" for kind in kinds.values()),
        slower=options.slower,
    )
    if options.bench is not None:
        seconds, _ = benched(_read(options.bench), options.baseline)
        given = scaled_to(plan, seconds, given)
    return given


def main(words: Sequence[str] | None = None) -> None:
    """A table to stdout, and the JSON if asked."""
    options = _parser().parse_args(words)
    try:
        plan = read_plan(options.schedule, dict(options.model), options.entry)
        given = parameters_of(options, plan)
        points = [point(plan, ranks, given) for ranks in options.ranks]
    except ValueError as error:
        raise SystemExit(f"simulated_ranks: {error}") from error
    result = {
        "simulated": True,
        "schedule": options.schedule,
        "entry": options.entry,
        "arguments": dict(options.model),
        "parameters": asdict(given),
        "points": [
            {**asdict(one), "speedup": one.speedup, "bound": one.bound}
            for one in points
        ],
    }
    if options.bench is not None:
        sequential, scheduled = benched(_read(options.bench), options.baseline)
        result["measured"] = {
            "ranks": options.reference,
            "speedup": sequential / scheduled,
        }
    print("\n".join(table(result)))
    if options.output is not None:
        text = json.dumps(result, indent=2)
        options.output.write_text(text + "\n", encoding="utf-8")


def table(result: Mapping[str, Any]) -> list[str]:
    """The document of a simulation as lines of a Markdown table."""
    lines = [
        f"{SIMULATED}: {result['schedule']}, entry {result['entry']}",
        "",
        "| ranks | sequential, ms | scheduled, ms | speedup | bound |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {one['ranks']} | {one['sequential'] * 1e3:.2f} | "
        f"{one['scheduled'] * 1e3:.2f} | {one['speedup']:.3f} | {one['bound']:.3f} |"
        for one in result["points"]
    ]
    if (measured := result.get("measured")) is not None:
        lines += [
            "",
            f"Measured on {measured['ranks']} ranks: {measured['speedup']:.3f}",
        ]
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulated_ranks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("schedule", help="below schedules/, or a file of your own")
    add("--entry", default="decode")
    add("-M", dest="model", action="append", default=[], type=_scalar, metavar="k=v")
    add("--ranks", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    add("--reference", type=int, default=2, help="ranks that the times are of")
    add("--whole", nargs="+", default=[], type=_pair, help="PART=us, of all rows")
    add("--piece", nargs="+", default=[], type=_pair, help="PART=us, of a microbatch")
    add(
        "--overhead",
        type=float,
        default=0.1,
        help="what pieces take more than the whole, where --piece does not say",
    )
    add("--megabytes", nargs="+", default=[], type=_pair, help="PART=MB, of all rows")
    add("--bandwidth", type=float, default=150.0, help="GB/s of a rank in a machine")
    add("--latency", type=float, default=8.0, help="us of a message in a machine")
    add("--ranks-per-node", type=int, default=8)
    add("--node-bandwidth", type=float, default=45.0, help="GB/s of a rank, outside")
    add("--node-latency", type=float, default=15.0, help="us of a message, outside")
    add(
        "--slower",
        type=float,
        default=1.0,
        help="factor of computing while something is moved",
    )
    add("--profile", nargs="+", type=Path, default=[], metavar="TRACE.json")
    add("--bench", type=Path, metavar="FILE.json", help="of dfsc bench, on two ranks")
    add("--baseline", metavar="NAME", help="of --bench: the sequential contender")
    add("--transports", type=Path, metavar="FILE.json", help="of two ranks")
    add("--way", default="nccl", help="of --transports: nccl or copied")
    add("-o", dest="output", type=Path, metavar="FILE.json")
    return parser


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{word!r} is no NAME=NUMBER")
    float(value)
    return name, value


def _scalar(word: str) -> tuple[str, Scalar]:
    from dynaflow_dsl.cli.options import read_scalar

    name, equals, value = word.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{word!r} is no NAME=VALUE")
    return name, read_scalar(value)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
