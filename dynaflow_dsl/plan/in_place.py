"""Which values parts write where all of a value is, rather than to be copied there.

A copy is left out where it costs nothing to write it in the first place: behind an
operation that is compiled with the copy into one kernel. The tensor that holds the
whole has to look like the pieces, so that whatever reads them is compiled for either:
its outermost axis is the one that is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dynaflow_dsl.bind.model import AFTER, GAP, Binding, BoundPart
from dynaflow_dsl.bind.uses import is_collective
from dynaflow_dsl.graph.model import Size, TensorType
from dynaflow_dsl.graph.tails import takes_a_copy


@dataclass(slots=True)
class Candidates:
    """Looks at the values of one binding that are wanted whole.

    `pieces` is the number of pieces of the program, which is 1 for what nobody cuts,
    `types` are those of all values.
    """

    binding: Binding
    pieces: int
    types: Mapping[str, TensorType]
    _read: frozenset[str] = field(init=False)
    _read_in_pieces: frozenset[str] = field(init=False)
    _through_kernels: set[str] = field(init=False)
    _fusible: dict[tuple[str, int, int], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        declared = self.binding.schedule.parts
        # Whether they can be imported, which `check` does not try, or not.
        self._through_kernels = {p.name for p in declared if p.via is not None}
        parts = self.binding.everything
        self._read = _inputs(parts)
        self._read_in_pieces = _inputs(
            [p for p in parts if p.name != AFTER and p.name not in self.binding.joined]
        )

    def fits(self, value: str, part: str, iteration: int, output: int) -> bool:
        """Whether a part can write one of its results where all of it is.

        Not where somebody reads what the part makes by itself: one piece of it, or,
        of what is made in one, anybody but the caller.
        """
        bound = next(one for one in self.binding.inner if one.name == part)
        read = self._read if self._is_whole(part) else self._read_in_pieces
        return (
            value not in read
            and part != GAP
            and part not in self._through_kernels
            and not self._communicates(bound)
            and bound.instances[iteration].outputs.count(value) == 1
            and self._looks_like_its_pieces(value, part)
            and self._fuses(bound, iteration, output)
        )

    def _communicates(self, part: BoundPart) -> bool:
        """Whether collectives run in it.

        On a CPU such a part is under way while others run, as long as it writes
        nothing that is there already.
        """
        return any(
            is_collective(operation)
            for body in part.bodies
            for operation in body.operations
        )

    def _is_whole(self, part: str) -> bool:
        return self.pieces == 1 or part in self.binding.joined

    def _looks_like_its_pieces(self, value: str, part: str) -> bool:
        layout = self.types[value]
        if not _is_contiguous(layout) or not all(map(self._is_known, layout.shape)):
            return False
        if self._is_whole(part):
            return True
        split = self.binding.schedule.split
        assert split is not None
        rows = Size(1, (split.dimension,))
        return self.binding.axes.get(value) == 0 and layout.shape[0] == rows

    def _is_known(self, size: Size) -> bool:
        """Whether the step can read a size off its inputs."""
        return all(
            any(
                Size(1, (name,)) in item.value.type.shape
                for item in self.binding.graph.inputs
                if item.argument is not None
            )
            for name in size.dimensions
        )

    def _fuses(self, part: BoundPart, iteration: int, output: int) -> bool:
        number = part.instances[iteration].body
        key = part.name, number, output
        if key not in self._fusible:
            body = part.bodies[number]
            self._fusible[key] = takes_a_copy(
                body.outputs[output], body.operations, self.types
            )
        return self._fusible[key]


def _inputs(parts: Iterable[BoundPart]) -> frozenset[str]:
    return frozenset(
        value
        for part in parts
        for instance in part.instances
        for value in instance.inputs
    )


def _is_contiguous(layout: TensorType) -> bool:
    step = Size(1)
    for size, stride in zip(
        reversed(layout.shape), reversed(layout.strides), strict=True
    ):
        # The stride of an axis with one element means nothing.
        if size != Size(1) and stride != step:
            return False
        step = step * size
    return True
