"""What the plug-in of a serving engine would say of its operators."""

from __future__ import annotations

from dynaflow_dsl.operations.effects import OperationEffects
from dynaflow_dsl.operations.rows import OperationRows

OPERATIONS = (
    OperationEffects(("engine.cache_write",), writes=("kv_cache",)),
    OperationEffects(("engine.cache_read",), reads=("kv_cache",)),
    OperationEffects(
        ("engine.dispatch", "engine.combine"),
        uses=("deep_ep_buffer",),
        collective=True,
    ),
    OperationEffects(("engine.grouped_gemm",), uses=("moe_workspace",)),
    OperationEffects(("engine.one_shot_sum",), uses=("symmetric_buffer",)),
    OperationEffects(("engine.plan_attention", "engine.look_up"), waits_on_host=True),
    OperationRows("engine.look_up", arguments=(0,), results=(0,)),
)
