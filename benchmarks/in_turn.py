r"""Several runs of `dfsc bench`: all compile side by side, then each is measured alone.

    python -m benchmarks.in_turn benchmarks/ranks/two_gpus.toml -o FOLDER

A table of the TOML file is a run, and its name that of the JSON file in the folder:

    [llama]
    bench = ["schedules/llama/two_batch.dfs", "-M", "ways=2"]
    ranks = 2
    environment = { NCCL_P2P_DISABLE = "1" }

`bench` is what follows `dfsc bench`; with `ranks`, torchrun starts that many processes.
Words of a list `every` at the top follow those of all runs. No run is measured before
all have compiled or failed. Prints how many times as fast the schedule was, steady.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from dynaflow_dsl.measurement import rounds

POLL = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Run:
    """A run of `dfsc bench` with these words, and its own environment."""

    name: str
    words: tuple[str, ...]
    ranks: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


def read_runs(text: str) -> list[Run]:
    """The runs of a TOML document. Raises ValueError for what is none."""
    document = tomllib.loads(text)
    every = document.pop("every", [])
    runs = []
    for name, table in document.items():
        if not isinstance(table, dict) or not isinstance(table.get("bench"), list):
            raise ValueError(f"`{name}` is no run: it has no list `bench`")
        unknown = table.keys() - {"bench", "ranks", "environment"}
        if unknown:
            raise ValueError(f"a run has no `{min(unknown)}`, and `{name}` gives one")
        words = tuple(map(str, [*table["bench"], *every]))
        environment = table.get("environment", {})
        runs.append(Run(name, words, table.get("ranks", 1), environment))
    return runs


def main(words: Sequence[str] | None = None) -> None:
    """Start all runs, wait for them, and print what they found."""
    options = _parse(words)
    if options.child is not None:
        _bench(options.child, options.gate, options.words)
        return
    try:
        runs = read_runs(options.runs.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{options.runs}: {error}") from error
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        codes = _run_all(runs, Path(folder), options.output)
    failed = [name for name, code in codes.items() if code != 0]
    for run in runs:
        if run.name not in failed:
            print("\n".join(_report(run.name, options.output)))
    if failed:
        files = ", ".join(f"{options.output / name}.err" for name in failed)
        raise SystemExit(f"failed, see {files}")


def _run_all(runs: Sequence[Run], gate: Path, output: Path) -> dict[str, int]:
    started = {}
    for number, run in enumerate(runs):
        child = ["-m", "benchmarks.in_turn", "--child", run.name, "--gate", str(gate)]
        command = [sys.executable, *child]
        if run.ranks > 1:
            port = str(29600 + number)
            command = [sys.executable, "-m", "torch.distributed.run"]
            command += ["--nproc-per-node", str(run.ranks), "--master-port", port]
            command += child
        with (
            (output / f"{run.name}.out").open("w") as out,
            (output / f"{run.name}.err").open("w") as err,
        ):
            started[run.name] = subprocess.Popen(
                [*command, "--", *run.words],
                env={**os.environ, **run.environment},
                stdout=out,
                stderr=err,
            )
    codes: dict[str, int] = {}
    while len(codes) < len(started):
        for name, process in started.items():
            code = process.poll()
            if code is not None and name not in codes:
                codes[name] = code
                (gate / f"{name}.ready").touch()  # nobody waits for it any more
        if all((gate / f"{name}.ready").exists() for name in started):
            (gate / "all").touch()
        time.sleep(POLL)
    for name, code in codes.items():
        if code == 0:
            _keep(output, name)
    return codes


def _bench(name: str, gate: Path, words: Sequence[str]) -> None:
    """`dfsc bench` in this process, whose measurements wait for their turn."""
    alternate = rounds.alternate
    turns = count()

    def in_turn(*arguments: Any, **options: Any) -> Any:
        with _turn(gate, name, next(turns)):
            return alternate(*arguments, **options)

    rounds.alternate = in_turn
    sys.argv = ["dfsc", "bench", "--output-format", "json", *words]
    runpy.run_module("dynaflow_dsl", run_name="__main__")


@contextmanager
def _turn(gate: Path, name: str, number: int) -> Iterator[None]:
    """The only run that measures. Rank 0 takes the turn, and the others follow it."""
    taken = gate / f"{name}.{number}.turn"
    if os.environ.get("RANK", "0") != "0":
        _wait_for(taken)
        yield
        return
    (gate / f"{name}.ready").touch()
    _wait_for(gate / "all")
    with (gate / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        taken.touch()
        yield


def _wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(POLL)


def _keep(output: Path, name: str) -> None:
    """Keep the result of a run by itself, and nothing that it printed beside it."""
    printed = output / f"{name}.out"
    results = json.loads(printed.read_text(encoding="utf-8"))["results"]
    document = results[0] if len(results) == 1 else results
    text = json.dumps(document, indent=1) + "\n"
    (output / f"{name}.json").write_text(text, encoding="utf-8")
    printed.unlink()
    (output / f"{name}.err").unlink()


def _report(name: str, output: Path) -> list[str]:
    """How many times as fast as each contender, with the ends of the interval."""
    document = json.loads((output / f"{name}.json").read_text(encoding="utf-8"))
    lines = []
    for found in document if isinstance(document, list) else [document]:
        sizes = ", ".join(f"{key} {size}" for key, size in found["sizes"].items())
        lines.append(f"{name}, {found['entry']}, {sizes}")
        scheduled = found["contenders"].get("scheduled", {})
        # On a CPU a step is over when its call returns.
        ratios = scheduled.get("steady_ratios") or scheduled.get("ratios", {})
        for other, ratio in ratios.items():
            one, high, low = (1 / ratio[key] for key in ("median", "low", "high"))
            lines.append(f"  {one:.3f} [{low:.3f}, {high:.3f}] of {other}")
    return lines


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.in_turn",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", type=Path, nargs="?", help="TOML file of runs")
    parser.add_argument("-o", dest="output", type=Path, metavar="FOLDER")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--gate", type=Path, help=argparse.SUPPRESS)
    given = list(sys.argv[1:] if words is None else words)
    rest: list[str] = []
    if "--" in given:
        place = given.index("--")
        given, rest = given[:place], given[place + 1 :]
    options = parser.parse_args(given, argparse.Namespace(words=rest))
    if options.child is None and (options.runs is None or options.output is None):
        parser.error("give a file of runs, and a folder with -o")
    return options


if __name__ == "__main__":
    main()
