"""Reads the folders of this catalogue.

A folder is a case. `schedule.dfs` is the file, `model.txt` its graph in the words of
`tests.bind.graphs`, in which the lines below `repeat N:` stand once for each layer.
`case.toml` says of it:

    kind = 1                     which of the eight kinds of docs/proof.md
    cause = "..."                what is wrong, in a few words
    report = "vllm#46990"        the public report that it is reduced from, if one
    [facts]                      facts of the model
    [capacity]                   rows of persistent inputs, by name
    [[entries]]                  entries: `name`, `dimensions` (bounds), `fixed` sizes
    [[change]]                   statements of the plan that are removed or moved, see
                                 `tests.faults.changes`

`expected.txt` is all that the compiler says; cases below `valid/` have none, since
nothing may be said of them. Operators of the namespace `engine` are those of a plug-in,
`tests.faults.engine`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dynaflow_dsl import pipeline
from dynaflow_dsl.bind import bind
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.graph.model import Graph, TracedModel
from dynaflow_dsl.plan import plan
from dynaflow_dsl.prove import prove
from dynaflow_dsl.source import Source
from tests.bind.graphs import graph, repeat
from tests.faults.changes import changed

HERE = Path(__file__).parent
WRONG = sorted(path.parent for path in HERE.glob("kind_*/*/case.toml"))
VALID = sorted(path.parent for path in HERE.glob("valid/*/case.toml"))


@dataclass(frozen=True, slots=True)
class Case:
    """One folder."""

    folder: Path
    about: dict[str, Any]

    @property
    def kind(self) -> int:
        """Which of the eight kinds of violations it is, or is a neighbour of."""
        return int(self.about["kind"])

    @property
    def cause(self) -> str:
        """What is wrong with it, in a few words."""
        return str(self.about["cause"])

    def findings(self) -> tuple[Diagnostic, ...]:
        """All that the compiler says."""
        text = (self.folder / "schedule.dfs").read_text(encoding="utf-8")
        file = pipeline.understand(Source("schedule.dfs", text))
        if file.value is None:
            return file.diagnostics
        model = self.model()
        if "change" not in self.about:
            return pipeline.check_schedules(file.value, model).diagnostics
        bound = bind(file.value.schedules[0], model.graphs[0]).unwrap()
        return prove(changed(plan(bound).unwrap(), self.about["change"])).diagnostics

    def model(self) -> TracedModel:
        """The model, with an entry `run` of any batch where none is described."""
        entries = self.about.get("entries", [{"name": "run"}])
        facts = self.about.get("facts", {})
        return TracedModel(
            target="package.module:function",
            arguments=(),
            model_class="Model",
            device="cuda",
            dtype="float32",
            captured_by="export",
            facts=tuple(sorted(facts.items())),
            fingerprint=(),
            graphs=tuple(map(self._entry, entries)),
        )

    def _entry(self, entry: dict[str, Any]) -> Graph:
        text = (self.folder / "model.txt").read_text(encoding="utf-8")
        made = graph(repeated(text))
        dimensions = made.dimensions
        if "dimensions" in entry:
            dimensions = tuple(
                (name, low, None if high < 0 else high)
                for name, (low, high) in entry["dimensions"].items()
            )
        capacity = self.about.get("capacity", {})
        return replace(
            made,
            entry=entry["name"],
            dimensions=dimensions,
            fixed=tuple(entry.get("fixed", {}).items()),
            inputs=tuple(
                replace(item, kind="persistent", capacity=capacity[item.name])
                if item.name in capacity
                else item
                for item in made.inputs
            ),
        )


def read(folder: Path) -> Case:
    """The case of a folder."""
    return Case(folder, tomllib.loads((folder / "case.toml").read_text("utf-8")))


def repeated(text: str) -> str:
    """The lines below `repeat N:` once for each layer."""
    found: list[str] = []
    inside: list[str] = []
    count = 0
    for line in [*text.splitlines(), "end"]:
        if inside and not line.startswith(" "):
            found.append(repeat("\n".join(inside), count))
            inside = []
        if line.startswith("repeat "):
            count = int(line.removeprefix("repeat ").rstrip(":"))
        elif line.startswith(" "):
            inside.append(line.strip())
        elif line != "end":
            found.append(line)
    return "\n".join(found)
