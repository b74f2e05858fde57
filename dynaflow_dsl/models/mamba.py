"""Trace targets for Hugging Face's Mamba with random weights.

A layer keeps no text but a state of one size: the last inputs of its convolution, and
the state of its recurrence. Both come in as inputs and are written in place. `decode`
and `prefill` have one entry each; for a model of your own use `mamba_spec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from transformers import Cache, MambaConfig, MambaForCausalLM
from transformers.cache_utils import LinearAttentionLayer

from dynaflow_dsl.models.architecture import Architecture, WeightOptions
from dynaflow_dsl.trace import Entry, Persistent, TraceSpec

MAMBA = Architecture(
    MambaForCausalLM,
    MambaConfig,
    tiny={
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "state_size": 8,
        "vocab_size": 512,
    },
    published={"2.8b": {"num_hidden_layers": 64, "hidden_size": 2560}},
    fields={
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "state": "state_size",
        "vocab": "vocab_size",
    },
)


class DecodeOptions(WeightOptions, total=False):
    """What `decode` may be given; sizes go before those of the shape."""

    layers: int
    hidden: int
    state: int
    vocab: int
    initializer_range: float


class PromptOptions(DecodeOptions, total=False):
    """What `prefill` may be given: prompts have `sequence` tokens, 8 without it."""

    sequence: int


class StateLayer(LinearAttentionLayer):  # type: ignore[misc]
    """One layer's states, tensors of the caller that are written in place."""

    def __init__(
        self, convolution: torch.Tensor, recurrence: torch.Tensor, *, started: bool
    ) -> None:
        super().__init__()
        self.conv_states[0], self.recurrent_states[0] = convolution, recurrence
        self.conv_kernel_size[0] = convolution.shape[2]
        self.is_conv_states_initialized[0] = True
        self.is_recurrent_states_initialized[0] = True
        self.has_previous_state[0] = started
        self.dtype, self.device = convolution.dtype, convolution.device


class StatefulDecoder(torch.nn.Module):
    """Mamba with the states of its layers as inputs."""

    def __init__(self, model: MambaForCausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        mask: torch.Tensor,
        convolutions: list[torch.Tensor],
        recurrences: list[torch.Tensor],
    ) -> torch.Tensor:
        """Logits of the last position, float [batch, 1, vocab].

        `input_ids` is int64 and `mask` bool, [batch, sequence], false for the padding
        on the left of a prompt. A sequence of one goes on from the states, a longer one
        starts anew, whatever stands in them. `convolutions` has one tensor
        [batch, inner, kernel] per layer, `recurrences` one [batch, inner, state].
        """
        started = input_ids.shape[1] == 1
        layers = [
            StateLayer(convolution, recurrence, started=started)
            for convolution, recurrence in zip(convolutions, recurrences, strict=True)
        ]
        output = self.model(
            input_ids=input_ids,
            attention_mask=mask,
            cache_params=Cache(layers=layers),
            use_cache=True,
        )
        logits: torch.Tensor = output.logits
        return logits[:, -1:]


def decode(**options: Unpack[DecodeOptions]) -> TraceSpec:
    """One token for every row of a batch. Raises ValueError for an unknown size."""
    model = MAMBA.random(options, MAMBA.configuration(options))
    return mamba_spec(model, device=options.get("device", "cpu"))


def prefill(**options: Unpack[PromptOptions]) -> TraceSpec:
    """Prompts of `sequence` tokens, padded on the left.

    Without the library's own kernels the recurrence is a loop, written out in the
    graph token by token: keep `sequence` short. Raises ValueError for an unknown size.
    """
    return mamba_spec(
        MAMBA.random(options, MAMBA.configuration(options)),
        sequence=options.get("sequence", 8),
        decode=False,
        device=options.get("device", "cpu"),
    )


def mamba_spec(
    model: MambaForCausalLM,
    *,
    sequence: int | None = None,
    decode: bool = True,
    device: str = "cpu",
) -> TraceSpec:
    """A trace target for an unedited Mamba.

    `decode` adds the entry `decode`, one token for each row, and `sequence` the entry
    `prefill`, prompts of that length; it is more than one (ValueError).
    """
    if sequence is not None and sequence < 2:
        raise ValueError(f"sequence is {sequence}; a prompt has two tokens or more")
    lengths = {"decode": 1} if decode else {}
    if sequence is not None:
        lengths["prefill"] = sequence
    return TraceSpec(
        model=model,
        adapter=StatefulDecoder,
        root="model",
        entries={
            name: Entry(_Arguments(model, length)) for name, length in lengths.items()
        },
        dims={
            "input_ids": ("batch", None),
            "mask": ("batch", None),
            "convolutions.*": ("batch", None, None),
            "recurrences.*": ("batch", None, None),
        },
        dimensions={"batch": (1, None)},
        persistent={
            "convolutions": Persistent(padding="scratch"),
            "recurrences": Persistent(padding="scratch"),
        },
        facts=MAMBA.facts(model.config),
        device=device if model.device.type == "meta" else model.device.type,
        dtype=model.dtype,
    )


class _Arguments:
    """Example arguments for one sequence length, with random states."""

    def __init__(self, model: MambaForCausalLM, length: int) -> None:
        self.config, self.length = model.config, length
        self.device, self.dtype = model.device, model.dtype

    def __call__(self, sizes: Mapping[str, int]) -> tuple[Any, ...]:
        rows, length, config = sizes["batch"], self.length, self.config
        lengths = torch.randint(1, length + 1, (rows, 1))
        mask = torch.arange(length)[None, :] >= length - lengths
        ids = torch.randint(0, config.vocab_size, (rows, length))
        return (
            ids.to(self.device),
            mask.to(self.device),
            self._states(rows, config.conv_kernel),
            self._states(rows, config.state_size),
        )

    def _states(self, rows: int, width: int) -> list[torch.Tensor]:
        shape = (rows, self.config.intermediate_size, width)
        return [
            torch.randn(shape, dtype=self.dtype, device=self.device)
            for _ in range(self.config.num_hidden_layers)
        ]
