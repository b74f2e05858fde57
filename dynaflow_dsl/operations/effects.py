"""What operators do that their tensors do not show.

A process group runs one collective after the other. An engine's operator may write a
cache that is no argument, use a workspace that all its calls share, or ask on the host
for a number. A plug-in says so of its operators, with values of `OperationEffects` in
the entry point group `dynaflow_dsl.operations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from dynaflow_dsl.operations.aliases import COLLECTIVES, OTHER_COLLECTIVES
from dynaflow_dsl.operations.names import matches_operator, without_overload
from dynaflow_dsl.operations.plugins import registered


@dataclass(frozen=True, slots=True)
class OperationEffects:
    """Effects of the operators that one of the patterns in `operators` matches.

    `reads` and `writes` name memory that is no argument: operations that touch it keep
    the order of the model. `uses` names what one operation may use at a time, in any
    order: a workspace, a symmetric buffer. A `collective` names its process group in
    its last text argument. One with `waits_on_host` cannot be captured in a CUDA graph.
    """

    operators: tuple[str, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    collective: bool = False
    waits_on_host: bool = False


# Operators of these namespaces are known here; nobody is asked about them.
_KNOWN_NAMESPACES = frozenset(
    {
        "aten",
        "prims",
        "prim",
        "_c10d_functional",
        "_c10d_functional_autograd",
        "c10d_functional",
        "c10d",
        "symm_mem",
        "_dtensor",
        "mkldnn",
        "quantized_decomposed",
        "transformers",
        "dynaflow",
    }
)

_COLLECTIVES = (
    *dict.fromkeys(name for names in COLLECTIVES.values() for name in names),
    *OTHER_COLLECTIVES,
)
_HOST = (
    "aten._local_scalar_dense",
    "aten.item",
    "aten.is_nonzero",
    "aten.equal",
    "aten.nonzero",
    "aten.argwhere",
    "aten.masked_select",
    "aten.unique_consecutive",
    "aten.unique_dim",
    "aten._unique2",
    "aten.bincount",
    "aten.repeat_interleave.Tensor",
    "aten.repeat_interleave.self_Tensor",
    # They look at what their factorisation says of itself.
    "aten.cholesky",
    "aten.inverse",
    "aten.linalg_cholesky",
    "aten.linalg_cond",
    "aten.linalg_eig",
    "aten.linalg_eigh",
    "aten.linalg_eigvals",
    "aten.linalg_eigvalsh",
    "aten.linalg_inv",
    "aten.linalg_ldl_factor",
    "aten.linalg_lu_factor",
    "aten.linalg_matrix_rank",
    "aten.linalg_pinv",
    "aten.linalg_solve",
    "aten.linalg_svd",
    "aten.linalg_svdvals",
    "aten.pinverse",
    "aten.svd",
)

_EFFECTS = (
    OperationEffects(_COLLECTIVES, collective=True),
    # Both ask how many tokens arrive.
    OperationEffects(
        ("dynaflow.dispatch", "dynaflow.combine"), collective=True, waits_on_host=True
    ),
    OperationEffects(_HOST, waits_on_host=True),
)


@cache
def effects_of(operator: str) -> tuple[OperationEffects, ...]:
    """All that is known of an operator, `namespace.name.overload`.

    Raises PluginError for a plug-in that cannot be imported.
    """
    known = [*_EFFECTS]
    if operator.partition(".")[0] not in _KNOWN_NAMESPACES:
        known += registered(OperationEffects)
    return tuple(
        one
        for one in known
        if any(_matches(pattern, operator) for pattern in one.operators)
    )


@cache
def hidden_memory(operator: str) -> Mapping[str, bool]:
    """Memory that an operator reads or (True) writes though it is no argument.

    Its names are no names of tensors.
    """
    found: dict[str, bool] = {}
    for effects in effects_of(operator):
        found.update((f"memory '{name}'", False) for name in effects.reads)
    for effects in effects_of(operator):
        found.update((f"memory '{name}'", True) for name in effects.writes)
    return found


def _matches(pattern: str, operator: str) -> bool:
    # Plain names are compared as such: this is asked of every operator of a graph.
    if "*" in pattern or "?" in pattern:
        return matches_operator(pattern, operator)
    return pattern in (operator, without_overload(operator))
