"""A compiler for overlap schedules of PyTorch models.

It reads `.dfs` files and writes executor modules; the command is `dfsc`, and
`dynaflow_dsl.pipeline` offers the same to Python. This module imports nothing, so that
commands which need no torch start without it.
"""

__version__ = "0.1.0"
