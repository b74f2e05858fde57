"""Which weights a part brings in each iteration, and who reads them there."""

from __future__ import annotations

import pytest

from dynaflow_dsl.bind import Binding, bind
from dynaflow_dsl.pipeline import understand
from dynaflow_dsl.source import Source
from tests.bind.graphs import graph, held, part

MODEL = """
    input h0
    weight embed.w:fixed
    weight layers.0.a.w:fixed layers.0.a.v:fixed layers.0.b.w:fixed
    weight layers.1.a.w:fixed layers.1.b.w:fixed layers.1.b.c.w:fixed
    buffer layers.0.a.mask:fixed layers.1.a.mask:fixed
    e = mul.Tensor(h0, embed.w) @ embed
    m0 = mul.Tensor(e, layers.0.a.mask) @ layers.0.a
    n0 = mul.Tensor(m0, layers.0.a.v) @ layers.0.a
    a0 = mul.Tensor(n0, layers.0.a.w) @ layers.0.a
    h1 = mul.Tensor(a0, layers.0.b.w) @ layers.0.b
    m1 = mul.Tensor(h1, layers.1.a.mask) @ layers.1.a
    a1 = mul.Tensor(m1, layers.1.a.w) @ layers.1.a
    b1 = mul.Tensor(a1, layers.1.b.w) @ layers.1.b
    c1 = mul.Tensor(b1, layers.1.b.c.w) @ layers.1.b.c
    return c1
"""


def bound(selector: str, more: str = "") -> Binding:
    text = f"""dfs 1

schedule s:
    stream copy
    each layer in .layers.*:
        part fetch on copy = weights in {selector}
        {more or "part body = .a + .b"}
        order:
            fetch | prev.body
"""
    schedule = understand(Source("s.dfs", text)).unwrap().schedules[0]
    return bind(schedule, graph(MODEL)).unwrap()


def brought(binding: Binding) -> list[list[str]]:
    """What each layer brings, relative to the layer."""
    return [
        [name.removeprefix(f"layers.{i}.") for name in instance.parameters]
        for i, instance in enumerate(part(binding, "fetch").instances)
    ]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (".", [["a.w", "a.v", "b.w"], ["a.w", "b.w", "b.c.w"]]),
        (".a", [["a.w", "a.v"], ["a.w"]]),
        ("(.a + .b)", [["a.w", "a.v", "b.w"], ["a.w", "b.w", "b.c.w"]]),
        ("(. - .a)", [["b.w"], ["b.w", "b.c.w"]]),
        ("(.b.c or .a)", [["a.w", "a.v"], ["b.c.w"]]),
        (".?", [["a.w", "a.v", "b.w"], ["a.w", "b.w", "b.c.w"]]),
    ],
)
def test_paths_name_parameters_and_no_buffers(
    selector: str, names: list[list[str]]
) -> None:
    assert brought(bound(selector)) == names


def test_the_parts_are_as_without_it_and_know_who_brings() -> None:
    binding = bound(".a")
    (section,) = binding.sections
    assert [one.name for one in section.parts] == ["fetch", "body"]
    assert held(binding, "fetch") == ["", ""]
    assert held(binding, "body") == ["m0 n0 a0 h1", "m1 a1 b1 c1"]
    assert [one.fetches for one in section.parts] == [True, False]
    body = part(binding, "body")
    assert [instance.brought_by for instance in body.instances] == [("fetch",)] * 2
    assert binding.before is not None
    assert binding.before.instances[0].brought_by == ()


def test_layers_with_other_weights_are_kinds_of_their_own() -> None:
    fetch = part(bound("."), "fetch")
    assert [instance.body for instance in fetch.instances] == [0, 1]
    assert [body.example for body in fetch.bodies] == [0, 1]
