import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynaflow_dsl.graph.digest import graph_digest
from dynaflow_dsl.graph.model import TracedModel
from dynaflow_dsl.graph.snapshot import dump_snapshot, parse_snapshot
from tests.graph.sample import sample, traced_models


def data() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(dump_snapshot(sample()))
    return loaded


def problem(content: object) -> str:
    """What is wrong with a snapshot of this JSON."""
    text = content if isinstance(content, str) else json.dumps(content)
    result = parse_snapshot(text, "m.graph.json")
    assert result.value is None
    (diagnostic,) = result.diagnostics
    assert diagnostic.code == "DFS112"
    assert diagnostic.primary is None
    assert "\n" not in diagnostic.message
    assert diagnostic.message.startswith("'m.graph.json' is no snapshot")
    return diagnostic.message.partition(" reads: ")[2]


def test_a_model_comes_back_from_its_snapshot() -> None:
    assert parse_snapshot(dump_snapshot(sample()), "m").unwrap() == sample()


@given(traced_models())
@settings(max_examples=60, deadline=None)
def test_any_model_comes_back_from_its_snapshot(model: TracedModel) -> None:
    text = dump_snapshot(model)
    back = parse_snapshot(text, "m").unwrap()
    assert back == model
    assert dump_snapshot(back) == text
    for left, right in zip(back.graphs, model.graphs, strict=True):
        assert graph_digest(left) == graph_digest(right)


def test_sizes_that_never_change_come_back() -> None:
    graph, *others = sample().graphs
    model = replace(sample(), graphs=(replace(graph, fixed=(("seq", 16),)), *others))
    assert parse_snapshot(dump_snapshot(model), "m").unwrap() == model
    assert '"fixed"' not in dump_snapshot(sample())
    for fixed, said in (
        ({"seq": 0}, "fixed: seq is 0, which is no size"),
        ({"seq": True}, "fixed: seq is True, which is no size"),
        ({"a b": 2}, "fixed: 'a b' is no name for a size of every step"),
        ({graph.dimensions[0][0]: 2}, "is no name for a size of every step"),
    ):
        content = data()
        content["graphs"][0]["fixed"] = fixed
        assert said in problem(content)


def test_phases_and_what_is_disjoint_come_back() -> None:
    graph, *others = sample().graphs
    inputs = tuple(
        replace(item, disjoint=True) if item.kind == "persistent" else item
        for item in graph.inputs
    )
    dimension = graph.dimensions[0][0]
    named = ((dimension, ("decode", "prefill")),)
    changed = replace(graph, inputs=inputs, phases=named)
    model = replace(sample(), graphs=(changed, *others))
    text = dump_snapshot(model)
    assert parse_snapshot(text, "m").unwrap() == model
    assert any(item.disjoint for item in inputs)
    for word in ('"phases"', '"disjoint"'):
        assert word in text
        assert word not in dump_snapshot(sample())
    assert graph_digest(changed) != graph_digest(graph)
    for phases, said in (
        ({"rows": ["a", "b"]}, "phases: 'rows' is no dimension with phases"),
        ({dimension: ["a"]}, f"phases: '{dimension}' is no dimension with phases"),
        ({dimension: ["a", "a"]}, f"phases.{dimension}: 'a' is there twice"),
        ({dimension: ["a", dimension]}, f"'{dimension}' is no name for rows of"),
        ({dimension: ["a", "b c"]}, "phases: 'b c' is no name for rows of"),
    ):
        content = data()
        content["graphs"][0]["phases"] = phases
        assert said in problem(content)
    content = data()
    for item in content["graphs"][0]["inputs"]:
        if item["kind"] == "parameter":
            item["disjoint"] = True
    assert "only arguments of a step are disjoint" in problem(content)


def test_each_operation_has_a_line_of_its_own() -> None:
    text = dump_snapshot(sample())
    assert text.endswith("}\n")
    assert text.isascii()
    for operation in sample().graphs[0].operations:
        (line,) = [
            line
            for line in text.splitlines()
            if f'"name": "{operation.name}", ' in line
        ]
        assert json.loads(line.strip().rstrip(","))["call"] == operation.operator


def test_an_operation_more_changes_no_other_line() -> None:
    model = sample()
    before = dump_snapshot(model).splitlines()
    content = data()
    graph = content["graphs"][0]
    graph["operations"].insert(
        0,
        {
            "name": "extra",
            "call": "aten.relu.default",
            "arguments": ["%x"],
            "results": [["extra", "float32[batch, 4]"]],
            "module": "",
        },
    )
    after = dump_snapshot(parse_snapshot(json.dumps(content), "m").unwrap())
    (added,) = [line for line in after.splitlines() if line not in before]
    assert '"name": "extra"' in added
    assert len(after.splitlines()) == len(before) + 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
@settings(max_examples=50, deadline=None)
def test_any_json_is_refused(content: object) -> None:
    problem(json.dumps(content))


@given(st.text(max_size=40))
@settings(max_examples=50, deadline=None)
def test_any_text_is_refused(text: str) -> None:
    problem(text)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_part_may_be_anything(draw: st.DataObject) -> None:
    content: Any = data()
    place = content
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = draw.draw(st.sampled_from(list(keys)))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or draw.draw(st.booleans()):
            break
        place = inner
    place[key] = draw.draw(JSON)
    result = parse_snapshot(json.dumps(content), "m")
    assert (result.value is None) == bool(result.diagnostics)
    if result.value is not None:
        assert parse_snapshot(dump_snapshot(result.value), "m").value == result.value


BAD_TEXTS = {
    "": "line 1, column 1",
    "{": "line 1, column 2",
    "[" * 100_000: "nested too deeply",
    "1" * 10_000: "4300 digits",
    '{"format": NaN}': "NaN is no JSON number",
    "[]": "it is not an object",
    "\ud800": "line 1, column 1",
}


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_what_is_no_json_is_refused(text: str) -> None:
    assert BAD_TEXTS[text] in problem(text)


OPERATION = "graphs[0]: operations[1]: "
BAD_FIELDS: list[tuple[list[str | int], object, str]] = [
    (["format"], 1, "its format is 1, not 2"),
    (["format"], True, "'format' is not of type int"),
    (["target"], None, "'target' is not of type str"),
    (["extra"], 1, "'extra' is unknown"),
    (["facts", "n"], None, "facts.n: it is no number, string or truth value"),
    (["fingerprint", "torch"], 2, "fingerprint.torch: it is no string"),
    (
        ["graphs", 0, "dimensions"],
        [["batch", "1", None]],
        "not [name, lowest, highest]",
    ),
    (["graphs", 0, "dimensions"], [["ba tch", 1, None]], "not [name, lowest, highest]"),
    (["graphs", 0, "dimensions"], [], "the dimension batch is not declared"),
    (["graphs", 0, "signature"], [["x", -1]], "not [name, number of tensors]"),
    (["graphs", 0, "signature"], [], "not the arguments that the signature lists"),
    (["graphs", 0, "outputs"], ["nothing"], "there is no value 'nothing'"),
    (["graphs", 0, "outputs"], [1], "outputs: it holds something that is no string"),
    (["graphs", 0, "modules"], [None], "modules: it holds something"),
    (["graphs", 0, "code"], {"a.py:1": 3}, "code.a.py:1: it is no string"),
    (["graphs", 0, "inputs", 0, "kind"], "weight", "'weight' is none of"),
    (["graphs", 0, "inputs", 0, "argument"], 0, "and only they, have an argument"),
    (["graphs", 0, "inputs", 0, "data"], [], "and only they, have data"),
    (["graphs", 0, "inputs", 0, "value"], ["w"], "a value is not [name, type]"),
    (["graphs", 0, "inputs", 0, "value"], ["w", 3], "not a list of strings"),
    (["graphs", 0, "inputs", 0, "value"], ["w", "float"], "is no tensor type"),
    (["graphs", 0, "inputs", 0, "value"], ["w", "f[4] (1, 1)"], "2 strides for 1 axes"),
    (
        ["graphs", 0, "inputs", 0, "value"],
        ["w", "f[b*a]"],
        "with its dimensions in order",
    ),
    (["graphs", 0, "inputs", 0, "value"], ["w", "f[4]", "v"], "there is no value 'v'"),
    (
        ["graphs", 0, "inputs", 0, "value"],
        ["x", "f[4]"],
        "its value is 'x', which is not named after it",
    ),
    (
        ["graphs", 0, "operations", 1, "results"],
        [["x", "f[4]"]],
        "two values have the name 'x'",
    ),
    (["graphs", 0, "operations", 1, "name"], "linear", "have the name 'linear'"),
    (["graphs", 0, "operations", 1, "view"], 1, "'view' is not of type bool"),
    (["graphs", 0, "operations", 1, "stream"], 1, "'stream' is unknown"),
    (["graphs", 0, "operations", 1, "arguments"], ["%later"], "no value 'later'"),
    (["graphs", 0, "operations", 1, "arguments"], ["later"], "'later' is no argument"),
    (["graphs", 0, "operations", 1, "arguments"], ["@dtype:"], "is no argument"),
    (["graphs", 0, "operations", 1, "arguments"], ["~1.5"], "is no argument"),
    (["graphs", 0, "operations", 1, "arguments"], ["=rows"], "rows is not declared"),
    (["graphs", 0, "operations", 1, "arguments"], ["=2**batch"], "is no size"),
    (["graphs", 0, "operations", 1, "arguments"], [{}], "a dict is no argument"),
    (["graphs", 0, "operations", 1, "arguments"], [2**65], "more than 64 bits"),
    (["graphs", 0, "operations", 1, "keywords"], {"a": ["%z"]}, "no value 'z'"),
    (["graphs", 0, "operations", 1, "writes"], ["z"], "'z', which is none of its"),
    (["graphs", 0, "operations", 1, "source"], "a.py:7", "'a.py:7' is not in 'code'"),
    (["graphs", 0, "operations", 1, "source"], "a.py", "'a.py' is not in 'code'"),
    (["graphs", 0, "operations", 1, "functions"], "f", "'f' is none of 'functions'"),
    (["graphs", 0, "operations", 1, "marks"], ["a", "a"], "marks: 'a' is there twice"),
    (["graphs", 0, "operations", 1, "marks"], [""], "marks: it is no list of names"),
    (["graphs", 0, "functions"], {"f": "f"}, "functions.f: it is no list of names"),
    (["graphs", 1], None, "graphs[1]: it is not an object"),
    (["graphs"], [], "graphs: there is none"),
    (["graphs", 0, "dimensions"], [["batch", 0, None]], "no sizes from 0 to None"),
    (["graphs", 0, "dimensions"], [["batch", 3, 2]], "no sizes from 3 to 2"),
    (["graphs", 0, "dimensions"], [["batch", 1, 2**63]], "no sizes from 1 to"),
    (["graphs", 0, "dimensions", 1], ["batch", 1, 2], "batch is there twice"),
    (["graphs", 0, "signature", 1], ["x", None], "signature: 'x' is there twice"),
    (["graphs", 0, "modules"], ["", "linear", ""], "modules: '' is there twice"),
    (["graphs", 0, "modules"], [""], "'linear' is none of 'modules'"),
    (["graphs", 0, "inputs", 0, "name"], "c", "value is 'linear.weight', which is"),
    (
        ["graphs", 0, "inputs", 4],
        {"kind": "constant", "name": "c", "value": ["c@input", "f[2]"], "data": [1, 2]},
        "inputs: 'c' is there twice",
    ),
    (["graphs", 0, "inputs", 0, "value"], ["w", "f[-4]"], "has a size below 0"),
    (["graphs", 0, "inputs", 0, "value"], ["w", f"f[{2**63}]"], "more than 64 bits"),
    (["graphs", 0, "operations", 1, "call"], "copy", "'copy' is no operator"),
    (["graphs", 0, "operations", 1, "module"], "gone", "'gone' is none of 'modules'"),
    (["graphs", 0, "operations", 1, "arguments"], [f"={2**63}"], "more than 64 bits"),
    (["graphs", 0, "operations", 1, "writes"], ["x"], "'x', which is none of its"),
    (["graphs", 0, "operations", 1, "view"], True, "it is a view, but not of"),
]


@pytest.mark.parametrize(("place", "value", "message"), BAD_FIELDS)
def test_every_field_is_checked(
    place: list[str | int], value: object, message: str
) -> None:
    content: Any = data()
    part = content
    for key in place[:-1]:
        part = part[key]
    if isinstance(part, list) and isinstance(place[-1], int) and place[-1] >= len(part):
        part.append(value)
    else:
        part[place[-1]] = value
    found = problem(content)
    assert message in found
    if place[2:3] == ["operations"]:
        assert found.startswith(OPERATION)


@pytest.mark.parametrize("key", ["name", "call", "arguments", "results", "module"])
def test_no_field_may_be_missing(key: str) -> None:
    content = data()
    del content["graphs"][0]["operations"][1][key]
    assert problem(content).startswith(f"{OPERATION}'{key}' is missing")


def test_two_graphs_may_not_have_one_entry() -> None:
    content = data()
    content["graphs"].append(content["graphs"][0])
    assert "two have one entry" in problem(content)


def test_a_list_in_a_list_in_a_list_has_an_end() -> None:
    content = data()
    nested: list[Any] = []
    for _ in range(20):
        nested = [nested]
    content["graphs"][0]["operations"][0]["arguments"] = nested
    assert "a list is no argument" in problem(content)
