"""Who writes what in the order of the model, which every schedule has to keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dynaflow_dsl.bind.model import AFTER, BEFORE, GAP, Binding, Instance
from dynaflow_dsl.bind.model import Place as GapPlace
from dynaflow_dsl.prove.machine import Owner


def writers_before(binding: Binding) -> Mapping[tuple[Owner, str], Owner | None]:
    """For each touch of memory that somebody writes, who wrote it last before.

    None where nobody did: the step finds what it was given.
    """
    written = {
        name
        for part in binding.everything
        for instance in part.instances
        for name, writes in instance.touched
        if writes
    }
    found: dict[tuple[Owner, str], Owner | None] = {}
    if not written:
        return found
    last: dict[str, Owner] = {}
    for owner, instance in _in_order(binding):
        for name, writes in instance.touched:
            if name in written:
                found[(owner, name)] = last.get(name)
                if writes:
                    last[name] = owner
    return found


def _in_order(binding: Binding) -> Iterator[tuple[Owner, Instance]]:
    if binding.before is not None:
        yield Owner(BEFORE, 0), binding.before.instances[0]
    gaps = {}
    if binding.gaps is not None:
        gaps = {place: n for n, place in enumerate(binding.gaps.places)}
    for number, section in enumerate(binding.sections):
        for i in range(len(section.iterations)):
            n = gaps.get(GapPlace(number, i))
            if n is not None and binding.gaps is not None:
                yield Owner(GAP, n), binding.gaps.part.instances[n]
            for part in section.parts:
                yield Owner(part.name, i), part.instances[i]
    if binding.after is not None:
        yield Owner(AFTER, 0), binding.after.instances[0]
