"""Modules that choose by size: what runs, what is shared, what is compiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl.runtime import Executor, InputError, Selected
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.emit.models import llama_spec
from tests.end_to_end.building import Built, build, run_verify

SCHEDULE = """
schedule pieces(ways = 2, tile = 1):
    stream side
    split batch into ways as half (align = tile)
    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest
        stagger half by 1:
            attn
            mlp
"""


def text(*lines: str, head: str = "select pick:") -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"dfs 1\n\n# By size.\n{head}\n{body}\n{SCHEDULE}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    lines = (
        "when phase == prefill and batch * seq >= 24: pieces(ways = 2)",
        "when phase == decode and batch >= 6: pieces(ways = 3)",
        "when phase == decode and batch in [2, 3, 4]: pieces",
        "else: sequential",
    )
    return build(llama_spec(2), text(*lines), tmp_path_factory.mktemp("select"))


def loaded(built: Built, **options: Any) -> Any:
    return built.module.load(built.spec.model, compile=False, **options)


def arguments(spec: TraceSpec, entry: str, batch: int) -> tuple[Any, ...]:
    torch.manual_seed(batch)
    return spec.entries[entry].arguments({"batch": batch})


def test_the_module_says_what_it_chooses(built: Built) -> None:
    assert built.compiled.name == "pick"
    assert built.module.__doc__ == "By size."
    choose = built.module.choose_decode
    assert choose(6) is built.module.PiecesWays3Decode.step
    assert choose(5) is built.module.PiecesDecode.sequential
    assert choose(4) is built.module.PiecesDecode.step
    assert choose(1) is built.module.PiecesDecode.sequential
    assert built.module.choose_prefill(4) is built.module.PiecesPrefill.step
    # A schedule that prefill never runs has no class for it.
    assert not hasattr(built.module, "PiecesWays3Prefill")
    assert (
        "# (not in prefill) when phase == decode and batch >= 6" in built.compiled.text
    )
    select = json.loads(built.compiled.map)["select"]
    assert select["entries"]["decode"]["lines"] == [1, 2, 3]


def test_a_step_runs_what_its_size_chooses(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    run = Executor.run

    def noted(self: Executor, *given: Any, **named: Any) -> Any:
        way = "sequential" if named.get("sequential") else self.schedule
        ran.append(f"{self.entry} {way}")
        return run(self, *given, **named)

    monkeypatch.setattr(Executor, "run", noted)
    steps = loaded(built)
    for entry, batch in (("decode", 1), ("decode", 4), ("decode", 6), ("prefill", 4)):
        given = arguments(built.spec, entry, batch)
        with torch.no_grad():
            expected = built.spec.adapted()(*arguments(built.spec, entry, batch))
        made = getattr(steps, entry)(*given)
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)
    assert ran == [
        "decode sequential",
        "decode pieces",
        "decode pieces_ways_3",
        "prefill pieces",
    ]
    assert steps.decode.choice(batch=6) == "pieces_ways_3"
    assert steps.decode.choice(batch=5) == "sequential"
    with pytest.raises(InputError):
        steps.decode(*arguments(built.spec, "decode", 2)[:-1])


def test_every_chosen_schedule_equals_the_reference(built: Built) -> None:
    schedules = [b.schedule.name for b in built.compiled.bindings]
    assert sorted(schedules) == ["pieces", "pieces", "pieces_ways_3"]
    reports = []
    for binding in built.compiled.bindings:
        options = {"schedule": binding.schedule.name}
        only = Built(
            built.spec,
            type(built.compiled)(
                built.compiled.name, "", "", built.compiled.plans, (binding,)
            ),
            built.module,
            built.folder,
            built.exported,
        )
        reports += run_verify(only, batches=(3, 6), **options)
    assert [report.ok for report in reports] == [True] * 3


def test_executors_share_weights_and_functions(built: Built) -> None:
    steps = loaded(built)
    assert isinstance(steps.decode, Selected)
    functions = [
        part.body
        for executor in steps.decode.executors.values()
        for part in executor.parts().values()
    ]
    # Both cut layers alike: `before`, `attn`, `mlp` and `after` are there once.
    assert len(functions) == 8
    assert len(set(functions)) == 4


@pytest.mark.slow
def test_equal_parts_are_compiled_once(built: Built, tmp_path: Path) -> None:
    from dynaflow_dsl.runtime import compile as compiling

    made: list[str] = []
    compile_graph = compiling.compile_graph

    def counted(*given: Any) -> Any:
        made.append("part")
        return compile_graph(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "compile_graph", counted)
        steps = built.module.load(built.spec.model, cache=tmp_path)
    assert len(made) == len(list(tmp_path.glob("*.part")))
    given = arguments(built.spec, "decode", 6)
    with torch.no_grad():
        expected = built.spec.adapted()(*arguments(built.spec, "decode", 6))
    torch.testing.assert_close(steps.decode(*given), expected, rtol=1e-4, atol=1e-4)


def test_an_entry_may_be_sequential_alone(tmp_path: Path) -> None:
    lines = ("when phase == prefill: pieces", "else: sequential")
    built = build(llama_spec(2), text(*lines), tmp_path)
    assert built.module.choose_decode(9) is built.module.SequentialDecode.sequential
    given = arguments(built.spec, "decode", 3)
    with torch.no_grad():
        expected = built.spec.adapted()(*arguments(built.spec, "decode", 3))
    made = loaded(built).decode(*given)
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)
    assert loaded(built).prefill.choice(batch=1) == "sequential"


class Branches(nn.Module):
    """Inputs of one column go through layers of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = (
            nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2))
            for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.narrow if x.shape[1] == 1 else self.wide:
            x = layer(x)
        return x


def test_a_sequential_entry_may_run_none_of_the_layers(tmp_path: Path) -> None:
    spec = TraceSpec(
        model=Branches().eval(),
        entries={
            name: Entry(lambda s, n=columns: (torch.randn(s["batch"], n, 4),))
            for name, columns in (("wide", 3), ("narrow", 1))
        },
        dims={"x": ("batch", None, None)},
        dimensions={"batch": (1, 64)},
    )
    lines = ("when phase == wide: pieces", "else: sequential")
    cut = text(*lines).replace(".model.layers", ".wide")
    cut = cut.replace(".input_layernorm + .self_attn", ".0")
    built = build(spec, cut, tmp_path)
    x = torch.randn(5, 1, 4)
    steps = built.module.load(spec.model, compile=False)
    torch.testing.assert_close(steps.narrow(x), spec.model(x))


def test_decimals_are_exact(tmp_path: Path) -> None:
    lines = (
        "when phase == decode and batch * 0.1 >= 0.3: pieces",
        "else: sequential",
    )
    built = build(llama_spec(2), text(*lines), tmp_path)
    assert "Fraction(1, 10)" in built.compiled.text
    assert built.module.choose_decode(3) is built.module.PiecesDecode.step
    assert built.module.choose_decode(2) is built.module.PiecesDecode.sequential


def test_the_environment_still_makes_everything_sequential(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFSC_SEQUENTIAL", "1")
    step = loaded(built).decode
    executor = step.executors["pieces"]

    def never(*_: Any) -> Any:
        raise AssertionError("this step is sequential")

    executor.step = never
    step(*arguments(built.spec, "decode", 4))
