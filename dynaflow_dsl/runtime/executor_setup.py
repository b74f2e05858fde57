"""What an executor is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.graphs import GraphBackend
from dynaflow_dsl.runtime.kernels import ComparedOnce
from dynaflow_dsl.runtime.ranks import Ranks
from dynaflow_dsl.runtime.report import NOTHING_FETCHED, Estimate, FetchedMemory
from dynaflow_dsl.runtime.streams import Streams

# A part with its weights: called with the iteration's inputs.
Call: TypeAlias = Callable[..., Any]

# From the rows of a piece to what its steps run in.
Context: TypeAlias = Callable[[slice], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Setup:
    """What an executor is made of when its module is loaded.

    `calls` holds one callable per iteration of each part. `explain` adds to an
    exception where in the schedule it was raised. `graphs` records steps; None where
    nothing is captured. With `lend`, what a captured step returns is the graph's own
    memory. `fetched` is what parts that bring weights hold, and `trusted` the kernels
    among `calls` that are compared in their first call. `estimate` bounds the memory of
    steps that are to be captured. `ranks` are those that run the module together, None
    where it has no collectives. `context` is what steps of pieces run in, for
    modules that need it.
    """

    calls: Mapping[str, Sequence[Call]]
    streams: Streams
    device: torch.device
    explain: Callable[[BaseException], None]
    always_sequential: bool = False
    graphs: GraphBackend | None = None
    lend: bool = False
    fetched: FetchedMemory = NOTHING_FETCHED
    trusted: Sequence[ComparedOnce] = ()
    estimate: Estimate | None = None
    ranks: Ranks | None = None
    context: Context | None = None
