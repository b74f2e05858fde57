"""Several sections of one schedule on one graph."""

from __future__ import annotations

from dynaflow_dsl.bind import Binding, Carried, Outer, Output, bind
from dynaflow_dsl.bind.model import GAP
from dynaflow_dsl.diagnostics import Diagnostic, Result
from dynaflow_dsl.resolve import resolve
from dynaflow_dsl.source import Source
from dynaflow_dsl.syntax import parse
from tests.bind.graphs import graph, held, marked, repeat
from tests.bind.machine import run_binding, run_graph

ENCODER = "e%n = relu(e%i) @ encoder.%i.x"
DECODER = """
    a%i = mul.Tensor(d%i, MEMORY) @ decoder.%i.x
    d%n = add.Tensor(a%i, d%i) @ decoder.%i.y
"""
EACH_ENCODER = "each block in .encoder.*:\n    part enc = .x\n    order:\n        enc"
EACH_DECODER = """each layer in .decoder.*:
    part cross = .x
    part own_part = .y
    order:
        cross
        own_part"""


def attempt(text: str, *sections: str) -> Result[Binding]:
    body = "\n".join(sections).replace("\n", "\n    ")
    tree = parse(Source("s.dfs", f"dfs 1\n\nschedule s:\n    {body}\n")).unwrap()
    return bind(resolve(tree).unwrap().schedules[0], graph(text))


def bound(text: str, *sections: str) -> Binding:
    binding = attempt(text, *sections).unwrap()
    assert run_binding(binding) == run_graph(binding.graph)
    return binding


def fault(text: str, *sections: str) -> Diagnostic:
    result = attempt(text, *sections)
    assert result.value is None
    (found,) = result.diagnostics
    return found


def both(memory: str, between: str = "", count: int = 3) -> str:
    encoder, decoder = repeat(ENCODER, count), repeat(DECODER, count)
    decoder = decoder.replace("MEMORY", memory)
    return f"input e0 d0\n{encoder}\n{between}\n{decoder}\nreturn d{count}"


def test_a_section_that_reads_the_one_before_in_every_iteration() -> None:
    binding = bound(both("e3"), EACH_ENCODER, EACH_DECODER)
    assert [len(s.iterations) for s in binding.sections] == [3, 3]
    enc, cross, _own = binding.parts
    assert enc.roles == (Carried("enc", 0, "e0"),)
    assert cross.roles == (Carried("own_part", 0, "d0"), Outer(("e3",) * 3))
    assert len(set(binding.variables.values())) == 3
    assert binding.gaps is None


def test_operations_between_two_sections() -> None:
    text = both("m", between="m = relu(e3) @ norm")
    binding = bound(text, EACH_ENCODER, EACH_DECODER)
    assert held(binding, GAP) == ["m"]
    assert binding.gaps is not None
    assert binding.gaps.places == ((1, 0),)


def test_a_section_that_goes_on_with_what_the_one_before_made() -> None:
    """It shares the name if nobody reads the old value again, else it has its own."""
    text = (
        both("x", between="").replace("d0", "e3").replace("input e0 e3", "input e0 x")
    )
    binding = bound(text, EACH_ENCODER, EACH_DECODER)
    names = binding.variables
    assert names[Output("enc", 0)] == names[Output("own_part", 0)]
    text = text.replace("a2 = mul.Tensor(d2, x)", "a2 = mul.Tensor(d2, e3)")
    binding = bound(text, EACH_ENCODER, EACH_DECODER)
    names = binding.variables
    assert names[Output("enc", 0)] != names[Output("own_part", 0)]


def test_sections_in_the_wrong_order() -> None:
    found = fault(both("e3"), EACH_DECODER, EACH_ENCODER)
    assert found.code == "DFS313"
    assert found.message == (
        "'each layer' reads what 'each block' makes, which runs later"
    )
    assert marked(found) == ".decoder.*"
    assert found.helps == ("write 'each block' above 'each layer'",)


def test_sections_that_interleave() -> None:
    text = """
        input h0
        a0 = relu(h0) @ encoder.0.x
        h1 = relu(a0) @ decoder.0.x
        a1 = relu(h1) @ encoder.1.x
        h2 = relu(a1) @ decoder.1.x
        return h2
    """
    each = "each layer in .decoder.*:\n    part cross = .x\n    order:\n        cross"
    found = fault(text, EACH_ENCODER, each)
    assert found.code == "DFS314"
    assert found.message == "'each block' and 'each layer' read each other's results"
    assert marked(found) == ".encoder.*"


def test_a_result_of_an_earlier_iteration_is_not_kept() -> None:
    found = fault(both("e2"), EACH_ENCODER, EACH_DECODER)
    assert found.code == "DFS205"
    assert found.message == (
        "enc differs between encoder.1 and encoder.2: what the first makes is read "
        "after the last"
    )


TOWERS = """
    input x y
    t1 = relu(x) @ text.0
    t2 = relu(t1) @ text.1
    v1 = relu(y) @ vision.0
    v2 = mul.Tensor(v1, v1) @ vision.1
    z = add.Tensor(t2, v2)
    return z
"""
BESIDE = """stream side
part text on side = .text
part vision = .vision
order:
    text | vision"""


def test_parts_of_the_whole_model() -> None:
    binding = bound(TOWERS, BESIDE)
    text, _vision = binding.parts
    assert held(binding, "text") == ["t1 t2"]
    assert text.roles == (Outer(("x",)),)
    # What the model does with their results is none of theirs.
    assert held(binding, "after") == ["z"]
    assert [i.path for i in binding.sections[0].iterations] == [""]


def test_operations_of_the_model_between_its_parts_attach() -> None:
    text = TOWERS.replace("return z", "w = relu(z) @ head\nreturn w")
    binding = bound(
        text, BESIDE.replace("order:", "part head = .head\norder:") + "\n    head"
    )
    assert held(binding, "head") == ["z w"]
    assert binding.parts[2].attached == {"z"}


def test_a_section_of_the_model_before_and_one_each() -> None:
    text = f"input x\ne0 = relu(x) @ stem\n{repeat(ENCODER, 3)}\nreturn e3"
    stem = "part stem = .stem\norder:\n    stem"
    binding = bound(text, stem, EACH_ENCODER)
    assert binding.variables[Output("stem", 0)] == binding.variables[Output("enc", 0)]
    found = fault(text, EACH_ENCODER, stem)
    assert found.code == "DFS313"
    assert found.helps == ("write the 'order' outside 'each' above 'each block'",)


def test_one_result_of_each_section() -> None:
    text = both("e3").replace("return d3", "return d3 e3")
    binding = bound(text, EACH_ENCODER, EACH_DECODER)
    assert binding.results == ("d3", "e3")
    assert binding.after is None
