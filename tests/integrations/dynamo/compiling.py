"""Models compiled with the backend, as a user does it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from tests.integrations.dynamo.models import Stack, evaluated


def compiled(model: Any, schedule: str, **options: Any) -> Any:
    """Eager executors, unless a test asks for more: what is compared is bits."""
    options = {"compile": False, "dims": {"x": ("batch", None)}, **options}
    return torch.compile(
        model, backend="dynaflow", options={"schedule": schedule, **options}
    )


def step(**options: Any) -> Any:
    """A stack whose axes have names."""
    options = {"compile": False, "dims": {"x": ("batch", None)}, **options}
    return torch.compile(evaluated(Stack()), backend="dynaflow", options=options)


def refused(called: Any, rows: int = 4) -> Diagnostic:
    """What a call of a step is refused for."""
    with pytest.raises(DiagnosticError) as raised:
        called(torch.randn(rows, 8))
    first, *_ = raised.value.diagnostics
    return first
