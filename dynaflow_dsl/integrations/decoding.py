"""Calls of a causal language model as prefill and decode steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from dynaflow_dsl.integrations.errors import ScheduleError
from dynaflow_dsl.integrations.forwards import ScheduledForward
from dynaflow_dsl.integrations.making import MadeModule, Step
from dynaflow_dsl.integrations.step_cache import StepLayer, StepMemory, step_layers
from dynaflow_dsl.models.cache import cache_shapes

# The arguments of `dynaflow_dsl.models.cache.CachedDecoder`.
INPUTS = ("input_ids", "position", "mask", "slot", "keys", "values")

# What a step does anyway, or has no use for.
_KNOWN = frozenset(
    {
        "attention_mask",
        "input_ids",
        "logits_to_keep",
        "past_key_values",
        "position_ids",
        "return_dict",
        "use_cache",
    }
)

# What a call may leave to the configuration.
_OF_CONFIGURATION = (
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
)

Prompts: TypeAlias = int | Literal["any"] | None


@dataclass(frozen=True, slots=True)
class Lengths:
    """What the entries of a module take.

    `capacity` is the length of the cache, `prompts` that of what the entry `prefill`
    takes at once; None where there is no such entry. `decode` says if there is that.
    """

    capacity: int
    prompts: Prompts
    decode: bool


def lengths_of(entries: Mapping[str, Mapping[str, Any]], module: str) -> Lengths:
    """The lengths of a module's entries; `module` is its name, for messages.

    Raises ScheduleError (DFS830) for one that is made for other steps.
    """
    for name, inputs in entries.items():
        if name not in ("prefill", "decode") or tuple(inputs) != INPUTS:
            raise ScheduleError(
                "DFS830",
                f"{module} has the entry `{name}` with the inputs "
                f"{', '.join(inputs)}; generate() takes steps `prefill` and `decode` "
                f"with {', '.join(INPUTS)}, as `decoder_spec` makes them.",
            )
    capacities = {_size(inputs["mask"], 1) for inputs in entries.values()}
    capacity = capacities.pop()
    assert isinstance(capacity, int)
    if capacities:
        raise ScheduleError("DFS830", f"{module} has caches of different lengths.")
    prompts: Prompts = None
    if "prefill" in entries:
        length = _size(entries["prefill"]["input_ids"], 1)
        prompts = length if isinstance(length, int) else "any"
    return Lengths(capacity, prompts, "decode" in entries)


class DecoderForward(ScheduledForward):
    """The forward of a causal language model whose steps a module runs."""

    def __init__(
        self,
        model: PreTrainedModel,
        made: MadeModule,
        steps: Mapping[str, Step],
        lengths: Lengths,
        strict: bool,
    ) -> None:
        super().__init__(model, strict)
        self.modules.append(made)
        self.model: PreTrainedModel = model
        self.steps, self.lengths = steps, lengths
        self.memory = StepMemory(cache_shapes(model), lengths.capacity)

    def run(self, given: dict[str, Any]) -> Any:
        """Steps where the call is some, the model's own forward where it is not."""
        if (reason := self._other_call(given)) is not None:
            return self.own(reason, given)
        if given.get("past_key_values") is None:
            given["past_key_values"] = DynamicCache()
        cache = given["past_key_values"]
        layers = step_layers(cache)
        if layers is None:
            # A generation begins, which is the time to look at the whole model.
            if (reason := self.watch.change()) is not None:
                return self.own(reason, given)
            rows, _ = given["input_ids"].shape
            if not self.memory.fill(cache, rows, given["input_ids"].device):
                return self.own(_other_cache(cache), given)
            layers = [*cache.layers]
        entry = "decode" if given["input_ids"].shape[1] == 1 else "prefill"
        if entry not in self.steps:
            return self.own(f"the module has no entry `{entry}`", given, expected=True)
        chunk = self._chunk(entry, given, layers)
        if isinstance(chunk, str):
            return self.own(chunk, given)
        return self._run(entry, chunk, layers, cache)

    def _other_call(self, given: Mapping[str, Any]) -> str | None:
        """What a call asks for that no step gives."""
        for name, value in given.items():
            if name not in _KNOWN and value is not None and value is not False:
                return f"it is called with `{name}`"
        config = self.model.config
        for name in _OF_CONFIGURATION:
            if given.get(name) is None and getattr(config, name, False):
                return f"its configuration has `{name}`"
        for name in ("use_cache", "return_dict"):
            wanted = given.get(name)
            if not (getattr(config, name, True) if wanted is None else wanted):
                return f"`{name}` is False"
        ids = given.get("input_ids")
        if not isinstance(ids, torch.Tensor) or ids.ndim != 2 or ids.numel() == 0:
            return "it is called without `input_ids`"
        if ids.shape[1] > 1 and not _is_one(given.get("logits_to_keep")):
            return "more logits are wanted than those of the last token"
        return None

    def _chunk(
        self, entry: str, given: Mapping[str, Any], layers: Sequence[StepLayer]
    ) -> _Chunk | str:
        """The tokens of a call and where they go, or why they are no step."""
        ids, (first, *_) = given["input_ids"], layers
        rows, length = ids.shape
        held = first.get_seq_length()
        start = first.start if held else 0
        if entry == "prefill" and isinstance(self.lengths.prompts, int):
            missing = -length % self.lengths.prompts
            if held and missing:
                return (
                    f"{length} tokens come after others, and the module takes "
                    f"{self.lengths.prompts} at once"
                )
            start += missing
        end = start + held + length
        capacity, places = self.lengths.capacity, first.keys.shape[2]
        if end > capacity:
            return (
                f"the text needs more than the {capacity} places of the cache: "
                "`capacity` gives it more"
            )
        if places != capacity:
            return f"it brings a cache of {places} places, and steps take {capacity}"
        if first.batch_size != rows:
            return f"the cache has {first.batch_size} rows, and the call {rows}"
        mask = given.get("attention_mask")
        if mask is not None and mask.shape != (rows, held + length):
            shape = tuple(mask.shape)
            return f"its mask has the shape {shape}, not {(rows, held + length)}"
        if mask is not None and length > 1 and _ends_in_padding(mask):
            return "prompts are padded on the right"
        position = given.get("position_ids")
        if position is None:
            position = torch.arange(held, held + length, device=ids.device)[None]
        if position.ndim != 2 or position.shape[1] != length:
            return f"its positions have the shape {tuple(position.shape)}"
        return _Chunk(ids, position.expand(rows, length), mask, start, end)

    def _run(
        self, entry: str, chunk: _Chunk, layers: Sequence[StepLayer], cache: Cache
    ) -> CausalLMOutputWithPast:
        """All steps of a call: one, or as many as a long prompt takes."""
        ids, position = chunk.ids.long(), chunk.position.long()
        rows, length = ids.shape
        first = chunk.end - length
        taken = length
        if entry == "prefill" and isinstance(self.lengths.prompts, int):
            taken = self.lengths.prompts
            if missing := -length % taken:
                ids, position = (
                    torch.nn.functional.pad(one, (missing, 0))
                    for one in (ids, position)
                )
                first -= missing
        keys = [layer.keys for layer in layers]
        values = [layer.values for layer in layers]
        logits: torch.Tensor | None = None
        for begin in range(first, chunk.end, taken):
            columns = slice(begin - first, begin - first + taken)
            logits = self.step(
                entry,
                self.steps[entry],
                ids[:, columns].contiguous(),
                position[:, columns].contiguous(),
                self._mask(chunk, rows, begin + taken),
                torch.arange(begin, begin + taken, device=ids.device),
                keys,
                values,
            )
        for layer in layers:
            layer.start, layer.end = chunk.start, chunk.end
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)

    def _mask(self, chunk: _Chunk, rows: int, end: int) -> torch.Tensor:
        """Places that hold a token once those before `end` are written."""
        mask = torch.zeros(
            rows, self.lengths.capacity, dtype=torch.bool, device=chunk.ids.device
        )
        written = mask[:, chunk.start : end]
        if chunk.mask is None:
            written.fill_(True)
        else:
            written.copy_(chunk.mask[:, : end - chunk.start])
        return mask


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The tokens of one call: int [rows, tokens], and their positions.

    They go to the last places before `end`. `mask`, [rows, end - start], is of the
    places from `start` on, None if all hold tokens; those before are padding.
    """

    ids: torch.Tensor
    position: torch.Tensor
    mask: torch.Tensor | None
    start: int
    end: int


def _other_cache(cache: object) -> str:
    kind = type(cache).__name__
    if kind == "DynamicCache":
        return "its DynamicCache holds other rows, or only the last part of a text"
    return f"its cache is a {kind}, and steps write a DynamicCache"


def _ends_in_padding(mask: torch.Tensor) -> bool:
    """Whether a row has tokens and then padding; a piece of a prompt may have none."""
    tokens = mask.bool()
    return bool((tokens.any(1) & ~tokens[:, -1]).any())


def _is_one(value: object) -> bool:
    return type(value) is int and value == 1


def _size(spec: Any, axis: int) -> int | str:
    """One size of an input; what is no single tensor has none."""
    size: int | str = spec.shape[axis]
    return size
