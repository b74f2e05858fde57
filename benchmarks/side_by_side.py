"""What benchmarks of a few ways to run one step share: options, samples, a document."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from dynaflow_dsl.measurement import machine
from dynaflow_dsl.measurement.rounds import MINIMUM_ROUNDS, Times, paired_ratio


def options_parser(
    program: str, description: str | None, *, layers: int, vocab: int, batch: int
) -> argparse.ArgumentParser:
    """Options of layers with the shape of Llama 3 8B, and of the measurement."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--layers", type=int, default=layers)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--intermediate", type=int, default=14336)
    parser.add_argument("--vocab", type=int, default=vocab)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2, help="of one sample")
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE.json")
    return parser


def parse(
    parser: argparse.ArgumentParser, words: Sequence[str] | None
) -> argparse.Namespace:
    """The options of a command line, with enough rounds."""
    options = parser.parse_args(words)
    if options.rounds < MINIMUM_ROUNDS:
        parser.error(f"--rounds must be at least {MINIMUM_ROUNDS}")
    return options


def waiting_for(device: str) -> Callable[[], object]:
    """What waits for all work of a device."""
    cuda = torch.device(device).type == "cuda"
    return torch.cuda.synchronize if cuda else lambda: None


def microseconds(times: Mapping[str, Times]) -> dict[str, dict[str, list[float]]]:
    """All samples, by way and kind."""
    return {
        name: {
            kind: [round(1e6 * one, 2) for one in listed]
            for kind, listed in asdict(taken).items()
        }
        for name, taken in times.items()
    }


def ratios(one: Times, other: Times) -> dict[str, dict[str, float]]:
    """Paired ratios of one way to another, on an idle device and one behind another."""
    return {
        "wall": asdict(paired_ratio(one.wall, other.wall)),
        "steady": asdict(paired_ratio(one.steady, other.steady)),
    }


def ratio_lines(name: str, kinds: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """What `ratios` gave, for people."""
    for kind, ratio in kinds.items():
        ends = f"[{ratio['low']:.4f}, {ratio['high']:.4f}]"
        yield f"{name}, {kind}: {ratio['median']:.4f} {ends}"


def finish(
    options: argparse.Namespace,
    measured: Mapping[str, Any],
    report: Callable[[Mapping[str, Any]], str],
) -> None:
    """Print the report, and write the JSON if asked."""
    result = {
        "rounds": options.rounds,
        "machine": machine.describe(options.device),
        **measured,
    }
    print(report(result))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(result, indent=2) + "\n"
        options.output.write_text(text, encoding="utf-8")
