"""How long `dfsc check` takes with the snapshot of a deep model.

    python -m benchmarks.check_times --layers 64

Each run is a process of its own, as on a command line, with its modules compiled before
as an installation compiles them. What the interpreter and the imports take is measured
with `dfsc check --help`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from dynaflow_dsl.measurement import machine
from dynaflow_dsl.resources import folder

SCHEDULE = "llama/halves.dfs"
ROUNDS = 11


def main(arguments: Sequence[str] | None = None) -> None:
    """Trace the model once, then time the command; one JSON document to stdout."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "halves.dfs"
        text = (folder("schedules") / SCHEDULE).read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")
        snapshot = path.with_suffix(".graph.json")
        environment = _environment(Path(temporary) / "bytecode")
        words = ["-M", f"layers={options.layers}", "-o", str(snapshot)]
        _run(environment, "trace", str(path), *words)
        check = ["check", str(path), "--graph", str(snapshot)]
        _run(environment, *check)
        samples: dict[str, list[float]] = {"check": [], "start": []}
        # Alternating, so that a change of the machine's load meets both.
        for _ in range(options.rounds):
            samples["check"].append(_run(environment, *check))
            samples["start"].append(_run(environment, "check", "--help"))
        size = snapshot.stat().st_size
    document = {
        "machine": machine.describe(),
        "schedule": SCHEDULE,
        "layers": options.layers,
        "snapshot_bytes": size,
        "seconds": {name: round(median(times), 3) for name, times in samples.items()},
        "samples": {
            name: [round(seconds, 3) for seconds in times]
            for name, times in samples.items()
        },
    }
    print(json.dumps(document, indent=2))


def _environment(bytecode: Path) -> dict[str, str]:
    """The environment of each run: the first one compiles for all others."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(bytecode)}


def _run(environment: Mapping[str, str], *words: str) -> float:
    """Seconds that a command line takes; raises CalledProcessError when it fails."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "dynaflow_dsl", *words],
        check=True,
        capture_output=True,
        env=environment,
    )
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
