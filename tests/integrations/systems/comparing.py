"""Scheduled steps of a model beside those of its own code; what came of it, as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from dynaflow_dsl.integrations import report
from dynaflow_dsl.integrations.dynamo.backend import register
from dynaflow_dsl.runtime import Split

HERE = Path(__file__).parent

# Whether parts are compiled, or run as their text.
PARTS = {"compile": os.environ.get("COMPILED") == "1"}

RANK = int(os.environ.get("RANK", "0"))
RANKS = int(os.environ.get("WORLD_SIZE", "1"))


def prepare() -> None:
    """Random weights are the same in every run, and the backend is known."""
    register()
    torch.manual_seed(0)


def fill(model: nn.Module) -> nn.Module:
    """Give a model weights of a size at which no step of it vanishes."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    return model.eval()


def compare(
    step: Callable[..., Any],
    model: nn.Module,
    make: Callable[[int], Mapping[str, Any]],
) -> None:
    """Print how far a scheduled model is from the unscheduled one, for three batches.

    `make` gives the arguments of a step with so many rows: four and seven are cut, one
    is too few. `pieces` counts how often pieces were asked for, by the rows of a step.
    """
    pieces: dict[int, int] = {}
    cut = Split.slices

    def counted(split: Split, size: int) -> tuple[slice, ...]:
        pieces[size] = pieces.get(size, 0) + 1
        return cut(split, size)

    furthest, largest = 0.0, 0.0
    with torch.no_grad(), patch.object(Split, "slices", counted):
        for rows in (4, 7, 1):
            given = make(rows)
            expected, got = _tensor(model(**given)), _tensor(step(**given))
            furthest = max(furthest, float((got - expected).abs().max()))
            largest = max(largest, float(expected.abs().max()))
    scheduled = [graph for graph in report().graphs if graph.module is not None]
    found = {
        "furthest": furthest,
        "largest": largest,
        "pieces": pieces,
        "parts": [[name, list(paths)] for name, paths in scheduled[0].parts],
    }
    print(json.dumps(found), flush=True)


def _tensor(result: Any) -> torch.Tensor:
    if isinstance(result, torch.Tensor):
        return result
    found = result[0]
    assert isinstance(found, torch.Tensor)
    return found
