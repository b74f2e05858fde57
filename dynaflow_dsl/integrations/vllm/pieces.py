"""What the engine keeps beside the graph, cut for the pieces of a step.

Operators of vLLM read the metadata of attention, and where each token goes in the
caches, from the engine's forward context. For a piece of the tokens there has to be a
context of its own. The metadata is cut by the engine's own functions for microbatches
(`split_attn_metadata`, which its model runner calls); all that is added is when.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

# Symbols of the engine that are replaced, each with the reason. Nothing else is.
REPLACED = {
    "vllm.v1.worker.gpu_model_runner.GPUModelRunner._build_attention_metadata": (
        "it gives the metadata of a whole step to the forward context and keeps "
        "nothing of what it was made from; the replacement calls it, and remembers "
        "the runner and the arguments of the last call, so that the same function can "
        "be called with the cuts of a split. Its result is not changed. Only "
        "replaced for schedules that split."
    ),
}


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the runner's method: how to make its metadata again, cut."""

    runner: Any
    arguments: Mapping[str, Any]
    metadata: Any


class Recorder:
    """Remembers the last time that the engine made metadata of a step."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original
        self._signature = inspect.signature(original)
        self.last: _Call | None = None

    def method(self) -> Callable[..., Any]:
        """What stands in the place of the runner's method."""

        def _build_attention_metadata(runner: Any, *given: Any, **named: Any) -> Any:
            result = self.original(runner, *given, **named)
            bound = self._signature.bind(runner, *given, **named)
            arguments = dict(bound.arguments)
            del arguments["self"]
            self.last = _Call(runner, arguments, result[0])
            return result

        return _build_attention_metadata


_recorder: Recorder | None = None


def install() -> Recorder:
    """Replace what `REPLACED` names, once in a process."""
    global _recorder
    if _recorder is None:
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        _recorder = Recorder(GPUModelRunner._build_attention_metadata)
        GPUModelRunner._build_attention_metadata = _recorder.method()
    return _recorder


class Pieces:
    """The forward contexts of the pieces of one step after the other."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._contexts: dict[tuple[int, int], Any] = {}
        self.cut = False

    def context(self, rows: slice) -> AbstractContextManager[None]:
        """What a step of the piece with these tokens runs in."""
        from vllm.forward_context import override_forward_context

        found: AbstractContextManager[None] = override_forward_context(
            self._contexts[rows.start, rows.stop]
        )
        return found

    def open(self, rows: Sequence[slice]) -> str:
        """Make the contexts of a step that is to run in pieces with these tokens.

        Gives the reason where it cannot: then the step has to run whole. `cut` tells
        whether there was metadata to cut, which trial runs of the engine have not.
        """
        from vllm.config import CUDAGraphMode
        from vllm.forward_context import get_forward_context

        self._contexts.clear()
        self.cut = False
        whole = get_forward_context()
        if whole.ubatch_slices is not None:
            return "the engine runs it in microbatches of its own"
        if whole.cudagraph_runtime_mode == CUDAGraphMode.FULL:
            return "the engine captures it as one graph"
        if whole.dp_metadata is not None:
            return "its tokens are counted across ranks of data parallelism"
        metadata: Sequence[Any] = [None] * len(rows)
        if whole.attn_metadata is not None:
            call = self._recorder.last
            if call is None or call.metadata is not whole.attn_metadata:
                return "its metadata was not made by the model runner"
            if reason := _refused(call, rows):
                return reason
            metadata = _cut(self._recorder.original, call, rows)
            self.cut = True
        for piece, attention in zip(rows, metadata, strict=True):
            places = {
                layer: mapping[piece] for layer, mapping in whole.slot_mapping.items()
            }
            padding = whole.is_padding
            self._contexts[piece.start, piece.stop] = replace(
                whole,
                attn_metadata=attention,
                slot_mapping=places,
                is_padding=None if padding is None else padding[piece],
            )
        return ""


def _refused(call: _Call, rows: Sequence[slice]) -> str:
    """Why a step may not be cut there."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    if not isinstance(call.metadata, dict):
        return "its metadata is cut already"
    if rows[-1].start >= call.arguments["num_tokens"]:
        return "its last piece would hold nothing but padding"
    if any(g.kernel_block_size for groups in call.runner.attn_groups for g in groups):
        return "its cache has blocks of two sizes"
    count = call.arguments["num_reqs"]
    # The engine's own veto, which it asks where it makes microbatches itself: a prompt
    # may have been found in blocks that another request fills in this very step.
    asked = SimpleNamespace(
        parallel_config=SimpleNamespace(use_ubatching=True),
        input_batch=call.runner.input_batch,
        reorder_batch_threshold=call.runner.reorder_batch_threshold,
    )
    lengths = np.diff(_starts(call))
    if not GPUModelRunner._allow_microbatching(asked, count, lengths):
        return "a request reads blocks that another one writes in the same step"
    return ""


def _cut(
    original: Callable[..., Any], call: _Call, rows: Sequence[slice]
) -> Sequence[Any]:
    """The metadata of each piece, by layers."""
    from vllm.v1.worker.ubatch_utils import UBatchSlice

    _enough_builders(call.runner, len(rows))
    starts = _starts(call)
    tokens = call.arguments["num_tokens"]
    slices = []
    for piece in rows:
        stop = min(piece.stop, tokens)
        # Requests that have tokens of the piece, also those that begin before it.
        first = int(np.searchsorted(starts, piece.start, side="right")) - 1
        last = int(np.searchsorted(starts, stop, side="left"))
        slices.append(UBatchSlice(slice(first, last), slice(piece.start, stop)))
    made, _ = original(call.runner, **{**call.arguments, "ubatch_slices": slices})
    assert len(made) == len(rows)
    return made  # type: ignore[no-any-return]


def _starts(call: _Call) -> Any:
    """Where the tokens of each request begin, and where those of the last one end."""
    count = call.arguments["num_reqs"]
    return call.runner.query_start_loc.np[: count + 1]


def _enough_builders(runner: Any, count: int) -> None:
    """Let each piece have a builder of metadata, as the engine's microbatches have:
    some keep what they build in memory of their own."""
    for group in (group for groups in runner.attn_groups for group in groups):
        have = group.metadata_builders
        if len(have) >= count:
            continue
        block_size = getattr(have[0].kv_cache_spec, "block_size", None)
        group.create_metadata_builders(
            runner.vllm_config, runner.device, block_size, num_metadata_builders=count
        )
        # The first ones may be part of graphs that were captured.
        group.metadata_builders[: len(have)] = have
