"""What a `select` costs where it chooses `sequential`.

    python -m benchmarks.select_times --device cuda -o FILE.json

Layers of Llama 3 8B (any other shape by options), decode. `chosen` is a module whose
`select` gives the measured batch to `sequential`, `alone` the same model in program
order with no `select` around it. Both run in one process on the same inputs, in
alternating rounds, captured where the device captures; neither copies inputs or
outputs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from benchmarks.side_by_side import (
    finish,
    microseconds,
    options_parser,
    parse,
    ratio_lines,
    ratios,
    waiting_for,
)
from dynaflow_dsl import pipeline
from dynaflow_dsl.measurement.contenders import largest_difference
from dynaflow_dsl.measurement.rounds import alternate
from dynaflow_dsl.models import llama
from dynaflow_dsl.runtime import Executor, Selected
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import trace

SCHEDULE = """dfs 1

schedule halves:
    stream side

    split batch into 2 as half
    capture batch at [{batch}] (static = true)

    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest

        stagger half by 1:
            attn
            mlp
"""
# Of the largest logit, in half precision too.
_APART = 0.05
SELECT = """
select pick:
    when batch > {batch}: halves
    else: sequential
"""


def steps(options: argparse.Namespace, folder: Path) -> dict[str, Callable[..., Any]]:
    """Both steps of one model, and a call of each on the same inputs."""
    spec = llama.decode(
        layers=options.layers,
        hidden=options.hidden,
        heads=options.heads,
        kv_heads=options.kv_heads,
        intermediate=options.intermediate,
        vocab=options.vocab,
        capacity=256,
        dtype=options.dtype,
        device=options.device,
        initializer_range=0.02,
    )
    model = trace(spec, "benchmarks:select_times", {}).unwrap()
    plain = SCHEDULE.format(batch=options.batch)
    texts = {"chosen": plain + SELECT.format(batch=options.batch), "alone": plain}
    loaded = {}
    for name, text in texts.items():
        file = pipeline.understand(Source(f"{name}.dfs", text)).unwrap()
        compiled = pipeline.compile_schedules(file, model).unwrap()
        names: dict[str, Any] = {}
        # Generated modules find their map beside their file.
        path = folder / f"{name}.py"
        path.write_text(compiled.text, encoding="utf-8")
        path.with_suffix(".map.json").write_text(compiled.map, encoding="utf-8")
        exec(compile(compiled.text, str(path), "exec"), names)
        with _sequential(name == "alone"):
            loaded[name] = names["load"](spec.model, options.device, outputs="lent")
    assert isinstance(loaded["chosen"], Selected)
    torch.manual_seed(0)
    given = spec.entries["decode"].arguments({"batch": options.batch})
    return {name: _lent(step, given) for name, step in loaded.items()}


@contextmanager
def _sequential(wanted: bool) -> Iterator[None]:
    # Read once, when a module is loaded.
    before = os.environ.pop("DFSC_SEQUENTIAL", None)
    if wanted:
        os.environ["DFSC_SEQUENTIAL"] = "1"
    try:
        yield
    finally:
        os.environ.pop("DFSC_SEQUENTIAL", None)
        if before is not None:
            os.environ["DFSC_SEQUENTIAL"] = before


def _lent(step: Executor | Selected, given: Sequence[Any]) -> Callable[[], Any]:
    """A call whose inputs lie in the memory that a captured step reads."""
    executor = step if isinstance(step, Executor) else step.executors["halves"]
    arguments = executor.arrange(tuple(given), {})
    sizes: dict[str, Any] = dict(executor.sizes_of(arguments, None))
    buffers = step.buffers(**sizes)
    own = [buffers.get(k, v) for k, v in zip(executor.inputs, arguments, strict=True)]
    for target, source in zip(tree_leaves(own), tree_leaves(arguments), strict=True):
        if target is not source:
            target.copy_(source)
    return lambda: step(*own)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times of both, and how they relate."""
    wait = waiting_for(options.device)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        calls = steps(options, Path(folder))
        for _ in range(4):
            results = {name: call() for name, call in calls.items()}
        wait()
        # Not bit for bit: on a device the model itself differs from run to run.
        assert largest_difference(results["chosen"], results["alone"]) < _APART
        times = alternate(calls, options.rounds, options.seconds, wait)
    return {
        "layers": options.layers,
        "batch": options.batch,
        "dtype": options.dtype,
        "microseconds": microseconds(times),
        "chosen to alone": ratios(times["chosen"], times["alone"]),
    }


def report(result: Mapping[str, Any]) -> str:
    """The measurement as lines."""
    used = result["machine"]
    lines = [f"{used.get('gpu', used['cpu'])}, torch {used['torch']}"]
    for name, row in result["microseconds"].items():
        wall, host = median(row["wall"]), median(row["host"])
        lines.append(f"{name:8}{wall:>12.1f} us, the call returns after {host:.1f} us")
    lines += ratio_lines("chosen to alone", result["chosen to alone"])
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write the JSON if asked."""
    parser = options_parser(
        "benchmarks.select_times", __doc__, layers=8, vocab=128256, batch=128
    )
    options = parse(parser, words)
    finish(options, measure(options), report)


if __name__ == "__main__":
    main()
