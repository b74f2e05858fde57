"""A tower as one part against the same tower cut into layers.

    python -m benchmarks.inside_parts --layers 4 12

Both run CLIP's vision tower unsplit on one stream. As one part (`whole`) it is one
function to Inductor, which unrolls the loop over equal layers; with `each` (`layers`),
one layer is compiled and called for all. Loading is measured with empty caches, after
something else was compiled; steps in alternating rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch

from dynaflow_dsl.measurement import machine
from dynaflow_dsl.measurement.rounds import alternate, paired_ratio
from dynaflow_dsl.models import clip
from dynaflow_dsl.pipeline import compile_schedules, understand
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import TraceSpec, trace

# For about so long one sample repeats a step.
SECONDS = 0.5

WHOLE = """dfs 1

schedule whole:
    part vision = .vision_model + .visual_projection

    order:
        vision
"""
LAYERS = """dfs 1

schedule layers:
    each layer in .vision_model.encoder.layers.*:
        part block = .

        order:
            block
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """One JSON document to stdout, or where `--output` says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 12])
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        _warm_up(Path(folder), options.device)
        rows = [_measure(Path(folder), layers, options) for layers in options.layers]
    document = {
        "machine": machine.describe(),
        "threads": torch.get_num_threads(),
        "hidden": options.hidden,
        "batch": options.batch,
        "rows": rows,
    }
    text = json.dumps(document, indent=1)
    print(text)
    if options.output is not None:
        options.output.write_text(f"{text}\n", encoding="utf-8")


def _warm_up(folder: Path, device: str) -> None:
    """Compile something small: the first compilation makes things that all use."""
    spec = clip.vision(layers=1, device=device)
    module = _module(spec, WHOLE, folder / "warm")
    torch.manual_seed(0)
    step = module.load(spec.model, device, cache=folder / "warm")
    step(*spec.entries["vision"].arguments({"batch": 1}))


def _sizes(options: argparse.Namespace) -> dict[str, Any]:
    wide = 4 * options.hidden
    return {
        "hidden": options.hidden,
        "intermediate": wide,
        "image": 224,
        "patch": 32,
        "device": options.device,
    }


def _measure(folder: Path, layers: int, options: argparse.Namespace) -> dict[str, Any]:
    spec = clip.vision(layers=layers, **_sizes(options))
    inputs = spec.entries["vision"].arguments({"batch": options.batch})
    steps: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    lines: dict[str, int] = {}
    for name, text in (("whole", WHOLE), ("layers", LAYERS)):
        place = folder / f"{name}_{layers}"
        module = _module(spec, text, place)
        start = time.perf_counter()
        steps[name] = module.load(spec.model, options.device, cache=place / "cache")
        seconds[name] = round(time.perf_counter() - start, 2)
        assert module.__file__ is not None
        lines[name] = Path(module.__file__).read_text(encoding="utf-8").count("\n")
    given = {name: (lambda s=step: s(*inputs)) for name, step in steps.items()}
    wait = torch.cuda.synchronize if options.device != "cpu" else lambda: None
    measured = alternate(given, options.rounds, SECONDS, wait)
    samples = {name: one.wall for name, one in measured.items()}
    return {
        "layers": layers,
        "load_seconds": seconds,
        "module_lines": lines,
        "step_milliseconds": {
            name: round(1000 * median(times), 3) for name, times in samples.items()
        },
        "layers_by_whole": asdict(paired_ratio(samples["layers"], samples["whole"])),
    }


def _module(spec: TraceSpec, text: str, folder: Path) -> ModuleType:
    folder.mkdir(parents=True)
    file = understand(Source("inside.dfs", text)).unwrap()
    traced = trace(spec, "benchmark", {}).unwrap()
    compiled = compile_schedules(file, traced).unwrap()
    path = folder / f"{compiled.name}.py"
    path.write_text(compiled.text, encoding="utf-8")
    path.with_suffix(".map.json").write_text(compiled.map, encoding="utf-8")
    name = f"{folder.name}_{compiled.name}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
