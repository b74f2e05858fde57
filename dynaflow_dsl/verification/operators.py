"""What an operator's schema says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def written_tensors(
    func: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> list[torch.Tensor]:
    """The tensors that an operator writes in place, by its schema."""
    found: list[torch.Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[position] if position < len(args) else named.get(argument.name)
        found += [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]
    return found
