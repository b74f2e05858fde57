from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from dynaflow_dsl.bind.uses import waits_on_host
from dynaflow_dsl.graph.model import Constant, Input, Reference, Size
from dynaflow_dsl.trace import Entry, Persistent, TraceSpec, export_entry, trace
from tests.trace.specs import (
    graph_of,
    module,
    operation,
    operators,
    spec_of,
)

X = ("batch", 4)
ON_HOST = (torch.Tag.cudagraph_unsafe,)
BATCH = Size(1, ("batch",))


def names(inputs: tuple[Input, ...], kind: str) -> list[str]:
    return [item.name for item in inputs if item.kind == kind]


def test_sizes_are_products_of_dimensions() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        batch, sequence, _ = x.shape
        return x.reshape(batch * sequence, 4) + torch.zeros(2 * batch, 1)[:1]

    graph = graph_of(module(forward), ("batch", "sequence", 4))
    view = operation(graph, "reshape")
    assert view.arguments[1] == (Size(1, ("batch", "sequence")), 4)
    assert view.results[0] is not None
    assert view.results[0].type.shape == (Size(1, ("batch", "sequence")), Size(4))
    assert operation(graph, "zeros").arguments == ((Size(2, ("batch",)), 1),)


def test_arithmetic_on_sizes_is_folded() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        return x.view((x.shape[0] * 4) // 2, 2) * 1

    graph = graph_of(module(forward), X)
    assert operators(graph) == ["view", "mul.Tensor"]
    assert graph.operations[0].arguments[1] == (Size(2, ("batch",)), 2)


def test_several_results_are_values_of_their_own() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        left, _, right = x.split([1, 2, 1], dim=1)
        values, _ = torch.topk(x, 2)
        return left + right + values

    graph = graph_of(module(forward), X)
    split = operation(graph, "split_with_sizes")
    assert split.multiple
    assert split.view
    assert [result is None for result in split.results] == [False, True, False]
    topk = operation(graph, "topk")
    assert topk.multiple
    assert not topk.view
    assert [result is None for result in topk.results] == [False, True]
    first = operation(graph, "add.Tensor")
    assert [item.name for item in split.results if item] == [
        argument.name for argument in first.arguments if isinstance(argument, Reference)
    ]


def test_views_only_alias_and_copies_do_not() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        return x.t().reshape(-1) + x.reshape(-1)

    copied, aliased = (
        item
        for item in graph_of(module(forward), ("batch", 4)).operations
        if item.operator == "aten.reshape.default"
    )
    assert not copied.view
    assert aliased.view
    assert aliased.results[0] is not None
    assert copied.results[0] is not None


def test_a_copy_that_a_batch_of_one_does_not_make_shares_storage() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1).reshape(-1, 4) * 2

    flipped = graph_of(module(forward), ("batch", 3, 4))
    copy = operation(flipped, "reshape")
    assert not copy.view
    assert copy.results[0] is not None
    assert copy.results[0].storage == flipped.inputs[0].value.storage

    def always(self: object, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).reshape(x.shape[0], -1) * 2

    graph = graph_of(module(always), ("batch", 3, 4))
    copy = operation(graph, "reshape")
    assert copy.results[0] is not None
    assert copy.results[0].storage != graph.inputs[0].value.storage


def test_storages_are_numbered_by_first_appearance() -> None:
    graph = graph_of(module(lambda self, x, y: (x.t() @ y).view(-1) + 1), X, X)
    numbers = [item.value.storage for item in graph.inputs] + [
        result.storage
        for item in graph.operations
        for result in item.results
        if result is not None
    ]
    assert numbers == [0, 1, 0, 2, 2, 3]


def test_devices_and_dtypes_are_constants() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(4, dtype=torch.float64, device=x.device)

    arange = operation(graph_of(module(forward), X), "arange")
    keywords = dict(arange.keywords)
    assert keywords["device"] == Constant("device", "device")
    assert keywords["dtype"] == Constant("dtype", "float64")


def test_module_paths_and_parameters_are_the_users_own() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)
            self.register_buffer("scale", torch.ones(4), persistent=False)
            self.register_buffer("unused", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(self.inner(x)) * self.scale

    class Wrapper(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.wrapped = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.wrapped(x + 1)

    graph = graph_of(Wrapper(Block()).eval(), X)
    assert names(graph.inputs, "parameter")[0] == "wrapped.inner.weight"
    block = Block().eval()
    graph = graph_of(
        block,
        X,
        adapter=Wrapper,
        root="wrapped",
    )
    assert graph.modules == ("", "inner")
    assert names(graph.inputs, "parameter") == ["inner.weight", "inner.bias"]
    assert names(graph.inputs, "buffer") == ["scale"]
    assert [item.module for item in graph.operations] == ["", "inner", "inner", ""]


def test_tied_weights_are_one_memory() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(8, 4)
            self.head = torch.nn.Linear(4, 8, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(x))

    model = Tied().eval()
    graph = graph_of(model, ("batch",), dtypes={0: torch.int64})
    parameters = [item for item in graph.inputs if item.kind == "parameter"]
    known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert {item.name for item in parameters} <= known
    assert len({item.value.storage for item in parameters}) == 1


def test_lists_of_tensors_are_inputs_of_their_own() -> None:
    def forward(self: object, x: torch.Tensor, caches: list[torch.Tensor]) -> Any:
        return x + caches[0] + caches[1]

    def listed(sizes: Mapping[str, int]) -> tuple[Any, ...]:
        batch = sizes["batch"]
        return torch.rand(batch, 4), [torch.rand(batch, 4) for _ in range(2)]

    spec = TraceSpec(
        model=module(forward),
        entries={"run": Entry(listed)},
        dims={"x": ("batch", None), "caches.*": ("batch", None)},
        dimensions={"batch": (1, 64)},
        persistent={"caches": Persistent(64, padding="scratch")},
    )
    graph = trace(spec, "target", {}).unwrap().graphs[0]
    assert graph.signature == (("x", None), ("caches", 2))
    assert [(i.name, i.kind, i.argument) for i in graph.inputs] == [
        ("x", "step", 0),
        ("caches.0", "persistent", 1),
        ("caches.1", "persistent", 1),
    ]
    assert [(i.capacity, i.scratch) for i in graph.inputs] == [
        (None, False),
        (64, True),
        (64, True),
    ]
    assert graph.dimensions == (("batch", 1, 64),)


def test_operations_have_the_names_of_the_exported_programs_nodes() -> None:
    spec = spec_of(module(lambda self, x: (x + 1) * 2), X)
    program = export_entry(spec, "run")
    exported = [n.name for n in program.graph.nodes if n.op == "call_function"]
    graph = trace(spec, "target", {}).unwrap().graphs[0]
    assert [item.name for item in graph.operations] == exported


def test_a_value_is_not_confused_with_an_input_of_its_name() -> None:
    graph = graph_of(module(lambda self, x: x * self.mul, mul=torch.ones(4)), X)
    made = [
        result.name for item in graph.operations for result in item.results if result
    ]
    taken = [item.value.name for item in graph.inputs]
    assert len({*made, *taken}) == len(made) + len(taken)
    assert names(graph.inputs, "buffer") == ["mul"]


def test_random_operators_that_draw_nothing_are_not_random() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        y = x[:, None, None, :]
        return torch.nn.functional.scaled_dot_product_attention(y, y, y)

    graph = graph_of(module(forward), X)
    attention = operation(graph, "scaled_dot_product_attention")
    assert "random" not in attention.tags
    assert graph_of(module(lambda self, x: x + 1), X).operations[0].tags == (
        "pointwise",
    )


def test_outputs_may_be_inputs_and_repeat() -> None:
    graph = graph_of(module(lambda self, x: (x, x + 1, x)), X)
    assert graph.outputs == ("x", "add", "x")
    assert len(graph.operations) == 1


def test_facts_name_the_model() -> None:
    spec = spec_of(module(lambda self, x: x + 1), X, facts={"tp_size": 2})
    traced = trace(spec, "some:target", {"layers": 2}).unwrap()
    assert traced.facts == (("model", "Model"), ("tp_size", 2))
    assert traced.target == "some:target"
    assert traced.arguments == (("layers", 2),)
    assert (traced.device, traced.dtype) == ("cpu", "float32")
    assert traced.captured_by == "export"


@pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch has no collectives"
)
def test_a_collective_is_waited_for_in_the_memory_it_writes() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        started = torch.ops._c10d_functional.all_reduce(x, "sum", "0")
        return torch.ops._c10d_functional.wait_tensor(started) + 1

    graph = graph_of(module(forward), X)
    reduce, wait, _ = graph.operations
    assert reduce.results[0] is not None
    assert wait.results[0] is not None
    assert wait.results[0].storage == reduce.results[0].storage
    assert reduce.results[0].storage != graph.inputs[0].value.storage
    assert not wait.view


@torch.library.custom_op("tests_convert::plan", mutates_args=(), tags=ON_HOST)
def plan(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@plan.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_what_no_cuda_graph_can_hold_is_tagged() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        planned: torch.Tensor = plan(x)
        return planned + 1

    graph = graph_of(module(forward), X)
    assert operation(graph, "tests_convert.plan").tags == ("host",)
    assert waits_on_host(operation(graph, "tests_convert.plan"))
    assert not waits_on_host(operation(graph, "add.Tensor"))


def test_rows_that_a_mask_selects_are_counted_before_they_are_written() -> None:
    def rows(self: object, x: torch.Tensor) -> torch.Tensor:
        return x.index_put((x.sum(-1) < 0,), x[0])

    def numbers(self: object, x: torch.Tensor) -> torch.Tensor:
        return x.index_put((x < 0,), torch.zeros(()))

    def places(self: object, x: torch.Tensor) -> torch.Tensor:
        return x.index_put((x.argmax(0),), x[0])

    waits = [
        waits_on_host(operation(graph_of(module(each), X), "index_put"))
        for each in (rows, numbers, places)
    ]
    assert waits == [True, False, False]


def test_a_repeat_that_is_told_its_size_asks_nobody() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        counts = torch.tensor([2, 2, 2, 2])
        return x @ torch.repeat_interleave(torch.eye(4), counts, 1, output_size=8)

    repeated = operation(graph_of(module(forward), X), "repeat_interleave.self_Tensor")
    assert not waits_on_host(repeated)
    assert waits_on_host(replace(repeated, keywords=()))


def test_factorisations_look_at_what_they_say_of_themselves() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.linalg.inv(torch.eye(4))

    assert waits_on_host(operation(graph_of(module(forward), X), "linalg_inv"))


def test_a_dimension_of_another_entry_is_none_of_this_one() -> None:
    model = module(lambda self, x: x + 1)
    fixed, named = spec_of(model, (3, 4)), spec_of(model, ("batch", 4))
    own = replace(named.entries["run"], dims=named.dims)
    spec = replace(
        fixed,
        entries={"one": fixed.entries["run"], "several": own},
        dimensions=named.dimensions,
    )
    one, several = trace(spec, "m:target", {}).unwrap().graphs
    assert one.dimensions == ()
    assert several.dimensions == (("batch", 1, None),)
