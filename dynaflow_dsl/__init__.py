"""A compiler for overlap schedules of PyTorch models.

It reads `.dfs` files and writes executor modules; the command is `dfsc`, and
`dynaflow_dsl.pipeline` offers the same to Python. `dynaflow_dsl.mark` names regions of
a model's code for schedules. This module imports no room, so that commands which need
no torch start without it.
"""

from dynaflow_dsl.marks import mark

__all__ = ["__version__", "mark"]

__version__ = "0.1.0"
