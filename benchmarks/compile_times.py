"""How long each stage of the compiler takes, by the number of layers.

    python -m benchmarks.compile_times --layers 8 24 48 96

Four parts and four pieces of a Llama with small tensors, whose graph has as many
operations as that of a large one; in `gaps`, something runs between any two layers.
Capturing the model (`export`) is PyTorch's work; all other stages are ours. Seconds are
those of the processor, so that other work on the machine does not count. Prints a
table, and writes one JSON document where `--output` says.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar
from unittest.mock import patch

import torch

from dynaflow_dsl.bind import bind
from dynaflow_dsl.emit import emit
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.measurement import machine
from dynaflow_dsl.models import llama
from dynaflow_dsl.pipeline import understand
from dynaflow_dsl.plan import plan
from dynaflow_dsl.prove import prove
from dynaflow_dsl.runtime.collector import no_collections
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import Entry, TraceSpec, trace
from dynaflow_dsl.trace.export import export_module

LAYERS = (8, 24, 48, 96)
ROUNDS = 5

SCHEDULE = """dfs 1

schedule deep:
    stream side

    split batch into 4 as piece

    each layer in {layers}:
{parts}

        stagger piece by 1:
            before_attention
            attention
            before_mlp
            mlp
"""
PARTS = """
        part before_attention = .input_layernorm
        part attention on side = .self_attn
        part before_mlp = .post_attention_layernorm
        part mlp = rest
"""
GAPPED_PARTS = """
        part before_attention = .first
        part attention on side = .second
        part before_mlp = .third
        part mlp = .fourth
"""
SCHEDULES = {
    "parts": SCHEDULE.format(layers=".model.layers.*", parts=PARTS.strip("\n")),
    "gaps": SCHEDULE.format(layers=".layers.*", parts=GAPPED_PARTS.strip("\n")),
}
OURS = ("graph", "read", "bind", "plan", "prove", "emit")

T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every number of layers with every schedule."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=list(LAYERS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    rows = []
    for layers in options.layers:
        for name, target in TARGETS.items():
            model, traced = _traced(target(layers))
            operations = len(model.graphs[0].operations)
            stages = {**traced, **_compiled(model, name, options.rounds)}
            total = sum(stages[stage] for stage in OURS)
            rows.append(
                {
                    "layers": layers,
                    "operations": operations,
                    "schedule": name,
                    "seconds": {key: round(value, 4) for key, value in stages.items()},
                    "without_export": round(total, 4),
                }
            )
    document = {
        "machine": machine.describe(),
        "rounds": options.rounds,
        "pieces": 4,
        "rows": rows,
    }
    print(_table(rows))
    if options.output is not None:
        text = json.dumps(document, indent=1)
        options.output.write_text(f"{text}\n", encoding="utf-8")


class Block(torch.nn.Module):
    """Some pointwise operations around two products."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 [batch, 8] to the same."""
        hidden = torch.tanh(self.up(x)) * torch.sigmoid(x).repeat(1, 2)
        result: torch.Tensor = x + self.down(torch.relu(hidden))
        return result


class Layer(torch.nn.Module):
    """Four blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()
        self.third, self.fourth = Block(), Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 [batch, 8] to the same."""
        result: torch.Tensor = self.fourth(self.third(self.second(self.first(x))))
        return result


class Bridged(torch.nn.Module):
    """Layers with a block of nobody's between any two."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))
        self.bridges = torch.nn.ModuleList(Block() for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 [batch, 8] to the same."""
        for layer, bridge in zip(self.layers, self.bridges, strict=True):
            x = bridge(layer(x))
        return x


def _llama(layers: int) -> TraceSpec:
    return llama.decode(layers=layers, hidden=32, intermediate=64, vocab=64)


def _bridged(layers: int) -> TraceSpec:
    return TraceSpec(
        model=Bridged(layers).eval(),
        entries={"run": Entry(lambda sizes: (torch.rand(sizes["batch"], 8),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, None)},
    )


TARGETS = {"parts": _llama, "gaps": _bridged}


def _traced(spec: TraceSpec) -> tuple[TracedModel, dict[str, float]]:
    """A model's graph, and seconds of capturing and of making plain data of it."""
    captured = 0.0

    def timed(*arguments: Any) -> Any:
        nonlocal captured
        exported, seconds = _timed(partial(export_module, *arguments))
        captured += seconds
        return exported

    with patch("dynaflow_dsl.trace.tracing.export_module", timed):
        model, seconds = _timed(partial(trace, spec, "benchmark", {}))
    return model.unwrap(), {"export": captured, "graph": seconds - captured}


def _compiled(model: TracedModel, name: str, rounds: int) -> dict[str, float]:
    samples: dict[str, list[float]] = {}

    def stage(label: str, work: Callable[[], T]) -> T:
        result, seconds = _timed(work)
        samples.setdefault(label, []).append(seconds)
        return result

    graph = model.graphs[0]
    for _ in range(rounds):
        source = Source(f"{name}.dfs", SCHEDULES[name])
        file = stage("read", partial(understand, source)).unwrap()
        bound = stage("bind", partial(bind, file.schedules[0], graph)).unwrap()
        planned = stage("plan", partial(plan, bound)).unwrap()
        proved = stage("prove", partial(prove, planned)).unwrap()
        stage("emit", partial(emit, [proved], file, name, f"{name}.dfs", model))
    return {label: median(times) for label, times in samples.items()}


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    gc.collect()  # garbage of earlier work is not counted to this one
    with no_collections():
        start = time.process_time()
        result = work()
        return result, time.process_time() - start


def _table(rows: Sequence[dict[str, Any]]) -> str:
    stages = ("export", *OURS)
    lines = [
        f"| layers | schedule | {' | '.join(stages)} | without export |",
        "|" + "---|" * (len(stages) + 3),
    ]
    lines += [
        f"| {row['layers']} | {row['schedule']} | "
        + " | ".join(f"{row['seconds'][stage]:.2f}" for stage in stages)
        + f" | {row['without_export']:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
