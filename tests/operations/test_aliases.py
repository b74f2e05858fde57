"""Every spelling in the table of kinds exists, and torch's own calls are covered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch.distributed import _functional_collectives, _symmetric_memory
from torch.testing._internal.distributed.fake_pg import FakeStore

from dynaflow_dsl.bind.collectives import completions
from dynaflow_dsl.bind.dependence import analyse
from dynaflow_dsl.graph.model import Graph
from dynaflow_dsl.operations.aliases import COLLECTIVES, WAITS, aliases
from dynaflow_dsl.operations.names import matches_name, matches_operator
from tests.trace.specs import graph_of, module

# The modules that register operators are imported for that.
REGISTERED = {
    schema.name.replace("::", ".")
    for schema in torch._C._jit_get_all_schemas()
    if (_functional_collectives, _symmetric_memory)
}
# Of transformers, and of builds for other devices.
ELSEWHERE = {"transformers.grouped_mm_fallback"}


def kinds_of(operator: str) -> set[str]:
    return {
        kind
        for kind, patterns in aliases().items()
        if any(matches_operator(pattern, operator) for pattern in patterns)
    }


@pytest.mark.skipif(
    torch.__version__ < "2.13", reason="some spellings are newer than this torch"
)
@pytest.mark.parametrize("kind", aliases())
def test_every_spelling_is_an_operator_of_torch(kind: str) -> None:
    for pattern in (*aliases()[kind], *WAITS):
        if pattern not in ELSEWHERE:
            assert any(matches_name(pattern, name) for name in REGISTERED), pattern


def test_every_functional_collective_has_a_kind() -> None:
    namespaces = ("_c10d_functional.", "_c10d_functional_autograd.", "c10d_functional.")
    names = {name for name in REGISTERED if name.startswith(namespaces)}
    assert len(names) > 20
    for name in names - set(WAITS):
        assert "collective" in kinds_of(f"{name}.default"), name


def test_gradients_and_reductions_have_no_kind() -> None:
    for operator in (
        "aten.add.Tensor",
        "aten.linalg_vector_norm.default",
        "aten.native_layer_norm_backward.default",
        "aten._softmax_backward_data.default",
        "aten.convolution_backward.default",
        "aten.cummax.default",
        "aten.addcmul.default",
        "_c10d_functional.wait_tensor.default",
    ):
        assert kinds_of(operator) == set(), operator


def traced_kinds(
    forward: Callable[..., Any], *shapes: Any, **modules: Any
) -> list[str]:
    graph = graph_of(module(forward, **modules), *shapes)
    return [" ".join(sorted(kinds_of(o.operator))) for o in graph.operations]


X = ("batch", 4)
W = torch.ones(4, 4)
CALLS: dict[str, list[Callable[[Any, torch.Tensor], torch.Tensor]]] = {
    "matmul": [
        lambda self, x: x @ self.w,
        lambda self, x: F.linear(x, self.w),
        lambda self, x: torch.mm(x, self.w),
        lambda self, x: torch.addmm(x, x, self.w),
        lambda self, x: torch.einsum("bi,ij->bj", x, self.w),
        lambda self, x: torch.bmm(x[:, None], x[:, :, None])[:, 0],
        lambda self, x: torch.mv(x, self.w[0]),
    ],
    "softmax": [
        lambda self, x: x.softmax(-1),
        lambda self, x: F.log_softmax(x, -1),
    ],
    "norm": [
        lambda self, x: F.layer_norm(x, (4,)),
        lambda self, x: F.rms_norm(x, (4,)),
        lambda self, x: F.group_norm(x, 2),
        lambda self, x: F.batch_norm(x, self.w[0], self.w[1]),
    ],
    "conv": [
        lambda self, x: F.conv1d(x[:, None], self.w[:1, None, :3]),
        lambda self, x: F.conv1d(x[:, None], self.w[:1, None, :3], padding="same"),
        lambda self, x: F.conv2d(x.view(-1, 1, 2, 2), self.w[:1, None, None, :1]),
        lambda self, x: F.conv_transpose1d(x[:, None], self.w[:1, None, :3]),
    ],
    "attention": [
        lambda self, x: F.scaled_dot_product_attention(*[x.view(-1, 1, 2, 2)] * 3),
    ],
    "embedding": [lambda self, x: F.embedding(x.long(), self.w)],
    "activation": [
        lambda self, x: F.silu(x),
        lambda self, x: F.gelu(x, approximate="tanh"),
        lambda self, x: F.relu_(x * 2),
        lambda self, x: F.glu(x),
        lambda self, x: F.softplus(x),
    ],
    "pool": [
        lambda self, x: F.max_pool1d(x[:, None], 2),
        lambda self, x: F.avg_pool1d(x[:, None], 2),
        lambda self, x: F.adaptive_avg_pool2d(x.view(-1, 1, 2, 2), 1),
    ],
}


@pytest.mark.parametrize(
    ("kind", "forward"),
    [(kind, forward) for kind, calls in CALLS.items() for forward in calls],
)
def test_what_torch_traces_has_its_kind(kind: str, forward: Any) -> None:
    found = traced_kinds(forward, X, w=W)
    assert found.count(kind) == 1
    assert set(found) <= {kind, ""}


# ---- collectives ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    """A process group of two ranks that sends nothing."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield dist.group.WORLD
    dist.destroy_process_group()


def reduce_in_place(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def gather_into(self: Any, x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(2 * x.shape[0], 4)
    dist.all_gather_into_tensor(out, x)
    return out + 1


def exchange(self: Any, x: torch.Tensor) -> torch.Tensor:
    columns = x.t().contiguous()
    out = torch.empty_like(columns)
    dist.all_to_all_single(out, columns)
    return out.t() + 1


def functional(name: str, *arguments: Any) -> Callable[[Any, torch.Tensor], Any]:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        call = getattr(_functional_collectives, name)
        made = call(x * 2, *arguments, dist.group.WORLD)
        return made + 1

    return forward


def coalesced(self: Any, x: torch.Tensor) -> torch.Tensor:
    first, second = _functional_collectives.all_reduce_coalesced(
        [x * 2, x * 3], "sum", dist.group.WORLD
    )
    return first + second


SPELLINGS = [
    ("all_reduce", functional("all_reduce", "sum"), 2),
    ("all_reduce", reduce_in_place, 3),
    ("all_reduce", coalesced, 3),
    ("all_gather", functional("all_gather_tensor", 0), 2),
    ("all_gather", gather_into, 3),
    ("broadcast", functional("broadcast", 0), 2),
    ("all_to_all", exchange, 3),
]


def numbers_of(kind: str, graph: Graph) -> set[int]:
    """Starts of a kind with what completes them."""
    starts = {
        number
        for number, operation in enumerate(graph.operations)
        if kind in kinds_of(operation.operator)
    }
    complete = completions(analyse(graph))
    return starts.union(*(complete.get(start, frozenset()) for start in starts))


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(("kind", "forward", "count"), SPELLINGS)
def test_a_collective_is_its_start_its_wait_and_its_copy(
    kind: str, forward: Any, count: int
) -> None:
    graph = graph_of(module(forward), X)
    numbers = numbers_of(kind, graph)
    names = [graph.operations[number].operator for number in sorted(numbers)]
    assert len(names) == count
    assert names[0].startswith("_c10d_functional.")
    assert any("wait_tensor" in name for name in names)
    assert numbers_of("collective", graph) == numbers
    for other in COLLECTIVES.keys() - {kind}:
        assert numbers_of(other, graph) == set()
