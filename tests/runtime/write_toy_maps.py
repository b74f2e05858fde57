"""Writes the map files of the toy modules; run it after a toy module was edited.

The comment above a block names its steps, as in generated modules: each `self.part(`
below it is the next of these steps.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from dynaflow_dsl.runtime.fingerprint import fingerprint
from tests.runtime.toy_model import make_toy

EXECUTORS = Path(__file__).parent / "executors"


def plan_lines(text: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for number, line in enumerate(text.splitlines(), 1):
        call = re.search(r"self\.(\w+)\(([^,]+), (?:\w*?_([01])\b)?", line)
        if line.strip().startswith("def sequential"):
            break
        if call is None or call[1] not in ("before", "attn", "mlp", "after"):
            continue
        label = call[1] if call[3] is None else f"{call[1]}[{call[3]}]"
        found.append(
            {
                "first": number,
                "last": number,
                "label": label,
                "layer": call[2],
                "line": 10 + len(found),
                "column": 5,
                "text": label,
            }
        )
    return found


def module_map(name: str, text: str) -> dict[str, object]:
    model = make_toy()
    operations = [
        {
            "line": number,
            "function": "attn",
            "operation": "index_copy_",
            "module": "layers.0.attention",
            "source": "tests/runtime/toy_model.py:37: keys.index_copy_(2, slot, k)",
        }
        for number, line in enumerate(text.splitlines(), 1)
        if "index_copy_.default(keys" in line
    ]
    return {
        "format": 1,
        "module": f"{name}.py",
        "source": f"tests/{name}.dfs",
        "schedule": "000000000001",
        "graph": {"decode": "00000000000a"},
        "body": hashlib.sha256(text.encode()).hexdigest(),
        "target": {"name": "tests.runtime.toy_model:decode", "arguments": {}},
        "facts": {},
        "device": "cpu",
        "dtype": "float32",
        "model": {
            "class": "Toy",
            "tensors": {
                path: [str(one.dtype).removeprefix("torch."), list(one.shape)]
                for path, one in model.named_parameters()
            },
            "fingerprint": {
                key: value
                for key, value in fingerprint(model).items()
                if key != "torch"
            },
        },
        "lines": plan_lines(text),
        "operations": operations,
    }


if __name__ == "__main__":
    for module in sorted(EXECUTORS.glob("*.py")):
        document = module_map(module.stem, module.read_text(encoding="utf-8"))
        target = module.with_suffix(".map.json")
        target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
