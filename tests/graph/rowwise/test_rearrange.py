import pytest
import torch
from torch.nn import functional

from tests.graph.rowwise.cases import Case, accepted, check_case, refused
from tests.graph.rowwise.tracing import rows, shared, whole_numbers

CASES = [
    accepted("cat behind", lambda a, b: torch.cat([a, b], -1), rows(4), rows(2)),
    accepted("cat in front, other axis", lambda a: torch.cat([a.t(), a.t()]), rows(4)),
    accepted(
        "stack in front and unstack", lambda a: torch.stack([a, -a])[1] + 1, rows(4)
    ),
    accepted("stack behind", lambda a: torch.stack([a, -a], -1), rows(4)),
    accepted("stack on a middle axis", lambda a: torch.stack([a, -a], 1), rows(4)),
    accepted("repeat the width", lambda a: a.repeat(1, 3), rows(4)),
    accepted("repeat in front", lambda a: a.repeat(2, 1, 1), rows(4)),
    accepted(
        "repeat a shared row",
        lambda a, b: a + b.repeat(a.shape[0], 1),
        rows(4),
        shared(1, 4),
    ),
    accepted("tile", lambda a: a.tile((3,)), rows(4)),
    accepted("repeat heads", lambda a: a.repeat_interleave(2, dim=1), rows(2, 4)),
    accepted("repeat rows in place", lambda a: a.repeat_interleave(3, dim=0), rows(4)),
    accepted("flip behind", lambda a: a.flip(1), rows(4)),
    accepted("roll behind", lambda a: a.roll(1, -1), rows(4)),
    accepted("tril of matrices", lambda a: a.tril(), rows(4, 4)),
    accepted("pad behind", lambda a: functional.pad(a, (1, 2)), rows(4)),
    accepted(
        "reflect", lambda a: functional.pad(a, (1, 1), mode="reflect"), rows(2, 4)
    ),
    accepted("pixel_shuffle", lambda a: functional.pixel_shuffle(a, 2), rows(4, 2, 2)),
    accepted(
        "one_hot",
        lambda a: functional.one_hot(a, 7),
        whole_numbers(7, "batch", 2),
    ),
    accepted(
        "repeat rows as a block and take one",
        lambda a: a.repeat(2, 1).view(2, -1, 4)[1] + 1,
        rows(4),
    ),
    refused("cat rows", "do not lie together", lambda a: torch.cat([a, a]), rows(4)),
    refused(
        "cat different rows",
        "different numbers of rows",
        lambda a: torch.cat([a.view(-1, 4), a[:, 0]]),
        rows(2, 4),
    ),
    refused(
        "repeat blocks of rows",
        "do not lie together",
        lambda a: a.repeat(2, 1),
        rows(4),
    ),
    refused("repeat by the batch", "twice", lambda a: a.repeat(1, a.shape[0]), rows(4)),
    refused("flip rows", "reverses", lambda a: a.flip(0), rows(4)),
    refused("flip all", "reverses", lambda a: a.flip(0, 1), rows(4)),
    refused("roll rows", "rolls", lambda a: a.roll(1, 0), rows(4)),
    refused("roll flat", "rolls", lambda a: a.roll(1), rows(4)),
    refused("triu of rows", "position", lambda a: a.triu(), rows(4)),
    accepted("pad rows by nothing", lambda a: functional.pad(a, (1, 0, 0, 0)), rows(4)),
    accepted(
        "cat with nothing",
        lambda a: torch.cat([torch.zeros(0), torch.relu(a)], 1),
        rows(4),
    ),
    accepted(
        "reflect", lambda a: functional.pad(a, (1, 1), mode="reflect"), rows(2, 4)
    ),
    accepted(
        "replicate",
        lambda a: functional.pad(a, (1, 1, 1, 0), mode="replicate"),
        rows(2, 4, 4),
    ),
    accepted("channels", lambda a: functional.channel_shuffle(a, 2), rows(4, 2, 2)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rearrange(case: Case) -> None:
    check_case(case)
