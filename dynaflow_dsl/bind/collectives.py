"""Which operations complete a collective: waits for its result, and copies of it.

A collective is traced as a start, whose result may not be read yet, and a wait. Written
in place (`all_reduce(x)`), it has a copy into `x` behind that.
"""

from __future__ import annotations

from collections.abc import Mapping

from dynaflow_dsl.bind.dependence import Dependence
from dynaflow_dsl.operations.aliases import WAITS
from dynaflow_dsl.operations.names import without_overload

_COPY = "aten.copy_"
_WAITS = frozenset(WAITS)


def completions(dependence: Dependence) -> Mapping[int, frozenset[int]]:
    """The numbers of waits and copies by that of the collective they belong to."""
    belongs: dict[int, int] = {}
    last_write: dict[int, int] = {}
    for number, operation in enumerate(dependence.operations):
        name = without_overload(operation.operator)
        if name in _WAITS:
            start = _waited_for(number, dependence, last_write)
            if start is not None:
                belongs[number] = belongs.get(start, start)
        elif name == _COPY:
            start = _copied(number, dependence, belongs)
            if start is not None:
                belongs[number] = start
        for written in operation.writes:
            last_write[dependence.values[written].storage] = number
    found: dict[int, set[int]] = {}
    for number, start in belongs.items():
        found.setdefault(start, set()).add(number)
    return {start: frozenset(numbers) for start, numbers in found.items()}


def _waited_for(
    number: int, dependence: Dependence, last_write: Mapping[int, int]
) -> int | None:
    """What last wrote the tensor that an operation waits for, else what made it."""
    names = dependence.operand_names[number]
    if not names:
        return None
    storage = dependence.values[names[0]].storage
    return last_write.get(storage, _maker(names[0], dependence))


def _copied(
    number: int, dependence: Dependence, belongs: Mapping[int, int]
) -> int | None:
    """The collective whose result, waited for, a copy of the same line puts in place.

    A copy of another line is what the model does with the result.
    """
    operation = dependence.operations[number]
    for name in dependence.operand_names[number]:
        maker = _maker(name, dependence) if name not in operation.writes else None
        start = belongs.get(maker) if maker is not None else None
        if start is None or operation.source is None:
            continue
        if dependence.operations[start].source == operation.source:
            return start
    return None


def _maker(name: str, dependence: Dependence) -> int | None:
    """The operation that made a value, looking through views."""
    number = dependence.producer.get(name)
    while number is not None and dependence.operations[number].view:
        operands = dependence.operand_names[number]
        number = dependence.producer.get(operands[0]) if operands else None
    return number
