r"""How long a module takes from its load to the end of its first step.

    python -m benchmarks.load_times --layers 8 96
    python -m benchmarks.load_times --schedule benchmarks/llama_loads.dfs --layers 32 \
        --batch 128 --beside torch.compile -o FILE.json

Equal layers are compiled once, so that the time hardly grows with their number. Each
start is a process of its own, with a model in memory and its device awake: first with
empty caches, then with what that left in them. `trace` is what `dfsc compile` takes
beforehand, once for each module, also from a model in memory to the written module.
Rounds take the numbers of layers in turn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from benchmarks.step_times import first_result_alone
from dynaflow_dsl.cli.main import run
from dynaflow_dsl.measurement import machine
from dynaflow_dsl.measurement.contenders import EVERYWHERE
from dynaflow_dsl.trace import target as trace

SCHEDULE = Path("schedules/llama/halves.dfs")


def main(words: Sequence[str] | None = None) -> None:
    """Compile the schedule for each number of layers, and start it several times."""
    options = _parse(words)
    if options.compile is not None:
        print(
            json.dumps(_compile(options.schedule, options.layers[0], options.compile))
        )
        return
    names = ["scheduled", *options.beside]
    found: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        modules = {}
        for layers in options.layers:
            made, seconds = _compiled_alone(options, layers, Path(folder) / str(layers))
            modules[layers] = made
            found[layers] = {"trace": seconds}
            found[layers] |= {one: {"empty": [], "filled": []} for one in names}
        for _ in range(options.starts):
            for layers, module in modules.items():
                for name in names:
                    row = found[layers][name]
                    given = ["--batch", str(options.batch)]
                    with tempfile.TemporaryDirectory() as caches:
                        for state in ("empty", "filled"):
                            taken = first_result_alone(
                                module, name, Path(caches), given
                            )
                            row[state].append(taken)
    print("\n".join(report(found)))
    if options.output is not None:
        document = {
            "machine": machine.describe(options.device),
            "schedule": options.schedule.as_posix(),
            "batch": options.batch,
            "seconds": {str(layers): row for layers, row in found.items()},
        }
        text = json.dumps(document, indent=2) + "\n"
        options.output.write_text(text, encoding="utf-8")


def report(found: dict[int, dict[str, Any]]) -> list[str]:
    """The measurement as lines."""
    lines = []
    for layers, row in found.items():
        lines.append(f"{layers} layers, compiled by dfsc in {row['trace']:.1f} s")
        for name, states in row.items():
            if name != "trace":
                empty, filled = median(states["empty"]), median(states["filled"])
                lines.append(
                    f"  {name:14}{empty:>8.2f} s empty caches{filled:>8.2f} s filled"
                )
    return lines


def _compiled_alone(
    options: argparse.Namespace, layers: int, folder: Path
) -> tuple[Path, float]:
    """The module, made in a process of its own, and the seconds it took there."""
    command = [sys.executable, "-m", "benchmarks.load_times", "--compile", str(folder)]
    command += ["--schedule", str(options.schedule), "--layers", str(layers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    (module,) = folder.glob("*.py")
    return module, float(json.loads(done.stdout.splitlines()[-1]))


def _compile(schedule: Path, layers: int, folder: Path) -> float:
    """Seconds of `dfsc compile` from the moment that the model is in memory."""
    loaded: list[float] = []

    def load_target(*arguments: Any) -> Any:
        target = trace.load_target(*arguments)
        loaded.append(time.perf_counter())
        return target

    words = ["compile", str(schedule), "-M", f"layers={layers}", "-o", str(folder)]
    with patch("dynaflow_dsl.trace.load_target", load_target):
        if run(words) != 0:
            raise SystemExit(1)
    return round(time.perf_counter() - loaded[0], 3)


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load_times",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--schedule", type=Path, default=SCHEDULE)
    parser.add_argument("--layers", type=int, nargs="+", default=[8, 96])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--beside", action="append", choices=EVERYWHERE[1:], default=[])
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="which one to describe")
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE.json")
    parser.add_argument("--compile", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
