"""Kernels that ship with the strategies: `kernel x = "dynaflow_dsl.kernels:name"`.

Each has a reference in plain PyTorch, which also runs where its ranks share no memory:
on CPU, over a stand-in group, and between machines.
"""

from dynaflow_dsl.kernels.combining import (
    push_combine,
    push_combine_add,
    reduce_combine,
    reduce_combine_add,
)
from dynaflow_dsl.kernels.copied import (
    copied_all_gather,
    copied_all_reduce,
    copied_all_reduce_add,
    copied_all_reduce_add_norm,
    copied_all_to_all,
    copied_reduce_scatter,
)
from dynaflow_dsl.kernels.exchange import gather_dispatch, push_dispatch
from dynaflow_dsl.kernels.reduction import all_reduce_add_norm

__all__ = [
    "all_reduce_add_norm",
    "copied_all_gather",
    "copied_all_reduce",
    "copied_all_reduce_add",
    "copied_all_reduce_add_norm",
    "copied_all_to_all",
    "copied_reduce_scatter",
    "gather_dispatch",
    "push_combine",
    "push_combine_add",
    "push_dispatch",
    "reduce_combine",
    "reduce_combine_add",
]
