"""Trace targets for Hugging Face's Mamba with random weights.

A layer keeps no text but a state of one size: the last inputs of its convolution, and
the state of its recurrence. Both come in as inputs and are written in place. `decode`
and `prefill` have one entry each; for a model of your own use `mamba_spec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import Cache, MambaConfig, MambaForCausalLM
from transformers.cache_utils import LinearAttentionLayer

from dynaflow_dsl.models.random_weights import random_model, shape_of
from dynaflow_dsl.trace import Entry, Persistent, TraceSpec


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


def decode(
    size: str = "tiny",
    layers: int = 4,
    hidden: int = 64,
    state: int = 8,
    vocab: int = 512,
    dtype: str = "float32",
    device: str = "cpu",
    meta: bool = False,
    seed: int = 0,
    initializer_range: float = 0.3,
) -> TraceSpec:
    """One token for every row of a batch.

    `size` is `tiny`, made of the sizes given, or `2.8b`, as published. Raises
    ValueError for any other.
    """
    config = _configuration(size, layers, hidden, state, vocab, initializer_range)
    model = random_model(
        MambaForCausalLM, config, dtype=dtype, device=device, meta=meta, seed=seed
    )
    return mamba_spec(model, device=device)


def prefill(
    size: str = "tiny",
    layers: int = 4,
    hidden: int = 64,
    state: int = 8,
    vocab: int = 512,
    sequence: int = 8,
    dtype: str = "float32",
    device: str = "cpu",
    meta: bool = False,
    seed: int = 0,
    initializer_range: float = 0.3,
) -> TraceSpec:
    """Prompts of `sequence` tokens, padded on the left.

    Without the library's own kernels the recurrence is a loop, written out in the
    graph token by token: keep `sequence` short. `size` is as for `decode`.
    """
    config = _configuration(size, layers, hidden, state, vocab, initializer_range)
    model = random_model(
        MambaForCausalLM, config, dtype=dtype, device=device, meta=meta, seed=seed
    )
    return mamba_spec(model, sequence=sequence, decode=False, device=device)


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
    config = model.config
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
        facts={
            "layers": config.num_hidden_layers,
            "hidden": config.hidden_size,
            "state": config.state_size,
            "vocab": config.vocab_size,
        },
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


def _configuration(
    size: str, layers: int, hidden: int, state: int, vocab: int, spread: float
) -> MambaConfig:
    tiny = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "state_size": state,
        "vocab_size": vocab,
        "initializer_range": spread,
    }
    large = {"num_hidden_layers": 64, "hidden_size": 2560}
    return MambaConfig(**shape_of(size, {"tiny": tiny, "2.8b": large}))
