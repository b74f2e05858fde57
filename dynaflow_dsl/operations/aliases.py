"""Names for kinds of operations: `all_reduce in .mlp`.

Each kind lists every spelling that tracing produces, as patterns for the name of an
operator without its overload. The wait for a collective's result is no spelling of a
kind: it belongs to the collective that it waits for, whichever that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dynaflow_dsl.operations.plugins import registered


@dataclass(frozen=True, slots=True)
class OperationAlias:
    """A kind of operation, or more spellings of one that exists.

    `operators` are patterns for `namespace.name`, without the overload; `*` stands for
    any text and `?` for one character. A plug-in publishes values of this class in the
    entry point group `dynaflow_dsl.operations`.
    """

    name: str
    operators: tuple[str, ...]


# Functional collectives, as of now, as they were called before, with their in-place and
# differentiable forms; then those of process groups.
_ALL_REDUCE = (
    "_c10d_functional.all_reduce",
    "_c10d_functional.all_reduce_",
    "_c10d_functional.all_reduce_coalesced",
    "_c10d_functional.all_reduce_coalesced_",
    "c10d_functional.all_reduce",
    "c10d_functional.all_reduce_coalesced",
    "c10d.allreduce_",
    "c10d.allreduce_coalesced_",
    "symm_mem.multimem_all_reduce_",
    "symm_mem.multimem_one_shot_all_reduce",
    "symm_mem.multimem_one_shot_all_reduce_out",
    "symm_mem.one_shot_all_reduce",
    "symm_mem.one_shot_all_reduce_copy",
    "symm_mem.one_shot_all_reduce_copy_out",
    "symm_mem.one_shot_all_reduce_out",
    "symm_mem.two_shot_all_reduce_",
    "symm_mem.two_shot_all_reduce_out",
)
_ALL_GATHER = (
    "_c10d_functional.all_gather_into_tensor",
    "_c10d_functional.all_gather_into_tensor_coalesced",
    "_c10d_functional.all_gather_into_tensor_out",
    "_c10d_functional_autograd.all_gather_into_tensor",
    "c10d_functional.all_gather_into_tensor",
    "c10d_functional.all_gather_into_tensor_coalesced",
    "c10d._allgather_base_",
    "c10d.allgather_",
    "c10d.allgather_coalesced_",
    "c10d.allgather_into_tensor_coalesced_",
    "symm_mem._low_contention_all_gather",
    "symm_mem.fused_all_gather_matmul",
    "symm_mem.fused_all_gather_scaled_matmul",
    "symm_mem.multimem_all_gather_out",
)
_REDUCE_SCATTER = (
    "_c10d_functional.reduce_scatter_tensor",
    "_c10d_functional.reduce_scatter_tensor_coalesced",
    "_c10d_functional.reduce_scatter_tensor_out",
    "_c10d_functional_autograd.reduce_scatter_tensor",
    "c10d_functional.reduce_scatter_tensor",
    "c10d_functional.reduce_scatter_tensor_coalesced",
    "c10d._reduce_scatter_base_",
    "c10d.reduce_scatter_",
    "c10d.reduce_scatter_tensor_coalesced_",
    "symm_mem._low_contention_reduce_scatter",
    "symm_mem.fused_matmul_reduce_scatter",
    "symm_mem.fused_scaled_matmul_reduce_scatter",
    "symm_mem.reduce_scatter_out",
)
_ALL_TO_ALL = (
    "_c10d_functional.all_to_all_single",
    "_c10d_functional_autograd.all_to_all_single",
    "c10d_functional.all_to_all_single",
    "_dtensor.shard_dim_alltoall",
    "c10d.alltoall_",
    "c10d.alltoall_base_",
    "symm_mem.all_to_all_vdev",
    "symm_mem.all_to_all_vdev_2d",
    "symm_mem.all_to_all_vdev_2d_offset",
    "symm_mem.nvshmem_all_to_all",
)
_BROADCAST = (
    "_c10d_functional.broadcast",
    "_c10d_functional.broadcast_",
    "c10d_functional.broadcast",
    "c10d.broadcast_",
    "symm_mem.nvshmem_broadcast",
)
_SEND = (
    "_c10d_functional.isend",
    "c10d_functional.isend",
    "c10d.send",
    "symm_mem.nccl_put",
    "symm_mem.nvshmem_put",
)
_RECEIVE = (
    "_c10d_functional.irecv",
    "c10d_functional.irecv",
    "c10d.recv_",
    "c10d.recv_any_source_",
    "symm_mem.nccl_get",
    "symm_mem.nvshmem_get",
)
# Several sends and receives in one call.
_BOTH = ("_c10d_functional.batch_p2p_ops", "c10d_functional.batch_p2p_ops")
OTHER_COLLECTIVES = ("c10d.gather_", "c10d.reduce_", "c10d.scatter_")

COLLECTIVES: Mapping[str, tuple[str, ...]] = {
    "all_reduce": _ALL_REDUCE,
    "all_gather": _ALL_GATHER,
    "reduce_scatter": _REDUCE_SCATTER,
    "all_to_all": _ALL_TO_ALL,
    "broadcast": _BROADCAST,
    "send": (*_SEND, *_BOTH),
    "recv": (*_RECEIVE, *_BOTH),
}

WAITS = (
    "_c10d_functional.wait_tensor",
    "_c10d_functional._wrap_tensor_autograd",
    "c10d_functional.wait_tensor",
)

_KINDS: Mapping[str, tuple[str, ...]] = {
    **COLLECTIVES,
    "collective": (
        *dict.fromkeys(name for names in COLLECTIVES.values() for name in names),
        *OTHER_COLLECTIVES,
    ),
    "attention": (
        "aten.scaled_dot_product_attention",
        "aten._scaled_dot_product_*",
        "aten._cudnn_attention_forward",
        "aten._efficient_attention_forward",
        "aten._flash_attention_forward",
        "aten._native_multi_head_attention",
    ),
    "matmul": (
        "aten.linear",
        "aten.matmul",
        "aten.linalg_matmul",
        "aten.mm",
        "aten.bmm",
        "aten.mv",
        "aten.dot",
        "aten.vdot",
        "aten.inner",
        "aten.addmm",
        "aten.addmm_",
        "aten.addbmm",
        "aten.addbmm_",
        "aten.baddbmm",
        "aten.baddbmm_",
        "aten.addmv",
        "aten.addmv_",
        "aten._addmm_activation",
        "aten.bilinear",
        "aten.chain_matmul",
        "aten.linalg_multi_dot",
        "aten.einsum",
        "aten.tensordot",
        "aten._grouped_mm",
        "aten._int_mm",
        "aten._scaled_grouped_mm",
        "aten._scaled_grouped_mm_v2",
        "aten._scaled_mm",
        "aten._scaled_mm_v2",
        "aten._dyn_quant_matmul_4bit",
        "aten._mixed_dtypes_linear",
        "aten._sparse_semi_structured_*mm",
        "aten._sparse_semi_structured_linear",
        "aten._weight_int4pack_mm*",
        "aten._weight_int8pack_mm",
        "aten.mkldnn_linear",
        "mkldnn._linear_pointwise",
        "symm_mem.fused_all_gather_matmul",
        "symm_mem.fused_all_gather_scaled_matmul",
        "symm_mem.fused_matmul_reduce_scatter",
        "symm_mem.fused_scaled_matmul_reduce_scatter",
        "transformers.grouped_mm_fallback",
    ),
    "conv": (
        "aten.conv1d",
        "aten.conv2d",
        "aten.conv3d",
        "aten.conv_depthwise3d",
        "aten._conv_depthwise2d",
        "aten.conv_tbc",
        "aten.conv_transpose?d",
        "aten.convolution",
        "aten._convolution",
        "aten._convolution_mode",
        "aten.cudnn_convolution*",
        "aten.mkldnn_convolution",
        "mkldnn._convolution_*pointwise",
    ),
    "norm": (
        "aten.batch_norm",
        "aten._batch_norm_no_update",
        "aten._batch_norm_with_update",
        "aten.cudnn_batch_norm",
        "aten.native_batch_norm",
        "aten._native_batch_norm_legit*",
        "aten.group_norm",
        "aten.native_group_norm",
        "aten.instance_norm",
        "aten.layer_norm",
        "aten.native_layer_norm",
        "aten.rms_norm",
        "aten._fused_rms_norm",
    ),
    "softmax": (
        "aten.softmax",
        "aten._softmax",
        "aten._masked_softmax",
        "aten._safe_softmax",
        "aten.special_softmax",
        "aten.log_softmax",
        "aten._log_softmax",
        "aten.special_log_softmax",
    ),
    "embedding": (
        "aten.embedding",
        "aten.embedding_bag",
        "aten._embedding_bag",
        "aten._embedding_bag_forward_only",
    ),
    "pool": (
        "aten.avg_pool?d",
        "aten.max_pool?d",
        "aten.max_pool?d_with_indices",
        "aten.adaptive_avg_pool?d",
        "aten._adaptive_avg_pool?d",
        "aten.adaptive_max_pool?d",
        "aten.fractional_max_pool?d",
    ),
    "activation": (
        "aten.celu*",
        "aten.elu*",
        "aten.gelu*",
        "aten.glu",
        "aten.hardsigmoid*",
        "aten.hardswish*",
        "aten.hardtanh*",
        "aten.leaky_relu*",
        "aten.log_sigmoid",
        "aten.mish*",
        "aten.prelu",
        "aten._prelu_kernel",
        "aten.relu",
        "aten.relu_",
        "aten.relu6*",
        "aten.selu*",
        "aten.sigmoid",
        "aten.sigmoid_",
        "aten.silu",
        "aten.silu_",
        "aten.softplus",
        "aten.tanh",
        "aten.tanh_",
    ),
}


def aliases() -> Mapping[str, tuple[str, ...]]:
    """All kinds by name with the patterns of their operators, those of plug-ins too.

    What a plug-in says of a kind that exists comes beside its spellings. Raises
    PluginError for a plug-in that cannot be imported.
    """
    found = dict(_KINDS)
    for alias in registered(OperationAlias):
        known = found.get(alias.name, ())
        found[alias.name] = tuple(dict.fromkeys((*known, *alias.operators)))
        if alias.name in COLLECTIVES:
            whole = (*found["collective"], *alias.operators)
            found["collective"] = tuple(dict.fromkeys(whole))
    return found
