"""Which weights a step brings and reads, by the calls of its parts.

Order alone does not tell whether a buffer holds the weights of the right layer: a part
that is called too late reads, in good order, what a later layer has brought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.model import every_part


class Brought(NamedTuple):
    """The weights that a part brings in one iteration."""

    part: str
    position: int


@dataclass(slots=True)
class WeightWatch:
    """What the call that runs now does: `bringing` weights, or reading those that the
    calls in `reading` bring."""

    bringing: Brought | None = None
    reading: frozenset[Brought] = frozenset()

    @contextmanager
    def on(self, executor: Executor) -> Iterator[None]:
        """Watch the calls of an executor; nothing where no part brings weights."""
        fetches, before = executor.fetches(), dict[str, Callable[..., Any]]()
        if fetches:
            paths = {
                Brought(name, position): set(fetch.paths(position).values())
                for name, fetch in fetches.items()
                for position in range(len(fetch.layers))
            }
            parts = every_part(executor.parts())
            names = (*fetches, *parts)
            before = {name: getattr(executor, name) for name in names}
            for name in fetches:
                setattr(executor, name, self._bringing(name, before[name]))
            for name, part in parts.items():
                reads = [
                    frozenset(
                        one
                        for one, brought in paths.items()
                        if brought & set(part.paths(position).values())
                    )
                    for position in range(len(part.layers))
                ]
                setattr(executor, name, self._reading(reads, before[name]))
        try:
            yield
        finally:
            for name, call in before.items():
                setattr(executor, name, call)

    def _bringing(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(position: int) -> None:
            self.bringing = Brought(name, position)
            try:
                call(position)
            finally:
                self.bringing = None

        return watched

    def _reading(
        self, reads: list[frozenset[Brought]], call: Callable[..., Any]
    ) -> Callable[..., Any]:
        def watched(position: int, *arguments: Any) -> Any:
            self.reading = reads[position]
            try:
                return call(position, *arguments)
            finally:
                self.reading = frozenset()

        return watched
