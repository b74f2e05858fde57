"""What is known of vLLM's operators.

Attention finds its places in the caches by metadata that the engine keeps beside the
graph, so neither is an argument. Layers are named by tensors here (`dynaflow_vllm`),
see `dynaflow_dsl.integrations.vllm.layer_names`.
"""

from __future__ import annotations

from dynaflow_dsl.operations.aliases import OperationAlias
from dynaflow_dsl.operations.effects import OperationEffects
from dynaflow_dsl.operations.plugins import provide
from dynaflow_dsl.operations.rows import OperationRows

# All layers' caches are one memory: pieces touch them in the order of the tokens, so
# that a token finds what earlier tokens of its request wrote in the same step.
_CACHE = "kv cache"

# Also as the engine calls them, with a text for the layer.
_NAMESPACES = ("dynaflow_vllm", "vllm")
_ATTENTION = tuple(
    f"{namespace}.{name}"
    for namespace in _NAMESPACES
    for name in ("unified_attention_with_output", "unified_mla_attention_with_output")
)
_UPDATES = tuple(
    f"{namespace}.{name}"
    for namespace in _NAMESPACES
    for name in ("unified_kv_cache_update", "unified_mla_kv_cache_update")
)

_KINDS = (
    OperationAlias("attention", _ATTENTION),
    OperationAlias("cache_update", _UPDATES),
    OperationAlias("all_reduce", ("vllm.all_reduce",)),
    OperationAlias("all_gather", ("vllm.all_gather",)),
    OperationAlias("reduce_scatter", ("vllm.reduce_scatter",)),
    OperationAlias(
        "matmul",
        ("_C.onednn_mm", "_C.onednn_scaled_mm", "_C.weight_packed_linear"),
    ),
    OperationAlias(
        "norm", ("_C.rms_norm", "_C.fused_add_rms_norm", "vllm_ir.rms_norm")
    ),
    OperationAlias("activation", ("_C.silu_and_mul", "_C.gelu*_and_mul", "_C.gelu_*")),
)

_EFFECTS = (
    # Some backends of attention write the cache too, instead of an update before it.
    OperationEffects((*_ATTENTION, *_UPDATES), writes=(_CACHE,)),
    OperationEffects(
        ("vllm.all_reduce", "vllm.all_gather", "vllm.reduce_scatter"), collective=True
    ),
)

_GATES = ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")
_UNARY = ("gelu_new", "gelu_fast", "gelu_quick", "gelu_tanh")

_ROWS = (
    # (query, key, value, output, layer): each token's places are the metadata's.
    *(OperationRows(name, arguments=(0, 0, 0, 0)) for name in _ATTENTION),
    # (key, value, layer) -> nothing that is read, only its order.
    *(OperationRows(name, arguments=(0, 0), results=(None,)) for name in _UPDATES),
    # (positions, query, key, head_size, table of cosines and sines, ...)
    OperationRows("_C.rotary_embedding", arguments=(0, 0, 0)),
    # (out, input, ...)
    OperationRows("_C.onednn_mm", arguments=(0, 0)),
    OperationRows("_C.weight_packed_linear", arguments=(0, 0)),
    OperationRows("_C.rms_norm", arguments=(0, 0)),
    *(OperationRows(f"_C.{name}", arguments=(0, 0)) for name in (*_GATES, *_UNARY)),
    # (input, residual, weight, epsilon), both written.
    OperationRows("_C.fused_add_rms_norm", arguments=(0, 0)),
    OperationRows("vllm_ir.rms_norm", arguments=(0,), results=(0,)),
    OperationRows("vllm.all_reduce", arguments=(0,), results=(0,)),
)

OPERATIONS = (*_KINDS, *_EFFECTS, *_ROWS)


def know_operators() -> None:
    """Let this process know them, as a plug-in would."""
    provide("vllm", OPERATIONS)
