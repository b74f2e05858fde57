import pytest
import torch

from tests.trace.specs import Forward, graph_of, module, operators

X = ("batch", 4)

UNCHANGED: dict[str, Forward] = {
    "cast to the dtype it has": lambda self, x: x.float() + 1,
    "cast to the device it has": lambda self, x: x.to("cpu") + 1,
    "contiguous": lambda self, x: x.contiguous() + 1,
    "slice of everything": lambda self, x: x[:, :] + 1,
    "detach": lambda self, x: x.detach() + 1,
    "alias": lambda self, x: torch.ops.aten.alias(x) + 1,
    "expand to its own size": lambda self, x: x.expand(x.shape[0], 4) + 1,
    "view of its own shape": lambda self, x: x.view(x.shape) + 1,
    "dropout that is off": lambda self, x: torch.dropout(x, 0.5, False) + 1,
    "dropout of nothing": lambda self, x: torch.dropout(x, 0.0, True) + 1,
    "clone that nobody reads": lambda self, x: (x.clone(), x + 1)[1],
    "write that nobody reads": lambda self, x: (torch.zeros(4).add_(1), x + 1)[1],
    "random numbers nobody reads": lambda self, x: (torch.rand(4), x + 1)[1],
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_changes_nothing_leaves_no_operation(name: str) -> None:
    graph = graph_of(module(UNCHANGED[name]), X)
    assert operators(graph) == ["add.Tensor"]
    assert str(graph.operations[0].arguments[0]) == "Reference(name='x')"


CHANGED: dict[str, tuple[Forward, list[str]]] = {
    "cast to another dtype": (lambda self, x: x.double(), ["to.dtype"]),
    "cast that copies": (lambda self, x: x.to(torch.float32, copy=True), ["to.dtype"]),
    "clone": (lambda self, x: x.clone(), ["clone"]),
    "contiguous that copies": (
        lambda self, x: x.t().contiguous(),
        ["t", "contiguous"],
    ),
    "shorter slice": (lambda self, x: x[:, 1:], ["slice.Tensor"]),
    "slice with a step": (lambda self, x: x[:, ::2], ["slice.Tensor"]),
    "write that is read": (
        lambda self, x: x + torch.zeros(4).add_(1),
        ["zeros", "add_.Tensor", "add.Tensor"],
    ),
    "write through a view": (
        lambda self, x: _write_through_a_view(x),
        ["clone", "select.int", "fill_.Scalar"],
    ),
}


def _write_through_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    torch.ops.aten.fill_.Scalar(y[:, 0], 1.0)
    return y


@pytest.mark.parametrize("name", CHANGED)
def test_what_changes_something_stays(name: str) -> None:
    forward, expected = CHANGED[name]
    found = operators(graph_of(module(forward), X))
    assert [item for item in found if item != "slice.Tensor" or item in expected] == (
        expected
    )


def test_a_write_to_an_input_stays_though_nobody_reads_it() -> None:
    def forward(self: object, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache.add_(1)
        return x + 1

    graph = graph_of(module(forward), X, X)
    assert operators(graph) == ["add_.Tensor", "add.Tensor"]
    assert graph.operations[0].writes == ("cache",)


def test_readers_of_an_in_place_result_read_what_was_written() -> None:
    graph = graph_of(module(lambda self, x, y: x.add_(1) * y), X, X)
    write, product = graph.operations
    assert write.results == ()
    assert str(product.arguments[0]) == "Reference(name='x')"


def test_checks_are_left_out() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).any())
        return x.double()

    assert operators(graph_of(module(forward), X)) == ["to.dtype"]


def test_small_constants_are_read_without_a_copy() -> None:
    graph = graph_of(module(lambda self, x: x * torch.tensor([1.0, 2.0, 3.0, 4.0])), X)
    assert operators(graph) == ["mul.Tensor"]
    (constant,) = (item for item in graph.inputs if item.kind == "constant")
    assert constant.data == (1.0, 2.0, 3.0, 4.0)
