"""How a model may be called, whatever its graph is."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError


def check_gradients(examples: Iterable[object]) -> None:
    """Refuse calls that want gradients: executors have none."""
    if not torch.is_grad_enabled():
        return
    if any(isinstance(e, torch.Tensor) and e.requires_grad for e in examples):
        raise DiagnosticError(
            [
                Diagnostic(
                    "DFS821",
                    "the model is called with gradients on, and executors have none",
                    helps=(
                        "call it under torch.inference_mode() or torch.no_grad()",
                        'or let Inductor compile such calls: options={"strict": False}',
                    ),
                )
            ]
        )


def check_autocast(examples: Iterable[object]) -> None:
    """Refuse casts that happen outside of the graph: no module would have them."""
    kinds = {e.device.type for e in examples if isinstance(e, torch.Tensor)}
    if not any(torch.is_autocast_enabled(kind) for kind in sorted(kinds)):
        return
    raise DiagnosticError(
        [
            Diagnostic(
                "DFS821",
                "the model is called under torch.autocast, whose casts are no "
                "operations of its graph",
                helps=("give the model its dtype: model.to(torch.bfloat16)",),
            )
        ]
    )
