"""What installed packages say about operators.

A package publishes it under the entry point group `dynaflow_dsl.operations`:

    [project.entry-points."dynaflow_dsl.operations"]
    engine = "engine.dynaflow:OPERATIONS"

The name after the colon is a value, or a tuple of values, of the classes that rooms of
this package declare for it, such as `OperationAlias`. Importing the module should be
cheap: `dfsc check` does it as well.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

T = TypeVar("T")

# What integrations say of the operators of the system that they run in.
_provided: dict[str, tuple[object, ...]] = {}

GROUP = "dynaflow_dsl.operations"


class PluginError(Exception):
    """A plug-in that cannot be imported: its name, its place and why."""

    def __init__(self, name: str, place: str, reason: BaseException) -> None:
        super().__init__(f"{type(reason).__name__}: {reason}")
        self.name = name
        self.place = place


def provide(name: str, values: tuple[object, ...]) -> None:
    """Say in this process what a package would publish, under a name.

    For integrations: who does not run inside their system meets none of its operators.
    To be called before a graph of these operators is looked at.
    """
    if _provided.get(name) != values:
        _provided[name] = values
        _values.cache_clear()


def registered(kind: type[T]) -> tuple[T, ...]:
    """All values of a class that plug-ins publish, in order of the plug-ins' names,
    and after them those of integrations.

    Raises PluginError for a plug-in that cannot be imported.
    """
    return tuple(value for value in _values() if isinstance(value, kind))


@cache
def _values() -> tuple[object, ...]:
    # Here, since it is slow to import and most schedules ask for no plug-in.
    from importlib.metadata import entry_points

    found: list[object] = []
    for plugin in sorted(entry_points(group=GROUP), key=lambda item: item.name):
        try:
            value = plugin.load()
        except (Exception, SystemExit) as error:
            raise PluginError(plugin.name, plugin.value, error) from error
        found += value if isinstance(value, tuple) else (value,)
    for name in sorted(_provided):
        found += _provided[name]
    return tuple(found)
