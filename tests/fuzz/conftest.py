"""The small model of the commands' tests."""

from tests.cli.conftest import workspace

__all__ = ["workspace"]
