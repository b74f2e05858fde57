"""Compares a generated module with the model it was made from, by running both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves, tree_map

from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.inputs import factors
from dynaflow_dsl.runtime.model import TensorSpec
from dynaflow_dsl.runtime.module_map import ModuleMap, read_map
from dynaflow_dsl.verification.recording import Recorder, Recording
from dynaflow_dsl.verification.reference import run_reference
from dynaflow_dsl.verification.report import (
    Comparison,
    Difference,
    Recorded,
    Report,
)

# How far results may be apart when the same numbers are added in another order,
# relative to the largest magnitude of the tensor; other dtypes must be equal.
TOLERANCES: Mapping[torch.dtype, float] = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}


def verify(
    module: ModuleType,
    model: torch.nn.Module,
    make_arguments: Callable[[int], Sequence[Any]],
    exported: ExportedProgram,
    whole: Collection[str],
    pieces_of: Callable[[int], Sequence[slice]],
    *,
    adapter: Callable[..., Any] | None = None,
    batches: Sequence[int] = (1, 2, 3, 8),
    entry: str | None = None,
    compiled: bool = True,
    seed: int = 0,
    **options: Any,
) -> Report:
    """Run `module` in every way it can run and compare with the model.

    `make_arguments(batch)` makes arguments of the adapter, drawn from torch's global
    generator; `adapter` is what they are for (None: the model). `exported` is the
    adapter's exported program, `whole` its nodes that the schedule runs once, and
    `pieces_of(batch)` the slices of the others: empty when there is no split. `entry`
    names one of several executors. `options` go to the module's `load`.

    For each batch: the module's text, eager, against the reference on the same pieces,
    bit for bit, every output and every input that may be written; the compiled module
    against the same reference, and against the adapter, within a tolerance; and one
    step on recording streams, for races and early frees.
    """
    called = adapter if adapter is not None else model
    recorder = Recorder()
    text = _executor(
        module.load(model, compile=False, streams=recorder.streams, **options), entry
    )
    fast = None
    if compiled:
        fast = _executor(module.load(model, compile=True, **options), entry)
    module_map = read_map(Path(type(text).step.__code__.co_filename))
    split_input = _split_input(text)
    weights = _weights(called, model)
    comparisons: list[Comparison] = []
    recordings: list[Recorded] = []
    for batch in batches:
        with torch.random.fork_rng():
            torch.manual_seed(seed + batch)
            arguments = make_arguments(batch)
        names = _names(text, arguments)
        pieces = pieces_of(batch)
        if any(piece.start >= piece.stop for piece in pieces):
            pieces = ()  # a step with an empty piece runs unsplit

        def reference(given: Sequence[Any], pieces: Sequence[slice] = pieces) -> Any:
            return run_reference(
                exported, weights, given, whole, pieces, split_input=split_input
            )

        def adapted(given: Sequence[Any]) -> Any:
            with torch.no_grad():
                return called(*given)

        def recorded(given: Sequence[Any], batch: int = batch) -> Any:
            recording = recorder.run(text, given, list(weights.values()))
            recordings.append(_recorded(batch, recording, module_map))
            return recording.outputs

        expected = _result(reference, arguments)
        unsplit = _result(adapted, arguments)
        eager = _result(recorded, arguments)
        comparisons.append(
            compare(batch, names, "text", eager, "reference", expected, exact=True)
        )
        ways = [("text", eager)]
        if fast is not None:
            ways = [("compiled", _result(lambda given: fast(*given), arguments))]
            comparisons.append(
                compare(batch, names, *ways[0], "reference", expected, exact=False)
            )
        comparisons.append(
            compare(batch, names, *ways[0], "model", unsplit, exact=False)
        )
    return Report(module_map.module, text.entry, tuple(comparisons), tuple(recordings))


def proportional_pieces(
    weights: Sequence[int | str | Fraction], align: int = 1
) -> Callable[[int], tuple[slice, ...]]:
    """The slices of a batch that weights stand for, computed from first principles.

    Cut k is the multiple of `align` nearest to the batch times the share of the first k
    weights, halves rounded up, and never beyond the batch.
    """
    exact = [Fraction(weight) for weight in weights]

    def pieces_of(batch: int) -> tuple[slice, ...]:
        cuts = [0]
        for count in range(1, len(exact)):
            share = sum(exact[:count], Fraction()) / sum(exact, Fraction())
            ideal = batch * share / align
            below = ideal.numerator // ideal.denominator
            nearest = below + (ideal - below >= Fraction(1, 2))
            cuts.append(min(nearest * align, batch))
        cuts.append(batch)
        return tuple(slice(cuts[k], cuts[k + 1]) for k in range(len(exact)))

    return pieces_of


def compare(
    batch: int,
    names: Sequence[str],
    what: str,
    given: Sequence[torch.Tensor],
    against: str,
    expected: Sequence[torch.Tensor],
    *,
    exact: bool,
) -> Comparison:
    """Compare two runs tensor by tensor: outputs first, then `names`, the inputs."""
    outputs = len(expected) - len(names)
    labels = [f"output[{k}]" if outputs > 1 else "output" for k in range(outputs)]
    labels += names
    difference: Difference | None = None
    largest = 0.0
    tolerances = [TOLERANCES.get(tensor.dtype, 0.0) for tensor in expected]
    if len(given) != len(expected):
        message = f"number of outputs ({len(given) - len(names)})"
        difference = Difference(message, float("inf"))
    for label, one, other, tolerance in zip(
        labels, given, expected, tolerances, strict=False
    ):
        if exact:
            apart = 0.0 if _same_bits(one, other) else max(_apart(one, other), 1e-45)
            fine = apart == 0.0
        else:
            apart = _apart(one, other)
            fine = apart <= tolerance
        largest = max(largest, apart)
        if not fine and difference is None:
            difference = Difference(label, apart)
    return Comparison(
        batch=batch,
        what=what,
        against=against,
        tolerance=None if exact else max(tolerances, default=0.0),
        largest=largest,
        tensors=len(expected),
        difference=difference,
    )


def _executor(loaded: Any, entry: str | None) -> Executor:
    executor = loaded if isinstance(loaded, Executor) else getattr(loaded, str(entry))
    assert isinstance(executor, Executor)
    return executor


def _weights(called: Any, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    module = called if isinstance(called, torch.nn.Module) else model
    found: dict[str, torch.Tensor] = {}
    for tensors in (
        module.named_parameters(remove_duplicate=False),
        module.named_buffers(remove_duplicate=False),
    ):
        found.update((name, tensor.detach()) for name, tensor in tensors)
    return found


def _split_input(executor: Executor) -> tuple[int, int] | None:
    """Flat position and axis of the first input that has the split dimension."""
    if executor.split is None:
        return None
    position = 0
    for spec in executor.inputs.values():
        listed = [spec] if isinstance(spec, TensorSpec) else spec
        for one in listed:
            for axis, size in enumerate(one.shape):
                if factors(size) == (1, (executor.split.dimension,)):
                    return position, axis
            position += 1
    return None


def _names(executor: Executor, arguments: Sequence[Any]) -> list[str]:
    found: list[str] = []
    for name, argument in zip(executor.inputs, arguments, strict=True):
        leaves = tree_leaves(argument)
        if isinstance(argument, torch.Tensor):
            found.append(name)
        else:
            found += [f"{name}[{k}]" for k in range(len(leaves))]
    return found


def _result(
    run: Callable[[Sequence[Any]], Any], arguments: Sequence[Any]
) -> list[torch.Tensor]:
    """Outputs and afterwards the inputs of a run on copies of the arguments."""
    copies = tree_map(
        lambda one: one.clone() if isinstance(one, torch.Tensor) else one,
        tuple(arguments),
    )
    outputs = run(copies)
    return [*_tensors(outputs), *_tensors(copies)]


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    # One dimension more, since the last is what `view` reinterprets.
    return tensor.detach().contiguous().unsqueeze(-1).view(torch.uint8)


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference over the largest magnitude of `other`; NaNs must coincide."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if one.numel() == 0:
        return 0.0
    if not other.dtype.is_floating_point:
        return 0.0 if torch.equal(one, other) else float("inf")
    left, right = one.detach().double(), other.detach().double()
    finite = torch.isfinite(right)
    if not torch.equal(finite, torch.isfinite(left)) or not torch.equal(
        left[~finite].nan_to_num(), right[~finite].nan_to_num()
    ):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    apart = (left[finite] - right[finite]).abs().max().item()
    scale = right[finite].abs().max().item()
    return float(apart if scale == 0.0 else apart / scale)


def _recorded(batch: int, recording: Recording, module_map: ModuleMap) -> Recorded:
    found: set[tuple[str, str]] = set()
    for first, second in recording.concurrent_lines():
        labels = [module_map.plan_lines(line) for line in (first, second)]
        if labels[0] is not None and labels[1] is not None:
            one, other = sorted((labels[0].label, labels[1].label))
            found.add((one, other))
    return Recorded(batch, recording.operations, recording.faults, tuple(sorted(found)))
