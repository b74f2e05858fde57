"""Random calls of one operator, whose arguments are drawn by its signature."""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from dynaflow_dsl.graph.model import Argument, Constant, Graph, Reference, Size
from dynaflow_dsl.graph.rowwise.rules import RULES
from tests.graph.rowwise.building import BATCH, Builder, Unsized
from tests.graph.rowwise.interpreter import RANKS
from tests.graph.rowwise.tracing import Given

OPERATORS = sorted(RULES)

_TRIES = 1500
# How many calls are followed by one of those along an axis, so that many rows mix.
_MIXED = 0.6
_ALONG: tuple[tuple[Any, ...], ...] = (
    ("aten.cumsum.default",),
    ("aten.flip.default",),
    ("aten.sort.default",),
    ("aten.softmax.int",),
    ("aten.amax.default", True),
    ("aten.select.int", 0),
    ("aten.slice.Tensor", 1),
)
_SCALARS = {"value"}
_VECTORS = {"bias", "running_mean", "running_var", "vec", "window", "index"}
_OPTIONS = {"dtype", "layout", "device", "pin_memory", "memory_format", "generator"}
_WORDS = {
    "reduce_op": ("sum",),
    "group_name": ("0",),
    "equation": ("ab,ab->ab", "...a,...b->...ab", "ab,cb->ac", "abc,abd->acd"),
    "padding": ("same", "valid"),
    "mode": ("constant", "reflect", "replicate", "circular"),
    "reduce": ("sum", "mean", "amax", "amin", "prod"),
    "approximate": ("none", "tanh"),
    "indexing": ("ij", "xy"),
    "UPLO": ("L", "U"),
}
# Torch does not look at other numbers, and returns what memory holds.
_MODES = {"interpolation_mode", "padding_mode"}
_CHANNELS = ("weight", "bias", "running_mean", "running_var")
# Where torch has other words for the same name.
_OTHER_WORDS = {"reduce": ("add", "multiply")}


def call_of(operator: str, random: Random) -> tuple[Graph, list[str], Builder] | None:
    """Make a program that ends with this operator, or None if no draw runs."""
    for _ in range(_TRIES):
        drawn = _Drawn(random)
        try:
            result = drawn.call(operator)
        except (Unsized, TypeError, NotImplementedError):
            continue
        results = result if isinstance(result, tuple) else (result,)
        if random.random() < _MIXED:
            results = (drawn.mixed(random.choice(results)), *results[1:])
        names = drawn.build.names()
        region = names if random.random() < 0.9 else names[-1:]
        return drawn.build.graph(*dict.fromkeys(results)), region, drawn.build
    return None


class _Drawn:
    """A builder, and the shape that operands of one call have in common."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.build = Builder()
        rank = random.choice((1, 2, 2, 3, 3, 4, 4, 5))
        self.shape: list[int | str] = [
            random.choice((4, 4, 4, 4, 2, 3, 1)) for _ in range(rank)
        ]
        if random.random() < 0.3:
            self.shape = [4] * rank
        self.row_axis = 0 if random.random() < 0.45 else random.randrange(rank)
        # Lists of numbers often have one for each of the last axes.
        self.window = max(1, min(3, rank - 2)) if random.random() < 0.5 else None
        # No input may be without rows.
        self.build.input(Given(("batch",)))

    def call(self, operator: str) -> Any:
        """Draw arguments, and call the operator with them."""
        namespace, name, overload = operator.split(".")
        function = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        arguments: list[Argument] = []
        keywords: dict[str, Argument] = {}
        stopped = False
        for item in function._schema.arguments:
            optional = item.has_default_value()
            if optional and item.name in _OPTIONS:
                stopped = True
            elif optional and self.random.random() < 0.4:
                stopped = not item.kwarg_only or stopped
            elif item.kwarg_only:
                keywords[item.name] = self.argument(item)
            elif not stopped:
                arguments.append(self.argument(item))
        if "batch_norm" in operator:
            self.fitting(arguments)
        return self.build.call(operator, *arguments, **keywords)

    def mixed(self, value: Reference) -> Reference:
        """Go on along an axis, which mixes rows where it is theirs."""
        rank = len(self.build.types[value.name].shape)
        operator, *rest = self.random.choice(_ALONG)
        if not rank or self.build.types[value.name].dtype == "bool":
            return value
        shape = self.build.types[value.name].shape
        split = [k for k, size in enumerate(shape) if size.dimensions]
        axis = self.random.choice([*split, *split, *range(rank)])
        listed = operator in ("aten.flip.default", "aten.amax.default")
        arguments = ((axis,) if listed else axis, *rest)
        try:
            result = self.build.call(operator, value, *arguments)
        except (Unsized, TypeError, NotImplementedError):
            return value
        found: Reference = result[0] if isinstance(result, tuple) else result
        return found

    def fitting(self, arguments: list[Argument]) -> None:
        """Refuse statistics of other lengths, over which torch reads too far."""
        shapes = [
            self.build.types[item.name].shape
            for item in arguments
            if isinstance(item, Reference)
        ]
        if len(shapes[0]) < 2 or any(shape != shapes[0][1:2] for shape in shapes[1:]):
            raise Unsized("other lengths than there are channels")

    def argument(self, item: Any) -> Argument:
        """Draw one argument by its type and name."""
        kind, random = str(item.type), self.random
        if kind.startswith("Optional["):
            if random.random() < 0.4:
                return None
            kind = kind[len("Optional[") : -1]
        match kind:
            case "Tensor":
                return self.tensor(item.name)
            case "List[Tensor]":
                return tuple(
                    self.tensor(item.name) for _ in range(random.choice((2, 3)))
                )
            case "List[Optional[Tensor]]":
                empty: list[Argument] = [None] * random.choice((0, 0, 1, 2))
                count = random.choice((1, 1, 2))
                return (*empty, *(self.tensor("index") for _ in range(count)))
            case "List[int]":
                return self.integers(item.name)
            case "int":
                if item.name == "dtype":
                    return Constant("dtype", random.choice(("float32", "float64")))
                if item.name == "group_size":
                    return RANKS
                if item.name in _MODES:
                    return random.randrange(3)
                return random.choice((0, 0, 1, 1, 2, 2, 3, 4, -1, -1, -2))
            case "float" | "number":
                if item.name == "dropout_p":
                    return 0.0
                return random.choice((0.5, 1.0, 2.0, 1, 2, True))
            case "List[float]":
                return (2.0,) * random.choice((1, 2, 3))
            case "bool":
                return random.random() < 0.5
            # Names of process groups have this type.
            case "str" | "Any":
                words = _WORDS.get(item.name, ("none",))
                if random.random() < 0.3:
                    words = _OTHER_WORDS.get(item.name, words)
                return random.choice(words)
            case "Device" | "device":
                return Constant("device", "cpu")
            case _:
                raise Unsized(f"{item.name}: {kind}")

    def integers(self, name: str) -> Argument:
        """Draw sizes, axes, or small numbers."""
        random = self.random
        windowed = self.window is not None and name in ("kernel_size", "output_size")
        if not windowed and ("size" in name or "shape" in name):
            shape: list[Size] = [
                BATCH if size == "batch" else Size(int(size))
                for size in self.placed(self.row_axis)
            ]
            if len(shape) > 1 and random.random() < 0.4:
                at = random.randrange(len(shape) - 1)
                shape[at : at + 2] = [shape[at] * shape[at + 1]]
            elif random.random() < 0.3:
                random.shuffle(shape)
            if random.random() < 0.6:
                return tuple(shape)
        if "dim" in name and random.random() < 0.7:
            return tuple(random.sample((-1, -2, 0, 1, 2), random.choice((1, 1, 2))))
        if self.window is not None and "dim" not in name:
            least = 0 if "padding" in name else 1
            most = 4 if name == "output_size" else least + 1
            return (random.choice((least, 1, 1, most)),) * self.window
        length = random.choice((1, 1, 2, 2, 3, 3, 4, 6))
        if random.random() < 0.6:
            return (random.choice((0, 1, 1, 2, 2, 3)),) * length
        return tuple(random.choice((0, 1, 2, 3, -1)) for _ in range(length))

    def placed(self, at: int | None) -> tuple[int | str, ...]:
        """The common shape, with rows in an axis or without any."""
        shape = list(self.shape)
        if at is not None:
            shape[at % len(shape)] = "batch"
        return tuple(shape)

    def tensor(self, name: str) -> Reference:
        """Draw an operand: an input, or one that is turned, merged or made of it."""
        random = self.random
        at = None if random.random() < 0.25 else self.row_axis
        shape = self.placed(at)
        chance = random.random()
        if name in _SCALARS and random.random() < 0.5:
            shape = ()
        elif name in _VECTORS and chance < 0.7:
            shape = (random.choice((*self.shape[1:2], *self.shape[-1:], 4)),)
        elif name.startswith("mat") and chance < 0.5:
            shape = (*shape[:1], 4, 4)[-random.choice((2, 3)) :]
        elif name == "weight" and chance < 0.6:
            shape = (*(random.choice((4, 4, 2)) for _ in range(2)), *self.shape[2:])
        elif chance < 0.1:
            shape = shape[1:]
        elif chance < 0.2 and len(shape) > 1:
            shape = shape[:-1]
        elif chance < 0.3 and name == "grid":
            shape = (*shape[:-1], 2)
        elif chance < 0.3:
            shape = tuple(4 for _ in range(random.choice((1, 2, 3, 4, 5))))
        below, flags = None, False
        discrete = 0.8 if name in ("index", "indices", "mask", "condition") else 0.2
        if name in {*_VECTORS, *_CHANNELS} - {"index"}:
            discrete = 0.0
        if random.random() < discrete:
            flags = random.random() < 0.5 or name in ("mask", "condition")
            below = None if flags else 3
        made = self.build.input(Given(shape, below=below, flags=flags))
        if flags or below is not None:
            return made
        return self.changed(made, len(shape))

    def changed(self, value: Reference, rank: int) -> Reference:
        """Turn, merge, or make complex or positive some of the operands."""
        build, chance = self.build, self.random.random()
        if chance < 0.15 and rank > 1:
            one, other = self.random.sample(range(rank), 2)
            return build.call("aten.transpose.int", value, one, other)
        if chance < 0.3 and rank > 1:
            shape = build.types[value.name].shape
            at = self.random.randrange(rank - 1)
            merged = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
            return build.call("aten.reshape.default", value, merged)
        if chance < 0.35:
            return build.call("aten.fft_fft.default", value)
        if chance < 0.4 and rank > 1:
            turned = build.call("aten.transpose.int", value, -1, -2)
            product = build.call("aten.matmul.default", value, turned)
            one = build.call("aten.eye.default", 4)
            return build.call("aten.add.Tensor", product, one)
        return value
