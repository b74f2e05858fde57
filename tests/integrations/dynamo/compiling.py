"""Models compiled with the backend, as a user does it."""

from __future__ import annotations

from typing import Any

import torch


def compiled(model: Any, schedule: str, **options: Any) -> Any:
    """Eager executors, unless a test asks for more: what is compared is bits."""
    options = {"compile": False, "dims": {"x": ("batch", None)}, **options}
    return torch.compile(
        model, backend="dynaflow", options={"schedule": schedule, **options}
    )
