"""Schedules over one two-part or three-part model, and the modules made of them."""

from __future__ import annotations

from dataclasses import dataclass

from dynaflow_dsl.bind import bind
from dynaflow_dsl.emit import Module, emit
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.pipeline import understand
from dynaflow_dsl.plan import plan
from dynaflow_dsl.plan.model import Plan
from dynaflow_dsl.prove.model import ProvedPlan
from dynaflow_dsl.resolve.model import ScheduleFile
from dynaflow_dsl.source import Source
from tests.bind.graphs import graph, repeat
from tests.plan.layered import Layered, Read, Shape, binding_of, file_of, traced

CARRIED = Read("mlp", carried=True)

# attn writes its cache; mlp adds to what the layers carry.
TWO = Layered(
    (
        Shape("attn", (CARRIED,), cache="w"),
        Shape("mlp", (CARRIED, Read("attn"))),
    ),
    layers=4,
    results=(),
    head=(("mlp", 0),),
)
BARE = Layered(TWO.shapes, layers=4, results=(("mlp", 0),), embed=False)
SUMS = Layered(
    (TWO.shapes[0], Shape("mlp", (CARRIED, Read("attn")), summed=True)),
    layers=3,
    results=(("mlp", 0),),
)
THREE = Layered(
    (
        Shape("attn", (Read("down", carried=True),), cache="w"),
        Shape("gate", (Read("down", carried=True), Read("attn")), outputs=2),
        Shape("down", (Read("gate", 0), Read("gate", 1), Read("attn"))),
    ),
    layers=4,
    results=(),
    head=(("down", 0),),
)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A schedule with its plan, and how to write a changed plan as a module."""

    file: ScheduleFile
    model: TracedModel
    plan: Plan

    def text(self, changed: Plan | None = None) -> str:
        return self._module(changed or self.plan).text

    def map(self) -> str:
        return self._module(self.plan).map

    def _module(self, plan: Plan) -> Module:
        return emit([ProvedPlan(plan, 0, ())], self.file, "s", "s.dfs", self.model)


def scheduled(
    model: Layered,
    on: dict[str, str | list[str]],
    pieces: int | str,
    timeline: str,
    *streams: str,
) -> Scheduled:
    file = file_of(model, on, pieces, timeline, streams)
    return Scheduled(file, traced(model), plan(binding_of(file, model)).unwrap())


def stagger(*stages: str, by: int = 1) -> str:
    return f"stagger mb by {by}:\n" + "\n".join(f"    {stage}" for stage in stages)


def order(*windows: str) -> str:
    return "order:\n" + "\n".join(f"    {window}" for window in windows)


def schedules() -> dict[str, Scheduled]:
    """One of each kind."""
    halves = stagger("attn", "mlp")
    return {
        "halves": scheduled(TWO, {"attn": "side"}, 2, halves, "side"),
        "halves, mlp aside": scheduled(TWO, {"mlp": "side"}, 2, halves, "side"),
        "a half on each": scheduled(
            TWO, {"attn": ["main", "side"], "mlp": ["main", "side"]}, 2, halves, "side"
        ),
        "halves that are joined by a copy": scheduled(
            SUMS, {"mlp": "side"}, 2, halves, "side"
        ),
        "bare halves": scheduled(BARE, {"mlp": "side"}, 2, halves, "side"),
        "three uneven pieces": scheduled(
            THREE,
            {"attn": "left", "gate": "right"},
            "[3, 2, 1]",
            stagger("attn", "gate", "down"),
            "left",
            "right",
        ),
        "four pieces": scheduled(
            TWO,
            {"attn": "side"},
            4,
            order(
                "attn[0] | prev.mlp[3]",
                "attn[1] | mlp[0]",
                "attn[2] | mlp[1]",
                "attn[3] | mlp[2]",
            ),
            "side",
        ),
        "no split": scheduled(
            THREE, {"gate": "side"}, 1, order("attn", "gate", "down"), "side"
        ),
        "no split, last aside": scheduled(
            BARE, {"mlp": "side"}, 1, order("attn", "mlp"), "side"
        ),
        "three streams": scheduled(
            THREE,
            {"attn": "left", "gate": "right"},
            2,
            order(
                "attn[0] | prev.gate[1]",
                "prev.down[1]",
                "gate[0] | attn[1]",
                "down[0]",
            ),
            "left",
            "right",
        ),
    }


def written(graph_text: str, schedule: str) -> Scheduled:
    """A schedule as a file has it, for a graph in the words of `tests.bind.graphs`."""
    file = understand(Source("s.dfs", f"dfs 1\n\nschedule s:\n{schedule}")).unwrap()
    model = TracedModel(
        target="a:b",
        arguments=(),
        model_class="Model",
        device="cpu",
        dtype="float32",
        captured_by="export",
        facts=(),
        fingerprint=(),
        graphs=(graph(graph_text),),
    )
    bound = bind(file.schedules[0], model.graphs[0]).unwrap()
    return Scheduled(file, model, plan(bound).unwrap())


LAYER = """
    a%i = relu(h%i) @ layers.%i.a
    h%n = add.Tensor(a%i, h%i) @ layers.%i.b
"""


def gapped(count: int, *gaps: int) -> str:
    """Layers, before some of which something else replaces what they hand on."""
    text = f"input h0\n{repeat(LAYER, count)}\nz = relu(h{count}) @ head\nreturn z"
    for i in gaps:
        text = text.replace(f"(h{i})", f"(g{i})").replace(f", h{i})", f", g{i})")
        text = text.replace(f"a{i} =", f"g{i} = relu(h{i}) @ bridge.{i}\na{i} =")
    return text


LAYERS = """    stream side
    split batch into {pieces} as mb
    each layer in .layers.*:
        part a on side = .a
        part b = .b
        {timeline}
"""
STAGGERED = "stagger mb by 1:\n            a\n            b"
TRANSLATOR = """
    input e0 d0
    e1 = relu(e0) @ encoder.0
    e2 = relu(e1) @ encoder.1
    m = relu(e2) @ norm
    c0 = mul.Tensor(d0, m) @ decoder.0.c
    d1 = relu(c0) @ decoder.0.d
    c1 = mul.Tensor(d1, m) @ decoder.1.c
    d2 = relu(c1) @ decoder.1.d
    c2 = mul.Tensor(d2, m) @ decoder.2.c
    d3 = relu(c2) @ decoder.2.d
    return d3
"""
TRANSLATE = """    stream side
    split batch into 2 as mb
    each block in .encoder.*:
        part enc on side = .
        order:
            enc
    each layer in .decoder.*:
        part cross = .c
        part out on side = .d
        stagger mb by 1:
            cross
            out
"""
TOWERS = (
    """
    input x
    u = relu(x) @ left
    v = relu(x) @ right
    h0 = add.Tensor(u, v) @ join
"""
    + repeat(LAYER, 3)
    + "\nreturn h3"
)
TOWER = """    stream side
    split batch into 2 as mb
    part left on side = .left
    part right = .right
    part join = .join
    order:
        left | right
        join
    each layer in .layers.*:
        part a on side = .a
        part b = .b
        stagger mb by 1:
            a
            b
"""


def forms() -> dict[str, Scheduled]:
    """Sections, gaps, and parts that take all pieces."""
    joined = "order:\n            a\n            b[*]"
    both = "order:\n            a[*]\n            b[*]"
    return {
        "a gap before each layer": written(
            gapped(4, 1, 2, 3), LAYERS.format(pieces=2, timeline=STAGGERED)
        ),
        "gaps before some layers": written(
            gapped(5, 1, 2, 4), LAYERS.format(pieces="[2, 1]", timeline=STAGGERED)
        ),
        "a decoder that reads an encoder": written(TRANSLATOR, TRANSLATE),
        "towers before layers": written(TOWERS, TOWER),
        "a part over all pieces": written(
            gapped(3), LAYERS.format(pieces=2, timeline=joined)
        ),
        "all parts over all pieces": written(
            gapped(3, 2), LAYERS.format(pieces=2, timeline=both)
        ),
    }


WEIGHTED = """
    a%i = mul.Tensor(h%i, layers.%i.a.w) @ layers.%i.a
    b%i = mul.Tensor(a%i, layers.%i.b.w) @ layers.%i.b
    h%n = add.Tensor(b%i, h%i) @ layers.%i.c
"""


def weighted(count: int) -> str:
    """Layers of three modules, two of which have weights."""
    names = (f"layers.{i}.{part}.w:fixed" for i in range(count) for part in "ab")
    weights = "\n".join(f"weight {name}" for name in names)
    layers = repeat(WEIGHTED, count)
    return f"input h0\n{weights}\n{layers}\nreturn h{count}"


def fetching() -> dict[str, Scheduled]:
    """Weights that are brought to buffers, on a stream of their own and on others."""
    ahead = """    stream copy
    each layer in .layers.*:
        part fetch on copy = weights in .
        part body = rest
        order:
            fetch | prev.body
"""
    apart = """    stream copy
    stream side
    each layer in .layers.*:
        part bring_a on copy = weights in .a
        part bring_b on copy = weights in .b
        part a = .a
        part b on side = .b
        part c = .c
        order:
            bring_a | prev.b
            bring_b | prev.c
            a
"""
    halves = """    stream copy
    stream side
    split batch into 2 as mb
    each layer in .layers.*:
        part fetch on copy = weights in .
        part a on side = .a
        part b = rest
        order:
            fetch | prev.b[1]
            a[0]
            a[1] | b[0]
"""
    behind = """    stream side
    each layer in .layers.*:
        part fetch = weights in (. - .a)
        part a on side = .a
        part b = rest
        order:
            a | fetch
            b
"""
    return {
        "weights a layer ahead": written(weighted(5), ahead),
        "weights a layer ahead, two layers": written(weighted(2), ahead),
        "two parts that bring weights": written(weighted(4), apart),
        "weights for halves": written(weighted(5), halves),
        "weights on main": written(weighted(4), behind),
    }


SCHEDULED_HALVES = schedules()["halves"]
SHORT = ("halves", "three uneven pieces", "no split, last aside")
