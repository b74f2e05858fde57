"""Random programs that sort rows, compute with them, and put them back, or nearly."""

from __future__ import annotations

from random import Random

import transformers.integrations.moe  # noqa: F401  registers the fallback of a product

from dynaflow_dsl.graph.model import Argument, Constant, Graph, Reference, Size
from tests.graph.rowwise.building import BATCH, Builder, Unsized
from tests.graph.rowwise.interpreter import DIMENSION
from tests.graph.rowwise.programs import KINDS, Program, Step
from tests.graph.rowwise.tracing import shared

EXPERTS = 4
_INT32 = Constant("dtype", "int32")
_FLOAT = Constant("dtype", "float32")


def sorted_program(number: int) -> tuple[Graph, list[str], Builder] | None:
    """The program of this number, always the same: its graph, all names, its inputs."""
    random = Random(number)
    made = _Sorted(random)
    try:
        made.sort()
        for _ in range(random.randint(0, 4)):
            made.step()
        outputs = made.put_back()
    except Unsized:
        return None
    build = made.program.build
    return build.graph(*dict.fromkeys(outputs)), build.names(), build


class _Sorted:
    """Values of one order, which steps compute with."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.program = Program((0, 0))
        self.weight = self.program.build.input(shared(EXPERTS, 4, 4))
        # Several places for each row, as tokens have several experts.
        self.many = random.choice((1, 1, 2, 3))
        self.places = Size(self.many, ("batch",))

    def call(
        self, operator: str, *arguments: Argument, **keywords: Argument
    ) -> Reference:
        found = self.program.build.call(operator, *arguments, **keywords)
        assert isinstance(found, Reference)
        return found

    def sort(self) -> None:
        """An order by what is found in rows, and rows in that order."""
        random, build = self.random, self.program.build
        rows = self.program.values[0]
        found = build.call("aten.topk.default", rows, self.many)
        keys = self.call("aten.reshape.default", found[1], (self.places,))
        if random.random() < 0.3:
            keys = self.call("aten.reshape.default", found[0], (self.places,))
        elif random.random() < 0.1:
            keys = self.call("aten.add.Scalar", keys, random.choice((-1, 1)))
        descending = random.random() < 0.1
        if random.random() < 0.3:
            self.order = self.call("aten.argsort.default", keys, 0, descending)
            self.keys = None
        else:
            self.keys, self.order = build.call("aten.sort.default", keys, 0, descending)
        picked = self.order
        if self.many > 1 or random.random() < 0.1:
            divisor = self.many if random.random() < 0.9 else 1
            picked = self.call("aten.floor_divide.default", picked, divisor)
        moved = [
            self.call("aten.index.Tensor", value, (picked,))
            for value in self.program.values[:2]
        ]
        weights = self.call("aten.reshape.default", found[0], (self.places,))
        weights = self.call("aten.index.Tensor", weights, (self.order,))
        column = self.call("aten.unsqueeze.default", weights, 1)
        self.program.values = [*moved, column]
        if random.random() < 0.1:
            # Rows as they were, among those in another order.
            self.program.values.append(self.program.build.input(shared(4)))
            self.program.values.append(rows)

    def step(self) -> None:
        """Any operation, one in place, or a product in groups."""
        random, values = self.random, self.program.values
        if self.keys is not None and random.random() < 0.35:
            values.append(self.grouped())
            return
        if random.random() < 0.2:
            mask = self.call("aten.gt.Scalar", values[-1], 0.0)
            self.call("aten.masked_fill_.Scalar", values[-1], mask, 0.0)
            return
        numbers = [random.randrange(12) for _ in range(4)]
        # The first kinds look at no input of their own.
        self.program.run(Step(random.randrange(len(KINDS)), *numbers, inside=True))

    def grouped(self) -> Reference:
        """Runs of places with the matrix of their key each."""
        random = self.random
        assert self.keys is not None
        keys = self.keys
        if random.random() < 0.1:
            self.call("aten.clamp_.default", keys, None, random.choice((1, 3)))
        keys = self.call("aten.to.dtype", keys, _FLOAT)
        low = 0 if random.random() < 0.9 else -1
        counts = self.call("aten.histc.default", keys, EXPERTS, low, EXPERTS - 1)
        ends = self.call("aten.cumsum.default", counts, 0, dtype=_INT32)
        operator = "transformers.grouped_mm_fallback.default"
        return self.call(operator, self.program.values[-1], self.weight, ends)

    def put_back(self) -> list[Reference]:
        """Values by the inverse of the order; now and then by something else."""
        random, chance = self.random, self.random.random()
        if chance < 0.45:
            downwards = random.random() < 0.1
            back = self.call("aten.argsort.default", self.order, 0, downwards)
        elif chance < 0.9:
            back = self.call("aten.empty_like.default", self.order)
            numbers = self.call("aten.arange.default", self.places)
            self.call("aten.index_put_.default", back, (self.order,), numbers)
        else:
            back = self.order
        outputs = []
        for value in dict.fromkeys(self.program.values[-2:]):
            shape = self.program.shape(value)
            axes = [k for k, size in enumerate(shape) if size == self.places]
            if not axes or random.random() < 0.05:
                outputs.append(value)
            elif random.random() < 0.2 and len(shape) == 2 and axes == [0]:
                zeros = self.call("aten.zeros.default", (BATCH, *shape[1:]))
                rows = self.order
                if self.many > 1:
                    rows = self.call("aten.floor_divide.default", rows, self.many)
                self.call("aten.index_add_.default", zeros, 0, rows, value)
                outputs.append(zeros)
            else:
                index: tuple[Argument, ...] = (*(None,) * axes[0], back)
                outputs.append(self.call("aten.index.Tensor", value, index))
        assert all(
            DIMENSION in size.dimensions or not size.dimensions
            for value in outputs
            for size in self.program.shape(value)
        )
        return outputs
