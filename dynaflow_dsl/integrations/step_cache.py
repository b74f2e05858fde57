"""A cache of `transformers` whose tensors are the inputs of scheduled steps.

Nothing is copied between a step and the library: a layer of the cache holds the tensors
that steps write in place, and gives views of them to the model's own forward. So any
call may be a step or the model's own, one after the other, on one cache.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer

from dynaflow_dsl.models.cache import LayerShape, make_caches


class StepLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values, [rows, heads, capacity, width], from the left.

    The places before `start` are padding of a prompt, those from `end` on are free. A
    call that does not fit gets a longer tensor, which steps do not take.
    """

    is_sliding = False
    is_croppable = True
    supports_early_init = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.dtype, self.device = keys.dtype, keys.device
        self.start = self.end = 0
        self.is_initialized = True

    @property
    def batch_size(self) -> int:
        """The number of rows."""
        return int(self.keys.shape[0])

    def lazy_initialization(
        self, key_states: torch.Tensor, value_states: torch.Tensor
    ) -> None:
        """Nothing is left to be done."""

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new places; return all that hold a token, without copying them."""
        end = self.end + key_states.shape[2]
        self._make_room(end)
        self.keys[:, :, self.end : end] = key_states
        self.values[:, :, self.end : end] = value_states
        self.end = end
        return self.keys[:, :, self.start : end], self.values[:, :, self.start : end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The number of places that the next call sees, and where they begin."""
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        """The number of tokens, padding of the caller's included."""
        return self.end - self.start

    def get_max_length(self) -> int:
        """No maximum: what does not fit gets more memory."""
        return -1

    def get_max_cache_shape(self) -> int:
        """What `get_max_length` was called before transformers 5.13."""
        return -1

    def reset(self) -> None:
        """Forget all tokens."""
        self.keys.zero_()
        self.values.zero_()
        self.start = self.end = 0

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens; a positive number says how many are to be left."""
        length = self.get_seq_length()
        left = length + tokens_to_remove if tokens_to_remove <= 0 else tokens_to_remove
        self.end = self.start + max(0, min(length, left))

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Let row k go on from what row `beam_idx[k]` has, in the same memory."""
        places = slice(self.start, self.end)
        for tensor in (self.keys, self.values):
            rows = tensor[:, :, places].index_select(0, beam_idx.to(tensor.device))
            tensor[:, :, places] = rows

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each row several times."""
        self.keys = self.keys.repeat_interleave(repeats, dim=0)
        self.values = self.values.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Only some of the rows."""
        self.keys = self.keys[indices].contiguous()
        self.values = self.values[indices].contiguous()

    def _make_room(self, places: int) -> None:
        missing = places - self.keys.shape[2]
        if missing > 0:
            # By a half again, so that growing token by token copies each a few times.
            more = max(missing, self.keys.shape[2] // 2)
            self.keys = _longer(self.keys, more)
            self.values = _longer(self.values, more)


class StepMemory:
    """The memory of one model's caches: one is used again when its cache is gone.

    Steps that are captured in a graph need it where it was, whatever the batch: a
    smaller one takes the first rows.
    """

    def __init__(self, shapes: Sequence[LayerShape], capacity: int) -> None:
        self.shapes, self.capacity = shapes, capacity
        self._tensors: tuple[list[torch.Tensor], list[torch.Tensor]] | None = None
        self._user: weakref.ref[Cache] | None = None

    def fill(self, cache: Cache, rows: int, device: torch.device) -> bool:
        """Give an empty or plain cache layers of this memory; False for others.

        What a cache of full layers holds already is copied, once.
        """
        held = _held(cache, len(self.shapes))
        if held is None or (held and held[0][0].shape[0] != rows):
            return False
        layers = [StepLayer(*pair) for pair in self._take(cache, rows, device)]
        for layer, (keys, values) in zip(layers, held, strict=False):
            layer.update(keys, values)
        cache.layers = layers
        return True

    def _take(
        self, cache: Cache, rows: int, device: torch.device
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        free = self._user is None or self._user() is None
        kept = self._tensors
        fits = kept is not None and kept[0][0].shape[0] >= rows
        if kept is None or not free or not fits or kept[0][0].device != device:
            # Memory that is made in inference mode could be written there alone.
            with torch.inference_mode(False):
                made = make_caches(self.shapes, rows, self.capacity, device)
            if not free:
                return list(zip(*made, strict=True))
            kept = self._tensors = made
        self._user = weakref.ref(cache)
        pairs = [(k[:rows], v[:rows]) for k, v in zip(*kept, strict=True)]
        for pair in pairs:
            for tensor in pair:
                # A number that is not finite would go through a mask.
                tensor.zero_()
        return pairs


def step_layers(cache: object) -> list[StepLayer] | None:
    """The layers of a cache that steps can use; None for another cache."""
    layers = cache.layers if isinstance(cache, Cache) else []
    if not layers or not all(type(layer) is StepLayer for layer in layers):
        return None
    return list(layers)


def _held(cache: Cache, count: int) -> list[tuple[torch.Tensor, torch.Tensor]] | None:
    """What a plain cache holds, nothing if it is empty; None for another kind."""
    if type(cache) is not DynamicCache or cache.offloading:
        return None
    if cache.get_seq_length() == 0:
        return []
    plain = all(type(layer) is DynamicLayer for layer in cache.layers)
    if not plain or len(cache.layers) != count:
        return None
    return [(layer.keys, layer.values) for layer in cache.layers]


def _longer(tensor: torch.Tensor, places: int) -> torch.Tensor:
    rows, heads, _, width = tensor.shape
    return torch.cat([tensor, tensor.new_zeros(rows, heads, places, width)], dim=2)
