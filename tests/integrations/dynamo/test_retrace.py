from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl.graph.digest import graph_digest
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.integrations.dynamo.model import Meaning
from dynaflow_dsl.trace import Entry, Persistent, TraceSpec, trace
from tests.integrations.dynamo.capturing import open_batch, retraced
from tests.integrations.dynamo.models import (
    Caching,
    MarkedStack,
    Stack,
    evaluated,
    without_numbers,
)


def exported(spec: TraceSpec) -> Graph:
    (graph,) = trace(spec, "", {}).unwrap().graphs
    return graph


def as_exported(model: nn.Module, lowest: int = 2) -> Graph:
    return exported(
        TraceSpec(
            model=model,
            entries={"forward": Entry(lambda sizes: (torch.ones(sizes["batch"], 8),))},
            dims={"x": ("batch", None)},
            dimensions={"batch": (lowest, None)},
        )
    )


def as_captured(model: nn.Module) -> Graph:
    x = torch.ones(4, 8)
    open_batch(x)
    (graph,) = retraced(model, x).unwrap().traced.graphs
    return graph


@pytest.mark.parametrize("kind", [Stack, MarkedStack])
def test_both_captures_give_one_graph(kind: type[nn.Module]) -> None:
    model = evaluated(kind())
    captured, by_export = as_captured(model), as_exported(model)
    assert graph_digest(captured) == graph_digest(by_export)
    assert captured.modules == by_export.modules
    for one, other in zip(captured.operations, by_export.operations, strict=True):
        assert one.source == other.source
        assert one.functions == other.functions
        assert one.marks == other.marks


def test_a_graph_has_what_names_operations() -> None:
    found = {
        (operation.module, operation.marks, operation.functions[-1])
        for operation in as_captured(evaluated(MarkedStack())).operations
        if operation.module.startswith("layers.1")
    }
    here = "tests.integrations.dynamo.models"
    assert ("layers.1.up", (), f"{here}.widened") in found
    assert ("layers.1", ("activation",), f"{here}.activation") in found
    assert ("layers.1", ("close", "inner"), f"{here}.Marked.forward") in found


def test_the_traced_model_says_who_captured_it() -> None:
    x = torch.ones(4, 8)
    open_batch(x)
    model = retraced(evaluated(Stack()), x).unwrap().traced
    assert (model.captured_by, model.target, model.model_class) == (
        "dynamo",
        "",
        "Stack",
    )
    assert dict(model.facts)["model"] == "Stack"


def test_inputs_by_kind() -> None:
    model = evaluated(Caching())
    x, caches = torch.ones(4, 8), [torch.zeros(4, 16), torch.zeros(4, 16)]
    open_batch(x, *caches)
    found = retraced(model, x, caches).unwrap()
    (graph,) = found.traced.graphs
    # The tensor of the model that is no buffer is an argument, the last one.
    assert graph.signature == (("x", None), ("caches", 2), ("self_scale", None))
    assert [item.name for item in graph.inputs if item.kind == "step"] == [
        "x",
        "caches.0",
        "caches.1",
        "self_scale",
    ]
    paths = {path for _, path in found.interface.weights}
    assert paths == {name for name, _ in model.named_parameters()}
    assert graph.dimensions == (("batch", 2, None),)
    writes = [op.writes for op in graph.operations if op.operator == "aten.add_.Tensor"]
    assert writes == [("caches.0",), ("caches.1",)]


def test_outputs_that_are_sizes() -> None:
    model = evaluated(Caching())
    x, caches = torch.ones(4, 8), [torch.zeros(4, 16), torch.zeros(4, 16)]
    open_batch(x, *caches)
    outputs = retraced(model, x, caches).unwrap().interface.outputs
    assert [each.result for each in outputs] == [0, None, 2]
    assert outputs[1].factor == 2


def test_axes_of_one_size_are_one_dimension() -> None:
    def forward(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return model(x) + y.sum()

    x, y = torch.ones(4, 8), torch.ones(4, 8)
    open_batch(x, y)
    found = retraced(forward, evaluated(Stack()), x, y).unwrap()
    assert found.dimensions.dims == {"x": ("batch", None), "y": ("batch", None)}


def test_names_for_sizes_that_only_seem_equal() -> None:
    def forward(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return model(x) + y.sum()

    x, y = torch.ones(4, 8), torch.ones(4, 8)
    open_batch(x, y)
    meaning = Meaning({"x": ("batch", None)})
    found = retraced(forward, evaluated(Stack()), x, y, meaning=meaning).unwrap()
    assert found.dimensions.dims == {"x": ("batch", None), "y": ("y_0", None)}


def test_bounds_are_those_of_dynamo_and_of_the_caller() -> None:
    def forward(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x) if x.shape[0] <= 64 else x

    x = torch.ones(4, 8)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    assert bounds(forward, x, Meaning()) == {"batch": (2, 64)}
    assert bounds(forward, x, Meaning(dimensions={"batch": (3, 16)})) == {
        "batch": (3, 16)
    }


def bounds(forward: Any, x: torch.Tensor, meaning: Meaning) -> Any:
    torch._dynamo.reset()
    found = retraced(forward, evaluated(Stack()), x, meaning=meaning).unwrap()
    return found.dimensions.bounds


def test_named_axes_that_are_fixed_are_fixed_sizes() -> None:
    x = torch.ones(4, 8)
    open_batch(x)
    meaning = Meaning({"x": ("batch", "width")})
    (graph,) = retraced(evaluated(Stack()), x, meaning=meaning).unwrap().traced.graphs
    assert graph.fixed == (("width", 8),)


def test_a_layer_that_is_compiled_by_itself_is_a_part_of_its_model() -> None:
    model = evaluated(Stack())
    x = torch.ones(4, 8)
    open_batch(x)

    def forward(x: torch.Tensor) -> torch.Tensor:
        return model.layers[2](x)

    (graph,) = retraced(forward, x).unwrap().traced.graphs
    assert {op.module for op in graph.operations} == {
        "layers.2",
        "layers.2.norm",
        "layers.2.up",
        "layers.2.down",
    }


def test_a_module_at_several_places_is_where_it_was_called() -> None:
    model = Stack()
    model.layers[1].norm = model.layers[0].norm
    evaluated(model)
    x = torch.ones(4, 8)
    open_batch(x)
    (graph,) = retraced(model, x).unwrap().traced.graphs
    norms = [o.module for o in graph.operations if "layer_norm" in o.operator]
    assert norms == [f"layers.{k}.norm" for k in range(4)]


def test_gradients_are_switched_by_nobody() -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                y = super().forward(x)
            with torch.enable_grad():
                return y * 2

    x = torch.ones(4, 8)
    open_batch(x)
    (graph,) = retraced(evaluated(Model()), x).unwrap().traced.graphs
    assert len(graph.operations) == 4 * 5 + 1


def test_a_tensor_without_its_gradient_is_the_tensor() -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) @ self.layers[0].up.weight.data.t()

    x = torch.ones(4, 8)
    open_batch(x)
    (graph,) = retraced(evaluated(Model()), x).unwrap().traced.graphs
    names = [item.name for item in graph.inputs if item.kind == "parameter"]
    assert names.count("layers.0.up.weight") == 1


def test_tensors_that_no_module_owns_get_a_path() -> None:
    class Model(Stack):
        def __init__(self) -> None:
            super().__init__()
            self.handle = torch.tensor(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.handle

    x = torch.ones(4, 8)
    open_batch(x)
    names = {"L_self_handle": "layers.0.handle"}
    found = retraced(evaluated(Model()), x, names=names).unwrap()
    (graph,) = found.traced.graphs
    assert "layers.0.handle" in {i.name for i in graph.inputs if i.kind == "buffer"}
    assert "layers.0.handle" in {path for _, path in found.interface.weights}
    assert found.traced.model_class == "Model"


def refused(forward: Any, *arguments: Any, code: str = "DFS111", **options: Any) -> str:
    (diagnostic,) = retraced(forward, *arguments, **options).diagnostics
    assert diagnostic.code == code
    return diagnostic.message


def test_a_number_that_differs_between_calls() -> None:
    def forward(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
        return model(x) * step

    x = torch.ones(4, 8)
    open_batch(x)
    with torch._dynamo.config.patch(
        specialize_int=False, assume_static_by_default=False
    ):
        said = refused(forward, without_numbers(), x, 7)
    assert said == (
        "'step' is a number that differs between calls, and an executor's arguments "
        "are tensors"
    )


def test_several_open_sizes_and_one_name() -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    x = torch.ones(4, 6, 8)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(x, 1)
    said = refused(evaluated(Model()), x)
    assert said == "the schedule speaks of batch, and this graph has 2 open sizes"


def test_a_name_that_is_open_here_and_fixed_there() -> None:
    def forward(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return model(x) + y.sum()

    x, y = torch.ones(4, 8), torch.ones(4, 8)
    open_batch(x)
    meaning = Meaning({"x": ("batch", None), "y": ("batch", None)})
    said = refused(forward, evaluated(Stack()), x, y, meaning=meaning)
    assert said == "batch is open at axis 0 of 'x' and fixed to 4 at axis 0 of 'y'"


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        (
            {"y": (None,)},
            "the option 'dims' names 'y', and the inputs of this graph are x",
        ),
        (
            {"x": ("batch",)},
            "the option 'dims' gives 'x' 1 axes, and it has 2",
        ),
    ],
)
def test_names_for_other_inputs(dims: Any, said: str) -> None:
    x = torch.ones(4, 8)
    open_batch(x)
    found = refused(evaluated(Stack()), x, meaning=Meaning(dims), code="DFS820")
    assert found == said


@pytest.mark.parametrize("table", ["persistent", "disjoint"])
def test_statements_of_other_inputs(table: str) -> None:
    x = torch.ones(4, 8)
    open_batch(x)
    given: Any = {"persistent": {"keys": Persistent()}, "disjoint": ("keys",)}
    meaning = Meaning(**{table: given[table]})
    said = refused(evaluated(Stack()), x, meaning=meaning, code="DFS820")
    assert (
        said == f"the option '{table}' names 'keys', and the inputs of this graph are x"
    )


def test_bounds_for_a_dimension_that_is_not_there() -> None:
    x = torch.ones(4, 8)
    open_batch(x)
    meaning = Meaning(dimensions={"rows": (1, 2)})
    said = refused(evaluated(Stack()), x, meaning=meaning, code="DFS820")
    assert said == (
        "the option 'dimensions' has bounds for rows, and no input of this graph has "
        "such an axis"
    )


def test_a_graph_that_holds_for_some_sizes_only() -> None:
    def forward(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x) if x.shape[0] % 2 == 0 else x

    x = torch.ones(4, 8)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    said = refused(forward, evaluated(Stack()), x)
    assert said.startswith("the graph holds only where")
    assert "batch" in said


def up_to_64(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x) if x.shape[0] + max(0, 64 - x.shape[0]) == 64 else x


def above_3(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x) if max(4, x.shape[0]) == x.shape[0] else x


@pytest.mark.parametrize(
    ("forward", "bounds"), [(up_to_64, (2, 64)), (above_3, (4, None))]
)
def test_a_condition_that_is_a_bound_is_one(forward: Any, bounds: Any) -> None:
    x = torch.ones(5, 8)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    found = retraced(forward, evaluated(Stack()), x).unwrap()
    assert found.dimensions.bounds == {"batch": bounds}


def test_a_condition_against_the_caller_names_the_bounds() -> None:
    x = torch.ones(5, 8)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    meaning = Meaning(dimensions={"batch": (1, 100)})
    (found,) = retraced(up_to_64, evaluated(Stack()), x, meaning=meaning).diagnostics
    assert found.message.startswith("the graph holds only where")
    assert found.helps[0].endswith('options={"dimensions": {"batch": (2, 64)}}')


def test_random_numbers_are_refused_as_ever() -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.rand_like(x)

    x = torch.ones(4, 8)
    open_batch(x)
    assert refused(evaluated(Model()), x).startswith("the model draws random numbers")


def test_the_graph_that_was_handed_over_stays_as_it_is() -> None:
    model = evaluated(Stack())
    x = torch.ones(4, 8)
    open_batch(x)
    texts: list[str] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        return model(x)

    from dynaflow_dsl.integrations.dynamo import retrace as room

    annotated = room._annotated

    def watched(graph: Any, table: Any) -> Any:
        before = [dict(node.meta) for node in graph.module.graph.nodes]
        made = annotated(graph, table)
        after = [dict(node.meta) for node in graph.module.graph.nodes]
        texts.append(str(before == after))
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_annotated", watched)
        retraced(forward, x).unwrap()
    assert texts == ["True"]


def test_entries_are_named_by_the_caller() -> None:
    x = torch.ones(4, 8)
    open_batch(x)
    (graph,) = retraced(evaluated(Stack()), x, entry="decode").unwrap().traced.graphs
    assert graph.entry == "decode"
    assert graph_digest(replace(graph, entry="forward")) != graph_digest(graph)
