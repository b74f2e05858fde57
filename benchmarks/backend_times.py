"""What the backend of `torch.compile` costs beside the executor it has made.

    python -m benchmarks.backend_times --device cuda -o FILE.json

A Hugging Face Llama runs without a cache in five ways: `backend` is `torch.compile`
with `backend="dynaflow"`, `loaded` the module that this has written, loaded by itself,
with no Dynamo around it. `unfit` is the backend with a schedule that fits no part of
the model and `strict` off, so that Inductor compiles the graph, `inductor, open` is
`torch.compile` with the batch open as the backend leaves it, and `inductor` as it
comes, for one size. All run in one process on the same inputs, in alternating
rounds: `wall` is a call on an idle device, `steady` one of many that follow each other.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.side_by_side import (
    finish,
    microseconds,
    options_parser,
    parse,
    ratio_lines,
    ratios,
    waiting_for,
)
from dynaflow_dsl.integrations.dynamo.backend import dynaflow
from dynaflow_dsl.measurement.contenders import largest_difference
from dynaflow_dsl.measurement.rounds import alternate

SCHEDULE = """dfs 1

schedule halves:
    stream side

    split batch into 2 as half{capture}

    each layer in {layers}:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest

        stagger half by 1:
            attn
            mlp
"""
# Of the largest logit: other shapes round in another way, in half precision too.
_APART = 0.05
PAIRS = (("backend", "loaded"), ("unfit", "inductor, open"), ("unfit", "inductor"))


def contenders(
    options: argparse.Namespace, folder: Path
) -> dict[str, Callable[[], torch.Tensor]]:
    """One call of each of the five, on the same model and tokens."""
    config = LlamaConfig(
        num_hidden_layers=options.layers,
        hidden_size=options.hidden,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads,
        intermediate_size=options.intermediate,
        vocab_size=options.vocab,
        use_cache=False,
    )
    torch.manual_seed(0)
    with torch.device(options.device):
        model = LlamaForCausalLM._from_config(
            config, dtype=getattr(torch, options.dtype)
        ).eval()
    shape = options.batch, options.sequence
    tokens = torch.randint(options.vocab, shape, device=options.device)
    capture = f"\n    capture batch at [{options.batch}]" if options.capture else ""
    fitting, unfit = folder / "halves.dfs", folder / "unfit.dfs"
    fitting.write_text(SCHEDULE.format(layers=".model.layers.*", capture=capture))
    unfit.write_text(SCHEDULE.format(layers=".model.blocks.*", capture=""))
    common = {"dims": {"input_ids": ("batch", None)}}
    module = folder / "generated" / "halves.py"
    given = {**common, "schedule": str(fitting), "module": str(module)}
    backend = _compiled(model, backend=dynaflow, options=given)
    with torch.no_grad():
        backend(tokens)
    loose: dict[str, object] = {"strict": False, "write": "never"}
    loose |= {**common, "schedule": str(unfit)}
    steps = {
        "backend": backend,
        "loaded": _loaded(module, model, options.device),
        "unfit": _compiled(model, backend=dynaflow, options=loose),
        "inductor, open": _compiled(model),
        "inductor": _compiled(model),
    }
    # What is open is said of a tensor, and so of one that nobody else is given.
    marked = tokens.clone()
    torch._dynamo.mark_dynamic(marked, 0)
    return {
        name: _call(step, marked if name.endswith("open") else tokens)
        for name, step in steps.items()
    }


def _compiled(model: torch.nn.Module, **options: Any) -> Callable[..., Any]:
    def step(input_ids: torch.Tensor) -> Any:
        return model(input_ids=input_ids, logits_to_keep=1)

    # Code of its own for each: what Dynamo made of one code object is searched in turn.
    step.__code__ = step.__code__.replace()
    return torch.compile(step, **options)


def _loaded(path: Path, model: torch.nn.Module, device: str) -> Callable[..., Any]:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    loaded: Callable[..., Any] = module.load(model, device)
    return loaded


def _call(step: Callable[..., Any], tokens: torch.Tensor) -> Callable[[], torch.Tensor]:
    def call() -> torch.Tensor:
        with torch.no_grad():
            result = step(tokens)
        logits = result[0] if isinstance(result, tuple) else result
        return logits if isinstance(logits, torch.Tensor) else logits.logits

    return call


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Times of all five, and the paired ratios of those that belong together."""
    wait = waiting_for(options.device)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = contenders(options, Path(name))
        results = {}
        for _ in range(4):
            results = {one: call() for one, call in calls.items()}
        wait()
        assert torch.equal(results["backend"], results["loaded"])
        assert largest_difference(results["backend"], results["inductor"]) < _APART
        times = alternate(calls, options.rounds, options.seconds, wait)
    return {
        "shape": {
            name: getattr(options, name)
            for name in ("layers", "hidden", "batch", "sequence", "dtype", "capture")
        },
        "microseconds": microseconds(times),
        "ratios": {
            f"{one} to {other}": ratios(times[one], times[other])
            for one, other in PAIRS
        },
    }


def report(result: Mapping[str, Any]) -> str:
    """The measurement as a table."""
    used = result["machine"]
    lines = [
        f"{result['shape']}, {result['rounds']} rounds",
        f"{used.get('gpu', used['cpu'])}, torch {used['torch']}",
    ]
    for name, row in result["microseconds"].items():
        wall, host = median(row["wall"]), median(row["host"])
        least, most = min(row["wall"]), max(row["wall"])
        lines.append(
            f"{name:15}{wall:>12.1f} us ({least:.1f} to {most:.1f}), "
            f"the call returns after {host:.1f} us, one after the other "
            f"{median(row['steady']):.1f} us"
        )
    for name, kinds in result["ratios"].items():
        lines += ratio_lines(name, kinds)
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write the JSON if asked."""
    options = _parse(words)
    finish(options, measure(options), report)


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = options_parser(
        "benchmarks.backend_times", __doc__, layers=4, vocab=32000, batch=4
    )
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--capture", action="store_true", help="in a CUDA graph")
    return parse(parser, words)


if __name__ == "__main__":
    main()
