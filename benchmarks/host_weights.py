"""Weights in host memory, fetched a layer ahead, beside fetching them in turn.

    python -m benchmarks.host_weights --layers 16 -o FILE.json

Layers of Llama 3 8B (any other shape by options) run prefill in three ways: `ahead`
fetches a layer's weights while the layer before computes, `in turn` right before they
are read, and `resident` has all of them on the device. Each is captured in one CUDA
graph where the device captures. `copies` makes all copies of one step and nothing else.
All run in one process on the same inputs, in alternating rounds.

What `ahead` can gain over `in turn` is bounded: its step takes at least as long as what
it computes, and as the copies. It comes near with many layers, since nothing computes
while the first one is fetched, and nothing is fetched while the last one computes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.side_by_side import finish, options_parser, parse, waiting_for
from dynaflow_dsl import pipeline
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.measurement.rounds import alternate, paired_ratio
from dynaflow_dsl.models import llama
from dynaflow_dsl.runtime import Executor
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import TraceSpec, trace

HEAD = """dfs 1

schedule {name}:
    {stream}capture batch at [{batch}]

    each layer in .model.layers.*:
"""
BODIES = {
    "ahead": """
        part fetch on copy = weights in .
        part body = rest

        order:
            fetch | prev.body
""",
    "in turn": """
        part fetch = weights in .
        part body = rest

        order:
            fetch
            body
""",
    "resident": """
        part body = rest

        order:
            body
""",
}


def schedule(name: str, batch: int) -> str:
    """The text of one of the ways."""
    stream = "stream copy\n    " if name == "ahead" else ""
    head = HEAD.format(name=name.replace(" ", "_"), stream=stream, batch=batch)
    return head.rstrip("\n") + BODIES[name]


def load(
    spec: TraceSpec, model: TracedModel, name: str, options: argparse.Namespace
) -> Executor:
    """The executor of one way, compiled."""
    text = schedule(name, options.batch)
    file = pipeline.understand(Source(f"{name}.dfs", text)).unwrap()
    compiled = pipeline.compile_schedules(file, model).unwrap()
    names: dict[str, Any] = {}
    # Generated modules find their map beside their file.
    path = Path(options.folder) / f"{compiled.name}.py"
    path.write_text(compiled.text, encoding="utf-8")
    path.with_suffix(".map.json").write_text(compiled.map, encoding="utf-8")
    exec(compile(compiled.text, str(path), "exec"), names)
    step = names["load"](spec.model, options.device, compile=not options.text_only)
    assert isinstance(step, Executor)
    return step


def copies(step: Executor) -> Callable[[], None]:
    """All copies of one step of `ahead`, and nothing else."""
    count = len(step.fetches()["fetch"].layers)
    fetch: Callable[[int], None] = step.fetch  # type: ignore[attr-defined]

    def call() -> None:
        for position in range(count):
            fetch(position)

    return call


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times of all ways, and how they relate."""
    spec = llama.prefill(
        layers=options.layers,
        hidden=options.hidden,
        heads=options.heads,
        kv_heads=options.kv_heads,
        intermediate=options.intermediate,
        vocab=options.vocab,
        capacity=options.sequence,
        sequence=options.sequence,
        dtype=options.dtype,
        device=options.device,
        initializer_range=0.02,
    )
    torch.manual_seed(0)
    arguments = spec.entries["prefill"].arguments({"batch": options.batch})
    model = trace(spec, "benchmarks:host_weights", {}).unwrap()
    steps = {name: load(spec, model, name, options) for name in BODIES}
    calls: dict[str, Callable[[], object]] = {
        name: lambda step=step: step(*arguments)  # type: ignore[misc]
        for name, step in steps.items()
    }
    calls["copies"] = copies(steps["ahead"])
    results = {}
    for name, call in calls.items():
        # The first is run as it is and captured, the others replay.
        for _ in range(3):
            results[name] = call()
    expected = results["resident"]
    for name in ("ahead", "in turn"):
        torch.testing.assert_close(results[name], expected, atol=5e-2, rtol=5e-2)
    measured = alternate(
        calls, options.rounds, options.seconds, waiting_for(options.device)
    )
    times = {name: one.wall for name, one in measured.items()}
    held = steps["ahead"].report().fetched
    least = {name: median(values) for name, values in times.items()}
    bound = least["in turn"] / max(least["resident"], least["copies"])
    return {
        "layers": options.layers,
        "shape": [
            options.hidden,
            options.heads,
            options.kv_heads,
            options.intermediate,
        ],
        "dtype": options.dtype,
        "batch": options.batch,
        "sequence": options.sequence,
        "captured": bool(steps["ahead"].report().sizes),
        "host_bytes": held.host,
        "buffer_bytes": held.buffers,
        "gigabytes_per_second": round(held.host / least["copies"] / 1e9, 2),
        "milliseconds": {
            name: [round(1e3 * value, 4) for value in values]
            for name, values in times.items()
        },
        "in turn to ahead": asdict(paired_ratio(times["in turn"], times["ahead"])),
        "ahead to resident": asdict(paired_ratio(times["ahead"], times["resident"])),
        "bound of in turn to ahead": round(bound, 3),
    }


def report(result: Mapping[str, Any]) -> str:
    """The measurement as a table."""
    used = result["machine"]
    tokens = result["batch"] * result["sequence"]
    lines = [
        f"{result['layers']} layers of {result['shape']}, {result['dtype']}, {tokens} "
        f"tokens, {result['rounds']} rounds, "
        + ("captured" if result["captured"] else "uncaptured"),
        f"{used.get('gpu', used['cpu'])}, torch {used['torch']}",
        f"{result['host_bytes'] / 1e9:.2f} GB in host memory, "
        f"{result['buffer_bytes'] / 1e9:.2f} GB of buffers, "
        f"{result['gigabytes_per_second']} GB/s",
        "",
    ]
    for name, values in result["milliseconds"].items():
        numbers = (median(values), min(values), max(values))
        lines.append(f"{name:10}" + "".join(f"{value:>10.3f} ms" for value in numbers))
    lines.append("")
    for name in ("in turn to ahead", "ahead to resident"):
        ratio = result[name]
        lines.append(
            f"{name}: {ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
        )
    lines.append(f"bound of in turn to ahead: {result['bound of in turn to ahead']}")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write the JSON if asked."""
    options = _parse(words)
    with tempfile.TemporaryDirectory() as folder:
        options.folder = folder
        result = measure(options)
    finish(options, result, report)


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    # The layers are what is measured: a head of full width would take as long as two.
    parser = options_parser(
        "benchmarks.host_weights", __doc__, layers=16, vocab=1024, batch=32
    )
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--text-only", action="store_true", help="compile no part")
    parser.set_defaults(device="cuda", rounds=11, seconds=0.5)
    return parse(parser, words)


if __name__ == "__main__":
    main()
