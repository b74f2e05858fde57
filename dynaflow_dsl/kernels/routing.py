"""Where the rows of a rank's experts lie, found on the device from everybody's choices.

A stable counting sort: counts of blocks of tokens, one running sum, and places. Nothing
waits for the host, so a captured step takes whatever routing comes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dynaflow_dsl.kernels.tiles import power_of_two

# A program counts the choices of so many tokens, fewer where it has many experts: the
# table of the two is in its registers.
_TOKENS = 64
_TABLE = 4096


@dataclass(frozen=True, slots=True)
class Places:
    """The places of all ranks' choices among the rows that this rank receives.

    `experts`, int64 [ranks, tokens, choices], are the choices; `of_choice`, int32 of
    the same shape, is -1 where an expert is another rank's. `sums`, int32, is the
    running sum that `count_choices` describes, with `blocks` of each rank's tokens.
    """

    experts: torch.Tensor
    of_choice: torch.Tensor
    sums: torch.Tensor
    blocks: int
    local: int
    rank: int


def find_places(experts: torch.Tensor, local: int, rank: int) -> Places:
    """The places of `experts`, all ranks' choices, on a rank that holds `local`."""
    from dynaflow_dsl.kernels import exchange_launches

    ranks, tokens, choices = experts.shape
    held = power_of_two(local)
    together = max(min(_TOKENS, _TABLE // held), 1)
    blocks = -(-tokens // together)
    grid = (blocks, ranks)
    table = experts.new_empty((local + ranks) * ranks * blocks, dtype=torch.int32)
    exchange_launches.count_choices[grid](
        experts,
        table,
        tokens,
        rank * local,
        local,
        CHOICES=choices,
        TOKENS=together,
        EXPERTS=held,
        RANKS=power_of_two(ranks),
    )
    sums = table.cumsum(0, dtype=torch.int32)
    of_choice = torch.empty_like(experts, dtype=torch.int32)
    exchange_launches.place_choices[grid](
        experts,
        sums,
        of_choice,
        tokens,
        rank * local,
        local,
        CHOICES=choices,
        TOKENS=together,
        EXPERTS=held,
    )
    return Places(experts, of_choice, sums, blocks, local, rank)
