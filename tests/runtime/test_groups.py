"""Which process group plays a role, from binding to the end of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dynaflow_dsl.runtime import groups

# Handlers run in reverse: the first one sees what the runtime's has left.
ENDING = """
import atexit

def last():
    print(sorted(groups._PLAYERS))

atexit.register(last)
from dynaflow_dsl.runtime import groups

groups.bind_group("tp", groups.stand_in_group(2, 0))
print(sorted(groups._PLAYERS))
"""


def test_a_role_is_bound_anew_and_released() -> None:
    groups.bind_group("a role", groups.stand_in_group(4, 3))
    assert groups.group_rank("a role") == 3
    groups.bind_stand_in("a role", 2, 1)
    assert groups.group_rank("a role") == 1
    groups.release_group("a role")
    groups.release_group("a role")
    with pytest.raises(LookupError, match="no process group plays the role 'a role'"):
        groups.group_rank("a role")


def test_no_group_outlives_the_process() -> None:
    """The threads of a gloo group that is kept until then abort it."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines() == ["['tp']", "[]"]
