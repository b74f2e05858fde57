"""Runs the text of a generated module with stand-ins, and keeps what it did.

Nothing of the compiler is used: the text is parsed and executed as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from tests.simulator.queues import Cell, Kernel, Recording
from tests.simulator.stand_ins import (
    Piece,
    Recorder,
    Refused,
    Storage,
    Stream,
    Streams,
    Tensor,
    cat,
    compute,
    empty,
)


@dataclass(frozen=True, slots=True)
class Function:
    """What the text of a part's function says: its results and what it writes."""

    results: int
    shared: frozenset[int]
    written: tuple[int, ...]
    into: Into | None = None


@dataclass(frozen=True, slots=True)
class Into:
    """A function that runs another one: which of its results it copies to which of its
    own parameters, and which it returns."""

    function: str
    copies: dict[int, int]
    returned: tuple[int, ...]


def functions(tree: ast.Module, dimension: str | None) -> dict[str, Function]:
    return {
        node.name: _function(node, dimension)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def _function(node: ast.FunctionDef, dimension: str | None) -> Function:
    parameters = [argument.arg for argument in node.args.args[1:]]
    last = node.body[-1]
    assert isinstance(last, ast.Return)
    many = isinstance(last.value, ast.Tuple)
    results = len(last.value.elts) if many else 1  # type: ignore[union-attr]
    written = set()
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            operator = ast.unparse(call.func).split(".")
            if operator[1].endswith("_") and isinstance(call.args[0], ast.Name):
                written.add(call.args[0].id)
    returned = re.findall(
        r"^ *returns\b.*\[(.*)\]$", ast.get_docstring(node) or "", re.M
    )
    shared = {
        k for k, shape in enumerate(returned) if dimension not in shape.split(", ")
    }
    places = tuple(k for k, name in enumerate(parameters) if name in written)
    return Function(results, frozenset(shared), places, _into(node, parameters))


def _into(node: ast.FunctionDef, parameters: list[str]) -> Into | None:
    """What `f_into` does: `made = f(...)`, then `aten.copy_.default(out, made)`."""
    calling = next(
        (
            statement
            for statement in node.body
            if isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Call)
            and isinstance(statement.value.func, ast.Name)
        ),
        None,
    )
    if calling is None or not node.name.rstrip("_0123456789").endswith("into"):
        return None
    (target,) = calling.targets
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    made = [ast.unparse(name) for name in names]
    called = calling.value
    assert isinstance(called, ast.Call)
    passed = [ast.unparse(argument) for argument in called.args[1:]]
    assert passed == parameters[: len(passed)], "other inputs than the part's"
    copies = {}
    for statement in node.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            to, source = map(ast.unparse, statement.value.args)
            copies[made.index(source)] = parameters.index(to)
    last = node.body[-1]
    assert isinstance(last, ast.Return)
    assert last.value is not None
    kept = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    returned = tuple(made.index(ast.unparse(each)) for each in kept)
    return Into(ast.unparse(called.func), copies, returned)


@dataclass(frozen=True, slots=True)
class PartRecord:
    body: Any
    layers: Any = range(1)
    weights: Any = None
    which: Any = None
    into: Any = None


@dataclass(frozen=True, slots=True)
class IntoRecord:
    body: Any
    results: Any


@dataclass(frozen=True, slots=True)
class FetchRecord:
    layers: Any
    weights: Any
    buffers: int


def paths(record: PartRecord | FetchRecord, position: int) -> frozenset[str]:
    """Paths of the weights that an iteration reads or brings."""
    layer = str(record.layers[position])
    found = (
        given.replace("{}", layer) if isinstance(given, str) else given[position]
        for given in (record.weights or {}).values()
    )
    return frozenset(path for path in found if path is not None)


@dataclass(slots=True)
class Buffers:
    """Where weights are brought to: one cell for each buffer of each part."""

    recorder: Recorder
    fetches: dict[str, FetchRecord]
    storages: dict[tuple[str, int], Storage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, fetch in self.fetches.items():
            for number in range(fetch.buffers):
                made = Storage(self.recorder, (None,), owned=False)
                self.storages[name, number] = made

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(storage.cells[0] for storage in self.storages.values())

    def cell(self, name: str, position: int) -> Cell:
        return self.storages[name, position % self.fetches[name].buffers].cells[0]

    def bring(self, name: str) -> Callable[[int], None]:
        def run(position: int) -> None:
            token = ("weights", *sorted(paths(self.fetches[name], position)))
            write = (self.cell(name, position), token, ())
            self.recorder.launch(Kernel(f"{name} {position}", (), (write,)))

        return run

    def read(self, part: PartRecord, position: int) -> tuple[Cell, ...]:
        """What a part reads: of the iterations that bring some of its weights."""
        wanted = paths(part, position)
        return tuple(
            self.cell(name, other)
            for name, fetch in self.fetches.items()
            for other in range(len(fetch.layers))
            if wanted & paths(fetch, other)
        )


@dataclass(slots=True)
class ModuleText:
    """A module's text, run without anything of the compiler or of torch."""

    text: str
    torch: SimpleNamespace = field(default_factory=SimpleNamespace)
    names: dict[str, Any] = field(default_factory=dict)
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)
        body = [
            node
            for node in self.tree.body
            if not isinstance(node, ast.Import | ast.ImportFrom)
        ]
        self.torch.ops = SimpleNamespace(aten=None)
        self.torch.float32 = "float32"
        self.names |= {
            "torch": self.torch,
            "Executor": object,
            "Fetch": FetchRecord,
            "Into": IntoRecord,
            "Part": PartRecord,
            "Split": lambda name, **options: (name, len(options["weights"])),
            "TensorSpec": lambda dtype, *shape: shape,
            "loader": lambda *executors: executors,
        }
        code = ast.Module(body, [])
        exec(compile(code, "<module>", "exec"), self.names)

    @property
    def classes(self) -> tuple[Any, ...]:
        return tuple(self.names["load"])

    def record(
        self, executor: Any, method: str = "step", *, persistent: Sequence[str] = ()
    ) -> Recording:
        """Run one method; a text that fails to run gives its error."""
        names = ("main", *getattr(executor, "stream_names", ()))
        recorder = Recorder(names)
        dimension, pieces = getattr(executor, "split", (None, 1))
        known = functions(self.tree, dimension)
        self.torch.cat = cat(recorder)
        self.torch.empty = empty(recorder, pieces)
        fake = SimpleNamespace(
            device="device",
            streams=Streams([Stream(name, recorder) for name in names]),
            split=SimpleNamespace(
                slices=lambda size: tuple(Piece(k) for k in range(pieces))
            ),
        )
        fetches = executor.fetches() if hasattr(executor, "fetches") else {}
        buffers = Buffers(recorder, fetches)
        for name in fetches:
            setattr(fake, name, buffers.bring(name))
        for name, part in executor.parts().items():
            setattr(fake, name, _part(recorder, name, part, known, buffers))
            for attribute, into in (part.into or {}).items():
                writing = replace(part, body=into.body)
                run = _part(recorder, name, writing, known, buffers)
                setattr(fake, attribute, run)
        inputs = {
            name: _inputs(recorder, specs, dimension, pieces)
            for name, specs in executor.inputs.items()
        }
        cells = {
            name: [cell for tensor in _listed(given) for cell in tensor.storage.cells]
            for name, given in inputs.items()
        }
        everything = [
            (name, k, cell) for name in cells for k, cell in enumerate(cells[name])
        ]
        given = tuple((cell, ("given", name, k), ()) for name, k, cell in everything)
        # The step before may have been another one that used the same buffers on main.
        recorder.launch(Kernel("the caller's inputs", buffers.cells, given, "start"))
        error = ""
        try:
            results = getattr(executor, method)(fake, *inputs.values())
        except (Refused, NameError, AttributeError, TypeError, IndexError) as failure:
            error, results = f"{type(failure).__name__}: {failure}", ()
            # The traceback's frames hold the step's names.
            failure.__traceback__ = None
        results = results if isinstance(results, tuple) else (results,)
        read = [t.cell(row) for t in results for row in t.rows]
        kept = [cell for name in persistent for cell in cells.get(name, ())]
        recorder.launch(Kernel("the caller", (*read, *kept), (), "end"))
        taken = tuple((cell, ("next step", cell), ()) for _, _, cell in everything)
        recorder.launch(Kernel("the caller's next inputs", (), taken, "next"))
        results = ()
        recorder.active = False
        return Recording(names, recorder.items, error)


def _listed(given: Any) -> list[Tensor]:
    return given if isinstance(given, list) else [given]


def _inputs(recorder: Recorder, specs: Any, dimension: str | None, pieces: int) -> Any:
    def make(shape: tuple[int | str, ...]) -> Tensor:
        rows = tuple(range(pieces)) if dimension in shape else (None,)
        return Tensor(Storage(recorder, rows, owned=False), rows)

    return [make(s) for s in specs] if isinstance(specs, list) else make(specs)


def _part(
    recorder: Recorder,
    name: str,
    part: PartRecord,
    known: dict[str, Function],
    buffers: Buffers,
) -> Callable[..., Any]:
    def run(layer: int, *operands: Any) -> Any:
        bodies = part.body if isinstance(part.body, list) else [part.body]
        body = bodies[part.which[layer] if part.which else 0]
        function = known[body.__name__]
        into: dict[int, Tensor] = {}
        if (writing := function.into) is not None:
            function = known[writing.function]
            into = {k: operands[place] for k, place in writing.copies.items()}
            operands = operands[: len(operands) - len(into)]
        made = compute(
            recorder,
            name,
            part.layers[layer],
            operands,
            function.results,
            function.shared,
            function.written,
            buffers.read(part, layer),
            into,
        )
        return made[0] if len(made) == 1 else tuple(made)

    return run
