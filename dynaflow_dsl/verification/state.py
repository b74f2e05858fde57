"""The buffers of a model: put back before each run, and what a run made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

# What a buffer's name begins with, where it stands among those of inputs.
BUFFER = "buffer "


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer as it was: its holder, the tensor itself, and a copy of its content."""

    owner: torch.nn.Module
    name: str
    tensor: torch.Tensor
    content: torch.Tensor


class ModelState:
    """Lets several runs start from the same buffers.

    A run may write into a buffer or put another tensor into its place. Weights are left
    out: inference does not change them, and copies would take as much memory again.
    """

    def __init__(self, *modules: torch.nn.Module) -> None:
        self._buffers: dict[str, Buffer] = {}
        known: set[int] = set()
        for module in modules:
            for path, submodule in module.named_modules():
                for name, tensor in submodule._buffers.items():
                    if tensor is None or id(tensor) in known:
                        continue
                    known.add(id(tensor))
                    label = BUFFER + (f"{path}.{name}" if path else name)
                    content = tensor.detach().clone()
                    self._buffers[label] = Buffer(submodule, name, tensor, content)

    def restore(self) -> None:
        """Put every buffer back as it was."""
        with torch.no_grad():
            for label in list(self._changed()):
                buffer = self._buffers[label]
                buffer.owner._buffers[buffer.name] = buffer.tensor
                buffer.tensor.copy_(buffer.content)

    def effects(self) -> dict[str, torch.Tensor]:
        """Copies of the buffers that are not as they were, by label."""
        return {label: self._now(label).clone() for label in self._changed()}

    def completed(
        self, effects: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """`effects`, and the buffers of `others` that were left as they were."""
        unchanged = {label: self._buffers[label].content for label in others}
        return dict(sorted({**unchanged, **effects}.items()))

    def _now(self, label: str) -> torch.Tensor:
        buffer = self._buffers[label]
        tensor = buffer.owner._buffers[buffer.name]
        return buffer.tensor.detach() if tensor is None else tensor.detach()

    def _changed(self) -> Iterator[str]:
        for label, buffer in self._buffers.items():
            now = self._now(label)
            if buffer.owner._buffers[buffer.name] is not buffer.tensor or not same_bits(
                now, buffer.content
            ):
                yield label


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have one dtype, one shape and the same bits."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    # One dimension more, since the last is what `view` reinterprets.
    return tensor.detach().contiguous().unsqueeze(-1).view(torch.uint8)
