"""Normalisations."""

from __future__ import annotations

from collections.abc import Callable

from dynaflow_dsl.graph.rowwise.model import (
    Call,
    Fact,
    RefusedError,
    Rule,
    Shared,
    only_rows,
)


def _refuse_split_weights(call: Call, *places: tuple[int, str]) -> None:
    for position, name in places:
        weight = call.optional(position, name)
        if weight is not None and only_rows(weight) is not None:
            raise RefusedError(f"the {name} of the normalisation is split")


def over_last_axes(*weights: tuple[int, str]) -> Callable[[Call], Fact]:
    """Make the rule of a normalisation over the last axes."""

    def apply(call: Call) -> Fact:
        source, rows = call.tensor(0, "input"), only_rows(call.tensor(0, "input"))
        _refuse_split_weights(call, *weights)
        if rows is None:
            return Shared()
        if rows.axis >= source.rank - len(call.sizes(1, "normalized_shape")):
            raise RefusedError("normalises over the split dimension")
        return rows

    return apply


def group_norm(call: Call) -> Fact:
    """Normalise groups of channels of each sample."""
    rows = only_rows(call.tensor(0, "input"))
    _refuse_split_weights(call, (2, "weight"), (3, "bias"))
    if rows is not None and rows.axis != 0:
        raise RefusedError("normalises over the split dimension")
    return Shared() if rows is None else rows


_STATISTICS = ((3, "running_mean"), (4, "running_var"))


def _refuse_update(call: Call) -> bool:
    """Say whether statistics are of the input; refuse to keep them.

    Torch writes those that are given, though its signature does not say so.
    """
    stored = [place for place in _STATISTICS if call.optional(*place) is not None]
    computes = call.operation.operator != _WITHOUT_TRAINING and (
        call.argument(5, "training") is not False
    )
    if stored and computes:
        raise RefusedError("updates stored statistics, which each microbatch would do")
    return computes or len(stored) < len(_STATISTICS)


def batch_norm(call: Call) -> Fact:
    """Normalise each channel by stored statistics."""
    rows = only_rows(call.tensor(0, "input"))
    _refuse_split_weights(call, (1, "weight"), (2, "bias"), *_STATISTICS)
    computes = _refuse_update(call)
    if rows is None:
        return Shared()
    if computes:
        raise RefusedError("normalises by statistics over the split dimension")
    if rows.axis == 1:
        raise RefusedError("normalises by statistics of channels that are split")
    return rows


def instance_norm(call: Call) -> Fact:
    """Normalise each channel of each sample."""
    rows = only_rows(call.tensor(0, "input"))
    _refuse_split_weights(call, (1, "weight"), (2, "bias"), *_STATISTICS)
    _refuse_update(call)
    if rows is None:
        return Shared()
    if call.argument(5, "use_input_stats") is not True:
        raise RefusedError("normalises by stored statistics")
    if rows.axis != 0:
        raise RefusedError("normalises over the split dimension")
    return rows


_WITHOUT_TRAINING = "aten._native_batch_norm_legit_no_training.default"
_affine = over_last_axes((2, "weight"), (3, "bias"))
_scaled = over_last_axes((2, "weight"))

RULES = {
    "aten.layer_norm.default": Rule(_affine),
    "aten.native_layer_norm.default": Rule(_affine),
    "aten.rms_norm.default": Rule(_scaled),
    "aten._fused_rms_norm.default": Rule(_scaled),
    "aten.group_norm.default": Rule(group_norm),
    "aten.batch_norm.default": Rule(batch_norm, hidden=True),
    _WITHOUT_TRAINING: Rule(batch_norm, hidden=True),
    "aten.instance_norm.default": Rule(instance_norm, hidden=True),
}
