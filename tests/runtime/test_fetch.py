"""Blocks of host memory, buffers that take turns, and models that are placed."""

from __future__ import annotations

import torch
from torch import nn

from dynaflow_dsl.runtime import Fetch
from dynaflow_dsl.runtime.fetch import (
    ALIGNMENT,
    Fetched,
    HostWeights,
    fetched_paths,
    lay_out,
    place,
)
from dynaflow_dsl.runtime.report import FetchedMemory, StepReport

CPU = torch.device("cpu")
FETCH = Fetch(layers=range(3), weights={"w": "layers.{}.weight"}, buffers=2)


def stack(count: int = 3) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Module()
    model.layers = nn.ModuleList(nn.Linear(5, 3) for _ in range(count))
    model.head = nn.Linear(3, 2)
    model.register_buffer("scale", torch.ones(3))
    return model.eval()


def tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.detach() for name, one in model.named_parameters()}


def brought(
    host: HostWeights, fetch: Fetch, weights: dict[str, torch.Tensor]
) -> Fetched:
    """What the one part is made of that an executor has."""
    return host.fetched({"fetch": fetch}, weights)["fetch"]


def test_weights_of_any_dtype_and_layout_begin_aligned() -> None:
    given = {
        "a": torch.randn(3, 5),
        "bytes": torch.arange(7, dtype=torch.uint8),
        "turned": torch.randn(4, 6, dtype=torch.float64).t(),
        "half": torch.randn(2, 3).to(torch.bfloat16),
        "flags": torch.tensor([True, False, True]),
        "number": torch.tensor(3.5),
        "none": torch.empty(0, 4),
        "strided": torch.randn(8, 8)[::2, ::2],
        "same": torch.randn(1, 5).expand(3, 5),
    }
    layout = lay_out(given)
    assert [one.offset % ALIGNMENT for one in layout.places.values()] == [0] * 9
    assert layout.size % ALIGNMENT == 0
    host = HostWeights(CPU)
    block = host.block(given)
    assert block.nbytes == layout.size
    for path, one in layout.places.items():
        view = one.view(block)
        assert torch.equal(view, given[path]), path
        assert view.dtype == given[path].dtype
    dense = layout.places["turned"]
    assert dense.strides == given["turned"].stride()
    # What has holes in memory, or the same memory twice, gets memory of its own.
    assert layout.places["strided"].strides == (4, 1)
    assert layout.places["same"].strides == (5, 1)


def test_buffers_take_turns() -> None:
    weights = tensors(stack())
    fetched = brought(HostWeights(CPU), FETCH, weights)
    views = [fetched.views[f"layers.{i}.weight"] for i in range(3)]
    assert views[0].data_ptr() == views[2].data_ptr() != views[1].data_ptr()
    for i in (0, 1, 2, 0):
        fetched.calls[i]()
        assert torch.equal(views[i], weights[f"layers.{i}.weight"])
    # The third brought the first one's buffer to be filled again.
    fetched.calls[2]()
    assert not torch.equal(views[0], weights["layers.0.weight"])
    size = -(-3 * 5 * 4 // ALIGNMENT) * ALIGNMENT
    assert (fetched.host, fetched.buffers, fetched.count) == (3 * size, 2 * size, 2)


def test_buffers_are_as_large_as_the_largest_layer() -> None:
    weights = {"layers.0.weight": torch.randn(3), "layers.1.weight": torch.randn(500)}
    fetch = Fetch(layers=range(2), weights=FETCH.weights, buffers=1)
    fetched = brought(HostWeights(CPU), fetch, weights)
    assert fetched.buffers == 2048
    for path, call in zip(weights, fetched.calls, strict=True):
        call()
        assert torch.equal(fetched.views[path], weights[path])


def test_blocks_and_buffers_are_made_once() -> None:
    weights, host = tensors(stack()), HostWeights(CPU)
    one, other = brought(host, FETCH, weights), brought(host, FETCH, weights)
    assert [v.data_ptr() for v in one.views.values()] == [
        v.data_ptr() for v in other.views.values()
    ]
    assert len(host.blocks) == 3
    # A schedule that needs another number of buffers has buffers of its own.
    alone = Fetch(layers=range(3), weights=FETCH.weights, buffers=1)
    third = brought(host, alone, weights)
    assert len(host.blocks) == 3
    assert third.views["layers.0.weight"].data_ptr() not in {
        view.data_ptr() for view in one.views.values()
    }


def test_parts_of_one_executor_share_no_buffers() -> None:
    weights = tensors(stack(6))
    behind = Fetch(
        layers=range(3, 6), weights={"w": "layers.{}.weight"}, buffers=FETCH.buffers
    )
    host = HostWeights(CPU)
    made = host.fetched({"one": FETCH, "other": behind}, weights)
    views = [{v.data_ptr() for v in each.views.values()} for each in made.values()]
    assert [len(each) for each in views] == [2, 2]
    assert not views[0] & views[1]
    # Another executor has the same two.
    again = host.fetched({"one": FETCH, "other": behind}, weights)
    assert sum(map(len, host.buffers.values())) == 4
    for name, each in made.items():
        for path, view in each.views.items():
            assert again[name].views[path].data_ptr() == view.data_ptr()


def test_weights_of_layers_may_have_their_own_names() -> None:
    fetch = Fetch(
        layers=(0, 4),
        weights={"w": "layers.{}.weight", "b": ("layers.0.bias", None)},
        buffers=2,
    )
    assert fetch.paths(0) == {"w": "layers.0.weight", "b": "layers.0.bias"}
    assert fetch.paths(1) == {"w": "layers.4.weight"}
    assert fetched_paths([fetch]) == {
        "layers.0.weight",
        "layers.0.bias",
        "layers.4.weight",
    }


def used(model: nn.Module) -> list[str]:
    return [*tensors(model), "scale"]


def test_a_model_is_placed_with_the_same_numbers() -> None:
    model, untouched = stack(), stack()
    parameters = dict(model.named_parameters())
    host = HostWeights(CPU)
    place(model, used(model), [FETCH], host)
    # The parameters are the same objects, as an optimizer or a tie would want.
    assert dict(model.named_parameters()) == parameters
    x = torch.randn(4, 5)
    assert torch.equal(model.layers[1](x), untouched.layers[1](x))
    blocks = {block.data_ptr() for block in host.blocks.values()}
    assert {model.layers[i].weight.data_ptr() for i in range(3)} == blocks
    assert model.head.weight.data_ptr() not in blocks
    # Loaded again, blocks are used where they are, and see what is changed there.
    again = HostWeights(CPU)
    fetched = brought(again, FETCH, tensors(model))
    assert {block.data_ptr() for block in again.blocks.values()} == blocks
    with torch.no_grad():
        model.layers[1].weight.fill_(7.0)
    fetched.calls[1]()
    assert bool((fetched.views["layers.1.weight"] == 7.0).all())


def test_what_is_not_placed_is_copied() -> None:
    model = stack()
    host = HostWeights(CPU)
    fetched = brought(host, FETCH, tensors(model))
    before = model.layers[0].weight.detach().clone()
    with torch.no_grad():
        model.layers[0].weight.zero_()
    fetched.calls[0]()
    assert torch.equal(fetched.views["layers.0.weight"], before)


def test_the_report_tells_bytes() -> None:
    report = StepReport("s, entry e", fetched=FetchedMemory(3_000_000, 2_000_000, 2))
    assert str(report).splitlines() == [
        "s, entry e",
        "  weights in host memory 3.0 MB, fetched to 2 buffers of 2.0 MB in all",
        "  nothing is captured",
    ]
    assert "weights" not in str(StepReport("s, entry e"))
