"""Modules inside one part that do the same are a function called in a loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import Graph, Node
from torch.fx.proxy import GraphAppendingTracer, Proxy

from dynaflow_dsl.emit import inside
from dynaflow_dsl.models import clip, deepseek_v3, dit, gemma3, gpt2, llama, mamba, t5
from dynaflow_dsl.runtime import Executor, inductor
from dynaflow_dsl.runtime import compile as compiling
from dynaflow_dsl.runtime.weights import model_tensors, part_weights, record
from dynaflow_dsl.trace import Entry, TraceSpec
from tests.emit.formatting import formatted
from tests.end_to_end.building import Built, build, run_verify

BRANCHES = Path(__file__).parents[2] / "schedules" / "clip" / "branches.dfs"

WHOLE = """dfs 1

schedule whole:
    stream side

    part body on side = {selector}

    order:
        body
"""


def two(
    spec: TraceSpec, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Built, Built]:
    """The module as it is written, and with every operation where it runs."""
    (folder / "flat").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(inside, "find_runs", lambda *_: ())
        flat = build(spec, text, folder / "flat")
    assert "Modules(" not in flat.compiled.text
    return build(spec, text, folder), flat


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    else:
        for one in value:
            yield from tensors(one)


def copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    return [copied(one) for one in value]


def check_equal(looped: Built, flat: Built, **options: Any) -> None:
    """The same bits: results, and caches that a step writes."""
    loaded = [made.module.load(made.spec.model, **options) for made in (looped, flat)]
    for entry in looped.spec.entries.values():
        given = entry.arguments({"batch": 3})
        seen = []
        for executor in loaded:
            mine = copied(given)
            results = executor(*mine)
            seen.append([*tensors(results), *tensors(mine)])
        for one, other in zip(*seen, strict=True):
            assert torch.equal(one, other)


def wired(built: Built, part: str) -> list[object]:
    """Operators of a part's text in the order in which they run, and what each reads.

    This is what Inductor gets, but for sizes, which a loop reads off other tensors.
    """
    (executor,) = (
        one
        for one in vars(built.module).values()
        if isinstance(one, type) and issubclass(one, Executor) and one is not Executor
    )
    described = executor.parts()[part]
    (weights,) = part_weights(
        part, described, model_tensors(built.spec.model), built.compiled.name
    )
    paths = described.paths(0)
    graph = Graph()
    tracer = GraphAppendingTracer(graph)
    made = {
        name: Proxy(graph.placeholder(f"w{k}"), tracer)
        for k, name in enumerate(weights)
    }
    named: dict[Node, object] = {
        proxy.node: paths[name] for name, proxy in made.items()
    }
    function = described.function(0)
    count = function.__code__.co_argcount - 1
    given = [Proxy(graph.placeholder(f"input_{k}"), tracer) for k in range(count)]
    function(record(made), *given)
    operators = [n for n in graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
    numbers = {node: k for k, node in enumerate(operators)}

    def spelled(value: Any) -> object:
        if isinstance(value, Node):
            return named.get(value, numbers.get(value, value.name))
        if isinstance(value, list | tuple):
            return [spelled(one) for one in value]
        return repr(value)

    def is_size(value: Any) -> bool:
        return isinstance(value, Node) and "getitem" in value.name

    return [
        (
            str(node.target),
            [
                "sizes"
                if isinstance(one, list) and any(map(is_size, one))
                else "size or result"
                if is_size(one)
                else spelled(one)
                for one in node.args
            ],
        )
        for node in operators
    ]


WHOLE_MODELS: dict[str, tuple[Callable[..., TraceSpec], str, int, int]] = {
    "llama": (llama.decode, ".model", 5, 1),
    "masks in turn": (gemma3.decode, ".model", 6, 1),
    "a first layer of its own": (deepseek_v3.decode, ".model", 4, 1),
    "gpt2": (gpt2.decode, ".transformer", 3, 1),
    "what the first layer makes, all read": (t5.encode, ".encoder", 4, 1),
    "states": (mamba.decode, ".backbone", 3, 1),
    "views leave layers": (dit.denoise, ".transformer_blocks.*", 4, 1),
}


@pytest.mark.parametrize("name", WHOLE_MODELS)
@torch.no_grad()
def test_models_in_one_part(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, selector, layers, functions = WHOLE_MODELS[name]
    spec = target(layers=layers)
    text = WHOLE.format(selector=selector)
    looped, flat = two(spec, text, tmp_path, monkeypatch)
    written = looped.compiled.text
    assert formatted(written) == written
    loops = json.loads(looped.compiled.map)["loops"]
    assert len(loops[-1]["modules"]) in (layers, layers - 1)
    assert written.count("in a loop: ") == functions
    assert wired(looped, "body") == wired(flat, "body")
    check_equal(looped, flat, compile=False)


def test_lines_do_not_grow_with_layers(tmp_path: Path) -> None:
    """CLIP-L has 12 layers in its texts' tower and 24 in that of images."""
    text = BRANCHES.read_text(encoding="utf-8")
    lines = []
    for layers in (3, 24):
        folder = tmp_path / str(layers)
        folder.mkdir()
        made = build(clip.both(layers=layers), text, folder)
        assert f"for i in range({layers}):" in made.compiled.text
        lines.append(made.compiled.text.count("\n"))
    assert lines[0] == lines[1] < 500


@pytest.mark.slow
def test_a_part_with_loops_is_compiled_once_and_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = BRANCHES.read_text(encoding="utf-8")
    looped, flat = two(clip.both(layers=3), text, tmp_path, monkeypatch)
    count = 0
    real = inductor.compile_graph

    def counted(*arguments: Any) -> bytes:
        nonlocal count
        count += 1
        return real(*arguments)

    monkeypatch.setattr(compiling, "compile_graph", counted)
    check_equal(looped, flat, cache=tmp_path / "cache")
    assert count == 2 * 2
    for report in run_verify(looped, batches=(1, 3), compiled=True):
        assert report.ok, str(report)


class Block(nn.Module):
    """A residual block; `wide` ones run other operations."""

    def __init__(self, size: int, wide: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.up = nn.Linear(size, 2 * size)
        self.down = nn.Linear(2 * size, size)
        self.wide = wide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.up(self.norm(x))
        if self.wide:
            hidden = torch.sigmoid(hidden) + torch.tanh(hidden)
        down: torch.Tensor = self.down(torch.relu(hidden))
        return x + down


class Tower(nn.Module):
    """Blocks, and which of their results `forward` returns beside the last."""

    def __init__(self, blocks: Sequence[nn.Module], kept: Sequence[int] = ()) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.kept = tuple(kept)

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        kept = []
        for k, block in enumerate(self.blocks):
            x = block(x)
            if k in self.kept:
                kept.append(x)
        return (x, *kept) if kept else x


class Model(nn.Module):
    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        self.tower = tower

    def forward(self, x: torch.Tensor) -> Any:
        return self.tower(x)


def of(tower: nn.Module) -> TraceSpec:
    torch.manual_seed(0)
    return TraceSpec(
        model=Model(tower).eval(),
        entries={"run": Entry(lambda sizes: (torch.randn(sizes["batch"], 8),))},
        dims={"x": ("batch", None)},
        dimensions={"batch": (1, None)},
    )


def loops_of(built: Built) -> list[list[str]]:
    """The numbers of the modules of each loop."""
    document = json.loads(built.compiled.map)
    return [
        [path.rpartition(".")[2] for path in loop["modules"]]
        for loop in document.get("loops", [])
    ]


def kinds(pattern: str) -> list[nn.Module]:
    return [Block(8, wide=letter == "w") for letter in pattern]


class Nested(nn.Module):
    """Stages that differ, of blocks that do not."""

    def __init__(self) -> None:
        super().__init__()
        stages = [nn.Sequential(*kinds("nnn")), Tower(kinds("wwww"))]
        self.stages = nn.ModuleList(stages)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages:
            x = stage(x)
        return x


class Tied(nn.Module):
    """Blocks that read one tensor of the model which is none of theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8))
        self.blocks = nn.ModuleList(kinds("nnnn"))
        for block in self.blocks:
            assert isinstance(block, Block)
            block.norm.weight = self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x * self.scale


LONG = "".join(map(str, range(27)))

TOWERS: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "equal": (lambda: Tower(kinds("nnnn")), ["0123"]),
    "two kinds in turn": (lambda: Tower(kinds("nwnwnw")), ["012345"]),
    "one in the middle": (lambda: Tower(kinds("nnnwnnn")), ["0123456"]),
    "others at the ends": (lambda: Tower(kinds("wnnnnw")), ["012345"]),
    "another first": (lambda: Tower(kinds("wnnnn")), ["1234"]),
    "another last": (lambda: Tower(kinds("nnnw")), ["012"]),
    "no period": (lambda: Tower(kinds("nnwnwwnnnwnwwwnwnnwnwnnwnnn")), [LONG]),
    "no two alike": (lambda: Tower(kinds("nw")), []),
    "a single one": (lambda: Tower(kinds("n")), []),
    "an early result is kept": (lambda: Tower(kinds("nnnnnn"), [2]), ["012", "345"]),
    "too short to be worth it": (lambda: Tower(kinds("nn")), []),
    "all results are kept": (lambda: Tower(kinds("nnn"), [0, 1]), []),
    "stages of blocks": (Nested, ["012", "0123"]),
    "a tensor that is shared": (Tied, ["0123"]),
    "a sequential": (lambda: nn.Sequential(*kinds("nnn")), ["012"]),
}


@pytest.mark.parametrize("name", TOWERS)
@torch.no_grad()
def test_towers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, expected = TOWERS[name]
    spec = of(make())
    text = WHOLE.format(selector=".tower")
    looped, flat = two(spec, text, tmp_path, monkeypatch)
    assert formatted(looped.compiled.text) == looped.compiled.text
    assert ["".join(numbers) for numbers in loops_of(looped)] == expected
    assert wired(looped, "body") == wired(flat, "body")
    check_equal(looped, flat, compile=False)


class Stages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(Tower(kinds("nnn")) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages:
            x = stage(x)
        return x


def test_loops_in_parts_of_an_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights of each layer's modules are found by two numbers."""
    text = """dfs 1

schedule stages:
    stream side

    each stage in .tower.stages.*:
        part every on side = .blocks

        order:
            every
"""
    looped, flat = two(of(Stages()), text, tmp_path, monkeypatch)
    assert formatted(looped.compiled.text) == looped.compiled.text
    assert '"tower.stages.{}.blocks.{}.up.weight"' in looped.compiled.text
    check_equal(looped, flat, compile=False)
    for report in run_verify(looped, batches=(1, 3)):
        assert report.ok, str(report)


def test_what_runs_before_the_parts_has_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = WHOLE.format(selector=".tower.blocks.5")
    looped, flat = two(of(Tower(kinds("nnnnnwnnn"))), text, tmp_path, monkeypatch)
    assert loops_of(looped) == [list("01234"), list("678")]
    assert "def before_blocks(" in looped.compiled.text
    assert "def after_blocks(" in looped.compiled.text
    check_equal(looped, flat, compile=False)


def test_an_error_names_the_module_that_was_running(tmp_path: Path) -> None:
    spec = of(Tower(kinds("nnnn")))
    made = build(spec, WHOLE.format(selector=".tower"), tmp_path)
    executor = made.module.load(spec.model, compile=False)
    weights = executor.body.__closure__[0].cell_contents[0].args[0]
    weights.blocks[2].up = torch.zeros(3, 3)
    with pytest.raises(RuntimeError) as caught:
        executor(torch.randn(2, 8))
    assert any("in body" in note for note in caught.value.__notes__)
    assert "in module tower.blocks.2" in caught.value.__notes__
