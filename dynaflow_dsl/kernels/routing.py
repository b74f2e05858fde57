"""Where the rows of a rank's experts lie, found on the device from everybody's choices.

A stable counting sort in two kernels: counts of blocks of tokens, and places, behind
the sum of what was counted before them. Nothing waits for the host, so a captured step
takes whatever routing comes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dynaflow_dsl.kernels.tiles import power_of_two

# A program counts the choices of so many tokens at once, fewer where it has many
# experts: the table of the two is in its registers.
_TOKENS = 64
_TABLE = 4096
# Every program reads what all of them counted.
_PROGRAMS = 256


@dataclass(frozen=True, slots=True)
class Places:
    """The places of all ranks' choices among the rows that this rank receives.

    `experts`, int64 [tokens, choices], are the choices of its own tokens, and
    `of_choice`, int32 [ranks, tokens, choices], the places, -1 where an expert is
    another rank's. `ends`, int32 [local], says where the rows of each of its experts
    end, `arrived`, int64 [ranks, local], how many each rank sent for each, and
    `needed`, int32 [ranks], how many rows each rank receives.
    """

    experts: torch.Tensor
    of_choice: torch.Tensor
    ends: torch.Tensor
    arrived: torch.Tensor
    needed: torch.Tensor
    local: int
    rank: int


def find_places(
    experts: torch.Tensor, sent: torch.Tensor, local: int, rank: int
) -> Places:
    """The places of all ranks' choices on a rank that holds `local` experts.

    `experts`, [tokens, choices], are those of its own tokens, and `sent`, [ranks,
    tokens, choices], has those of others: its own share there is not read.
    """
    from dynaflow_dsl.kernels import exchange_launches

    ranks, tokens, choices = sent.shape
    held = power_of_two(local)
    together = max(min(_TOKENS, _TABLE // held), 1)
    most = max(_PROGRAMS // ranks, 1)
    tiles = max(-(-tokens // (together * most)), 1)
    blocks = max(-(-tokens // (together * tiles)), 1)
    grid = (blocks, ranks)
    table = experts.new_empty((local + ranks) * ranks * blocks, dtype=torch.int32)
    exchange_launches.count_choices[grid](
        experts,
        sent,
        table,
        tokens,
        tiles,
        rank,
        local,
        CHOICES=choices,
        TOKENS=together,
        EXPERTS=held,
        RANKS=power_of_two(ranks),
    )
    of_choice = torch.empty_like(sent, dtype=torch.int32)
    ends = experts.new_empty(local, dtype=torch.int32)
    arrived = experts.new_empty(ranks, local)
    needed = experts.new_empty(ranks, dtype=torch.int32)
    exchange_launches.place_choices[grid](
        experts,
        sent,
        table,
        of_choice,
        ends,
        arrived,
        needed,
        tokens,
        tiles,
        rank,
        local,
        CHOICES=choices,
        TOKENS=together,
        EXPERTS=held,
    )
    return Places(experts, of_choice, ends, arrived, needed, local, rank)
