"""A small traced model, and strategies for all that the types allow."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from dynaflow_dsl.graph.model import (
    Argument,
    Constant,
    Graph,
    Input,
    Operation,
    Reference,
    Size,
    SourceLine,
    TensorType,
    TracedModel,
    Value,
)

BATCH = Size(1, ("batch",))
ROWS = TensorType((BATCH, Size(4)), (Size(4), Size(1)), "float32")
LINE = SourceLine("package/model.py", 7, "return self.linear(x).t()")


def sample() -> TracedModel:
    """`(w @ x).t()` plus a constant, with a write into a cache."""
    weight = TensorType((Size(4), Size(4)), (Size(4), Size(1)), "float32")
    turned = TensorType((Size(4), BATCH), (Size(1), Size(4)), "float32")
    constant = TensorType((Size(2),), (Size(1),), "float32")
    graph = Graph(
        entry="decode",
        inputs=(
            Input("linear.weight", "parameter", Value("linear.weight", weight, 0)),
            Input("c", "constant", Value("c", constant, 1), data=(1.5, -math.inf)),
            Input("x", "step", Value("x", ROWS, 2), argument=0),
            Input("keys.0", "persistent", Value("keys.0", ROWS, 3), argument=1),
        ),
        operations=(
            Operation(
                "linear",
                "aten.linear.default",
                (Reference("x"), Reference("linear.weight")),
                (),
                (Value("linear", ROWS, 4),),
                False,
                (),
                False,
                (),
                "linear",
                LINE,
                ("package.model.Model.forward", "package.model.project"),
                ("outer", "gate"),
            ),
            Operation(
                "copy_",
                "aten.copy_.default",
                (Reference("keys.0"), Reference("linear")),
                (("non_blocking", False),),
                (),
                False,
                ("keys.0",),
                False,
                ("pointwise",),
                "",
                None,
            ),
            Operation(
                "t",
                "aten.t.default",
                (Reference("linear"),),
                (),
                (Value("t", turned, 4),),
                False,
                (),
                True,
                (),
                "",
                LINE,
            ),
        ),
        outputs=("t",),
        dimensions=(("batch", 1, None),),
        signature=(("x", None), ("keys", 1)),
        modules=("", "linear"),
    )
    return TracedModel(
        target="package.module:function",
        arguments=(("layers", 2), ("dtype", "float32")),
        model_class="Model",
        device="cpu",
        dtype="float32",
        captured_by="export",
        facts=(("model", "Model"), ("scale", 0.5), ("tied", True)),
        fingerprint=(("torch", "2.13.0"),),
        graphs=(graph,),
    )


NAMES = st.text(min_size=1, max_size=6)
OPERATORS = st.from_regex(r"\w+\.\w+\.\w+", fullmatch=True)
DIMENSIONS = ("batch", "sequence")
SIZES = st.builds(
    Size,
    st.integers(-(2**40), 2**40),
    st.lists(st.sampled_from(DIMENSIONS), max_size=3).map(lambda d: tuple(sorted(d))),
)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63) | NAMES
FLOATS = st.floats(allow_nan=False)


@st.composite
def types(draw: st.DrawFn) -> TensorType:
    rank = draw(st.integers(0, 3))
    extent = SIZES.map(lambda size: Size(abs(size.factor), size.dimensions))
    sizes = st.tuples(*[extent] * rank)
    return TensorType(draw(sizes), draw(sizes), draw(st.sampled_from(["bool", "int8"])))


def arguments(known: list[str]) -> st.SearchStrategy[Argument]:
    """Arguments that refer to known values."""
    constants = st.builds(
        Constant,
        st.sampled_from(["dtype", "layout", "memory_format", "device"]),
        NAMES,
    )
    single: st.SearchStrategy[Argument] = (
        st.none() | SCALARS | FLOATS | SIZES | constants
    )
    if known:
        single |= st.sampled_from(known).map(Reference)
    return single | st.lists(single, max_size=2).map(tuple)


@st.composite
def graphs(draw: st.DrawFn, entry: str) -> Graph:
    names = draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    modules = draw(st.lists(st.text(max_size=6), min_size=1, max_size=3, unique=True))
    known: list[str] = []
    storages: list[int] = []

    def value(name: str) -> Value:
        new = max(storages, default=-1) + 1
        storage = draw(st.sampled_from([*dict.fromkeys(storages), new]))
        storages.append(storage)
        known.append(name)
        return Value(name, draw(types()), storage)

    count = draw(st.integers(0, len(names)))
    inputs: list[Input] = []
    signature: list[tuple[str, int | None]] = []
    for name in names[:count]:
        kind = draw(st.sampled_from(["parameter", "buffer", "constant", "step"]))
        if kind == "step":
            argument = len(signature)
            signature.append((name, None))
            inputs.append(Input(name, "step", value(name), argument=argument))
        elif kind == "constant":
            content = draw(st.lists(SCALARS | FLOATS, max_size=2).map(tuple) | FLOATS)
            inputs.append(Input(name, "constant", value(name), data=content))
        else:
            inputs.append(Input(name, kind, value(name)))  # type: ignore[arg-type]
    operations: list[Operation] = []
    stacks = st.lists(st.sampled_from(("f", "f#2", "a.f", "b.f")), unique=True)
    lines = st.builds(SourceLine, NAMES, st.integers(0, 3), st.just("code"))
    for name in names[count:]:
        given = arguments(list(known))
        positional = tuple(draw(st.lists(given, max_size=3)))
        named = draw(st.dictionaries(NAMES, given, max_size=2))
        read = [item.name for item in positional if isinstance(item, Reference)]
        writes = draw(st.lists(st.sampled_from(read), max_size=1)) if read else []
        kind = draw(st.sampled_from(["nothing", "unread", "read"]))
        results: tuple[Value | None, ...] = ()
        if kind != "nothing":
            results = (value(name) if kind == "read" else None,)
        stored = {known[k]: storage for k, storage in enumerate(storages)}
        view = kind == "read" and stored[name] in {stored[item] for item in read}
        operations.append(
            Operation(
                name=name,
                operator=draw(OPERATORS),
                arguments=positional,
                keywords=tuple(named.items()),
                results=results,
                multiple=draw(st.booleans()),
                writes=tuple(writes),
                view=view and not writes,
                tags=tuple(draw(st.lists(NAMES, max_size=2))),
                module=draw(st.sampled_from(modules)),
                source=draw(st.none() | lines),
                functions=tuple(draw(stacks)),
                marks=tuple(draw(st.lists(NAMES, max_size=2, unique=True))),
            )
        )
    outputs = draw(st.lists(st.sampled_from(known), max_size=2)) if known else []
    return Graph(
        entry=entry,
        inputs=tuple(inputs),
        operations=tuple(operations),
        outputs=tuple(outputs),
        dimensions=tuple(
            (name, 1, draw(st.none() | st.just(9))) for name in DIMENSIONS
        ),
        signature=tuple(signature),
        modules=tuple(modules),
    )


@st.composite
def traced_models(draw: st.DrawFn) -> TracedModel:
    """Any model whose storages are numbered by first appearance."""
    pairs = st.dictionaries(NAMES, SCALARS | FLOATS.filter(math.isfinite), max_size=3)
    entries = draw(st.lists(NAMES, min_size=1, max_size=2, unique=True))
    return TracedModel(
        target=draw(NAMES),
        arguments=tuple(draw(pairs).items()),
        model_class=draw(NAMES),
        device=draw(NAMES),
        dtype=draw(NAMES),
        captured_by="export",
        facts=tuple(draw(pairs).items()),
        fingerprint=tuple(draw(st.dictionaries(NAMES, NAMES, max_size=2)).items()),
        graphs=tuple(draw(graphs(entry)) for entry in entries),
    )
