"""One step of a generated module beside eager PyTorch and `torch.compile`.

    python -m benchmarks.step_times executors/llama_halves.py

All run in one process on the same inputs, in alternating rounds. With
`--compile-times` each is also started in processes of its own, with empty caches and
again with the caches that this left.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch

from dynaflow_dsl.measurement import machine
from dynaflow_dsl.measurement.contenders import EVERYWHERE, Case, make
from dynaflow_dsl.measurement.rounds import MINIMUM_ROUNDS, alternate, paired_ratio
from dynaflow_dsl.trace import load_target
from dynaflow_dsl.verification.verify import find_executor

REFERENCES = ("eager", "torch.compile")


def load_case(path: Path, batch: int, entry: str | None) -> tuple[str, Case]:
    """A generated module with the model and the inputs that it was made for.

    Also gives the name of the entry, the first one by default.
    """
    module = _import(path)
    known = json.loads(path.with_suffix(".map.json").read_text(encoding="utf-8"))
    target, device = known["target"], known["device"]
    spec = load_target(target["name"], target["arguments"], None).unwrap()
    chosen = entry if entry is not None else next(iter(known["graph"]))
    torch.manual_seed(0)
    case = Case(
        adapted=spec.adapted,
        load=lambda **options: find_executor(
            module.load(spec.model, device, **options), chosen
        ),
        arguments=spec.entries[chosen].arguments(dict.fromkeys(spec.dimensions, batch)),
        in_place=(),
        device=torch.device(device),
    )
    return chosen, case


def step_times(case: Case, rounds: int, seconds: float) -> dict[str, Any]:
    """Times and paired ratios of all contenders."""
    calls = {name: make(case, name) for name in EVERYWHERE}
    for call in calls.values():
        for _ in range(3):
            call()
    measured = alternate(calls, rounds, seconds)
    times = {name: one.wall for name, one in measured.items()}
    return {
        name: {
            "milliseconds": [round(1e3 * value, 4) for value in values],
            "relative to": {
                other: asdict(paired_ratio(values, times[other]))
                for other in REFERENCES
                if other != name
            },
        }
        for name, values in times.items()
    }


def start_times(arguments: argparse.Namespace, starts: int) -> dict[str, Any]:
    """Seconds from a model in memory to the result of the first step.

    Each start is a process of its own: first with empty caches, then with what that
    left in them.
    """
    found: dict[str, Any] = {}
    for name in EVERYWHERE[1:]:
        cold, warm = [], []
        for _ in range(starts):
            with tempfile.TemporaryDirectory() as caches:
                cold.append(_start(arguments, name, Path(caches)))
                warm.append(_start(arguments, name, Path(caches)))
        found[name] = {"empty caches": cold, "filled caches": warm}
    return found


def report(result: Mapping[str, Any]) -> str:
    """The measurement as a table."""
    used = result["machine"]
    lines = [
        f"{result['module']}, entry {result['entry']}, batch {result['batch']}, "
        f"{result['rounds']} rounds",
        f"{used['cpu']}, {used['cores']} cores, torch {used['torch']}",
        "",
        f"{'':14}{'median':>12}{'least':>12}{'most':>12}"
        f"   {'of eager [95%]':<24}of torch.compile [95%]",
    ]
    for name, row in result["steps"].items():
        times = row["milliseconds"]
        numbers = (median(times), min(times), max(times))
        line = f"{name:14}" + "".join(f"{value:>9.3f} ms" for value in numbers)
        ratios = [_ratio(row["relative to"].get(other)) for other in REFERENCES]
        lines.append(f"{line}   {ratios[0]:<24}{ratios[1]}".rstrip())
    if "starts" in result:
        lines += ["", "Seconds to the first result, each in a process of its own:"]
        for name, row in result["starts"].items():
            cold, warm = row["empty caches"], row["filled caches"]
            lines.append(
                f"{name:14}{median(cold):>7.2f} s empty caches "
                f"{median(warm):>7.2f} s filled caches"
            )
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write the JSON if asked."""
    arguments = _parse(words)
    if arguments.start is not None:
        print(json.dumps(_first_result(arguments)))
        return
    entry, case = load_case(arguments.module, arguments.batch, arguments.entry)
    result: dict[str, Any] = {
        "module": arguments.module.as_posix(),
        "entry": entry,
        "batch": arguments.batch,
        "rounds": arguments.rounds,
        "machine": {**machine.describe(), "threads": torch.get_num_threads()},
        "steps": step_times(case, arguments.rounds, arguments.seconds),
    }
    if arguments.compile_times:
        result["starts"] = start_times(arguments, arguments.starts)
    print(report(result))
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(result, indent=2) + "\n"
        arguments.output.write_text(text, encoding="utf-8")


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.step_times", description=__doc__
    )
    parser.add_argument("module", type=Path, help="generated module")
    parser.add_argument("--entry", help="the first one by default")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=MINIMUM_ROUNDS)
    parser.add_argument("--seconds", type=float, default=0.2, help="of one sample")
    parser.add_argument("--compile-times", action="store_true")
    parser.add_argument("--starts", type=int, default=3, help="for --compile-times")
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE.json")
    parser.add_argument("--start", choices=EVERYWHERE, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.rounds < MINIMUM_ROUNDS:
        parser.error(f"--rounds must be at least {MINIMUM_ROUNDS}")
    return arguments


def _start(arguments: argparse.Namespace, name: str, caches: Path) -> float:
    words = ["--batch", str(arguments.batch)]
    if arguments.entry is not None:
        words += ["--entry", arguments.entry]
    return first_result_alone(arguments.module, name, caches, words)


def first_result_alone(
    module: Path, name: str, caches: Path, words: Sequence[str] = ()
) -> float:
    """Seconds from a model in memory to a first result, in a process of its own.

    `caches` holds what is compiled, `words` are further options of this script.
    """
    command = [sys.executable, "-m", "benchmarks.step_times", str(module)]
    command += ["--start", name, *words]
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "DFSC_CACHE_DIR": str(caches / "parts"),
    }
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def _first_result(arguments: argparse.Namespace) -> float:
    _, case = load_case(arguments.module, arguments.batch, arguments.entry)
    cuda = case.device.type == "cuda"
    wait: Callable[[], object] = torch.cuda.synchronize if cuda else lambda: None
    wait()
    start = time.perf_counter()
    make(case, arguments.start)()
    wait()
    return round(time.perf_counter() - start, 3)


def _import(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not a Python module")
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _ratio(ratio: Mapping[str, float] | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"


if __name__ == "__main__":
    main()
