"""What scheduling a library's model refuses."""

from __future__ import annotations

from dynaflow_dsl.runtime import RuntimeFault


class ScheduleError(RuntimeFault):
    """A model of a library cannot run as a schedule says.

    DFS830: the model, the schedule or the module is not of a kind that the library's
    loop can run. DFS831: a call cannot run scheduled, and it was asked to be an error.
    """
