"""Kernels that ship with the strategies: `kernel x = "dynaflow_dsl.kernels:name"`.

Each has a reference in plain PyTorch, which also runs where its ranks have no memory of
each other to read: on CPU, and over a stand-in group.
"""

from dynaflow_dsl.kernels.exchange import (
    gather_dispatch,
    push_combine,
    push_dispatch,
    reduce_combine,
)
from dynaflow_dsl.kernels.reduction import all_reduce_add_norm, copied_all_reduce

__all__ = [
    "all_reduce_add_norm",
    "copied_all_reduce",
    "gather_dispatch",
    "push_combine",
    "push_dispatch",
    "reduce_combine",
]
