"""How long a module takes to load with empty caches, by the number of layers.

    python -m benchmarks.load_times --layers 8 96

Equal layers are compiled once, so that the time hardly grows with their number. Each
start is a process of its own, with a model in memory: seconds until the first step is
done. Rounds take the numbers of layers in turn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.step_times import first_result_alone
from dynaflow_dsl.measurement import machine

SCHEDULE = Path("schedules/llama/halves.dfs")


def main(words: Sequence[str] | None = None) -> None:
    """Compile the schedule for each number of layers, and start it several times."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load_times", description=__doc__
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[8, 96])
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE.json")
    arguments = parser.parse_args(words)
    seconds: dict[int, list[float]] = {layers: [] for layers in arguments.layers}
    with tempfile.TemporaryDirectory() as folder:
        modules = {n: _compiled(n, Path(folder) / str(n)) for n in arguments.layers}
        for _ in range(arguments.starts):
            for layers, module in modules.items():
                with tempfile.TemporaryDirectory() as caches:
                    taken = first_result_alone(module, "scheduled", Path(caches))
                seconds[layers].append(taken)
    fewest = median(seconds[arguments.layers[0]])
    for layers, listed in seconds.items():
        middle = median(listed)
        print(
            f"{layers:>4} layers {middle:>8.2f} s  {min(listed):.2f} to "
            f"{max(listed):.2f}  {middle / fewest:.2f} of {arguments.layers[0]} layers"
        )
    if arguments.output is not None:
        document = {
            "machine": machine.describe(),
            "schedule": SCHEDULE.as_posix(),
            "seconds": {str(layers): listed for layers, listed in seconds.items()},
        }
        text = json.dumps(document, indent=2) + "\n"
        arguments.output.write_text(text, encoding="utf-8")


def _compiled(layers: int, folder: Path) -> Path:
    command = [sys.executable, "-m", "dynaflow_dsl", "compile", str(SCHEDULE)]
    command += ["-M", f"layers={layers}", "-o", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "llama_halves.py"


if __name__ == "__main__":
    main()
