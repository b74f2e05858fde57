from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram

from dynaflow_dsl.runtime import LoadError, Split, loader
from dynaflow_dsl.verification.report import Comparison, Report
from dynaflow_dsl.verification.verify import (
    compare,
    find_executor,
    proportional_pieces,
    verify,
)
from tests.runtime.toy_model import Toy, make_arguments
from tests.runtime.write_toy_maps import EXECUTORS
from tests.verification.mutations import (
    Mutation,
    with_wrong_slices,
    without_waits,
    write_module,
)

TEXT = (EXECUTORS / "toy_halves.py").read_text(encoding="utf-8")
DOCUMENT = json.loads((EXECUTORS / "toy_halves.map.json").read_text())
HALVES = proportional_pieces((1, 1))


@pytest.mark.slow
def test_the_toys_pass(
    halves: ModuleType,
    lanes: ModuleType,
    toy: Toy,
    exported: ExportedProgram,
    whole: frozenset[str],
) -> None:
    for module, weights in ((halves, (1, 1)), (lanes, (2, 1))):
        pieces_of = proportional_pieces(weights)
        report = verify(module, toy, make_arguments, exported, whole, pieces_of)
        assert report.ok, str(report)
        assert len(report.comparisons) == 3 * len(report.recordings) == 12
        exact = [one for one in report.comparisons if one.tolerance is None]
        assert [(one.what, one.against) for one in exact] == [("text", "reference")] * 4
        assert {one.tensors for one in report.comparisons} == {10}


def checked(
    folder: Path,
    text: str,
    toy: Toy,
    exported: ExportedProgram,
    whole: frozenset[str],
    **options: Any,
) -> Report:
    module = write_module(folder, "toy_halves", text, DOCUMENT)
    return verify(
        module,
        toy,
        make_arguments,
        exported,
        whole,
        HALVES,
        batches=(4,),
        compiled=False,
        **options,
    )


@pytest.mark.parametrize(
    "mutation",
    [pytest.param(one, id=one.name) for one in with_wrong_slices(TEXT)],
)
def test_each_wrong_slice_breaks_equality(
    tmp_path: Path,
    toy: Toy,
    exported: ExportedProgram,
    whole: frozenset[str],
    mutation: Mutation,
) -> None:
    report = checked(tmp_path, mutation.text, toy, exported, whole)
    assert not report.ok
    assert report.comparisons[0].tolerance is None
    assert report.comparisons[0].difference is not None


def test_a_small_change_of_the_arithmetic_breaks_equality(
    tmp_path: Path, toy: Toy, exported: ExportedProgram, whole: frozenset[str]
) -> None:
    # The same sum with its operands the other way round is equal; doubled it is not.
    before = "add = aten.add.Tensor(hidden, attn)"
    same = TEXT.replace(before, "add = aten.add.Tensor(attn, hidden)")
    assert checked(tmp_path, same, toy, exported, whole).ok
    near = TEXT.replace(before, "add = aten.add.Tensor(hidden, attn, alpha=1.0000002)")
    report = checked(tmp_path, near, toy, exported, whole)
    exact, close = report.comparisons
    assert not exact.ok
    assert close.ok


def test_a_lost_cache_write_is_found(
    tmp_path: Path, toy: Toy, exported: ExportedProgram, whole: frozenset[str]
) -> None:
    write = "aten.index_copy_.default(values, 2, slot, transpose_2)"
    lost = TEXT.replace(write, write.replace("(values", "(values.clone()"))
    report = checked(tmp_path, lost, toy, exported, whole)
    assert not report.ok


def test_faults_of_order_are_in_the_report(
    tmp_path: Path, toy: Toy, exported: ExportedProgram, whole: frozenset[str]
) -> None:
    text = without_waits(TEXT)[1].text
    report = checked(tmp_path, text, toy, exported, whole)
    assert all(one.ok for one in report.comparisons)
    assert not report.ok
    lines = list(report.lines())
    assert lines[0] == "toy_halves.py, entry decode: FAILED"
    assert "  batch 4: order of 78 operations: 1 faults" in lines
    assert any("read before write: aten.add.Tensor on main" in line for line in lines)


def test_the_report_names_what_was_unordered(
    tmp_path: Path, toy: Toy, exported: ExportedProgram, whole: frozenset[str]
) -> None:
    report = checked(tmp_path, TEXT, toy, exported, whole)
    assert report.recordings[0].concurrent == (
        ("attn[0]", "mlp[1]"),
        ("attn[1]", "mlp[0]"),
    )
    lines = list(report.lines())
    assert lines[1].endswith(
        "text against reference: equal bit for bit, 1 output, 9 inputs afterwards"
    )
    assert "equal within 1e-04 (largest" in lines[2]


def test_claimed_pairs_must_be_unordered(
    tmp_path: Path, toy: Toy, exported: ExportedProgram, whole: frozenset[str]
) -> None:
    held, absent = ("mlp[1]", "attn[0]"), ("attn[0]", "other")
    report = checked(tmp_path, TEXT, toy, exported, whole, claims=[held, absent])
    assert report.ok
    broken = ("attn[0]", "mlp[0]")
    report = checked(tmp_path, TEXT, toy, exported, whole, claims=[held, broken])
    assert not report.ok
    assert report.recordings[0].ordered == (broken,)
    assert "    claimed, but ordered: attn[0] | mlp[0]" in list(report.lines())


def test_a_run_that_raises_is_in_the_report(
    tmp_path: Path, toy: Toy, exported: ExportedProgram, whole: frozenset[str]
) -> None:
    text = TEXT.replace("aten.relu.default(", "aten.rellu.default(")
    report = checked(tmp_path, text, toy, exported, whole)
    assert not report.ok
    (failure,) = report.failures
    assert failure.startswith("batch 4: text raised AttributeError: ")


def test_executors_are_found_by_entry_and_schedule(
    halves: ModuleType, toy: Toy
) -> None:
    made = {"entry": "decode"}
    base = halves.ToyHalvesDecode
    one = type("One", (base,), {**made, "schedule": "one"})
    other = type("Other", (base,), {**made, "schedule": "other"})
    loaded = loader(one, other)(toy, compile=False)
    assert type(find_executor(loaded, "decode", "other")) is other
    assert type(find_executor(loaded.One, "decode", "one")) is one
    for entry, schedule in (("decode", None), ("decode", "third"), ("prefill", None)):
        with pytest.raises(LoadError, match="executors of schedule"):
            find_executor(loaded, entry, schedule)


@pytest.mark.parametrize("align", [1, 4])
def test_pieces_are_those_of_the_runtime(align: int) -> None:
    for weights in ((1, 1), (2, 1), ("0.3", "0.3", "0.4"), (5, 1, 1)):
        split = Split("batch", weights=weights, align=align)
        pieces_of = proportional_pieces(weights, align)
        for batch in range(1, 50):
            assert pieces_of(batch) == split.slices(batch)


def differ(one: Any, other: Any, *, exact: bool = False) -> float | None:
    found = compare(4, [], "a", [one], "b", [other], exact=exact)
    assert found.ok is (found.difference is None)
    return None if found.difference is None else found.difference.largest


def test_close_is_relative_to_the_largest_magnitude() -> None:
    reference = torch.tensor([1000.0, 0.001])
    assert differ(reference + torch.tensor([0.05, 0.05]), reference) is None
    assert differ(reference + torch.tensor([0.0, 0.2]), reference) == pytest.approx(
        2e-4, rel=0.01
    )


def test_what_cancels_is_judged_beside_the_rest() -> None:
    usual, noise = torch.tensor([4.0, -3.0]), torch.tensor([8e-7, -2e-7])

    def compared(*given: torch.Tensor) -> Comparison:
        return compare(1, ["x"], "a", given, "b", [noise, usual, usual], exact=False)

    assert compared(-noise, usual, usual).ok
    # As far apart relative to its size, in a tensor that does not cancel.
    found = compared(noise, -usual, usual)
    assert str(found.difference) == "output[1] differs by 8.0e+00, relative 2.0e+00"
    assert "NOT equal within 1e-04: output[1] differs by 8.0e+00, rel" in str(found)
    assert not compared(noise + 1e-3, usual, usual).ok
    # Bits are bits.
    exact = compare(1, [], "a", [-noise, usual], "b", [noise, usual], exact=True)
    assert not exact.ok


def test_dtypes_have_their_own_tolerance() -> None:
    reference = torch.ones(3)
    near = reference * 1.01
    assert differ(near, reference) is not None
    assert differ(near.bfloat16(), reference.bfloat16()) is None


def test_other_kinds_must_be_equal() -> None:
    assert differ(torch.tensor([1, 2]), torch.tensor([1, 3])) == float("inf")
    assert differ(torch.tensor([1, 2]), torch.tensor([1, 2])) is None
    assert differ(torch.ones(2), torch.ones(3)) == float("inf")
    assert differ(torch.ones(2), torch.ones(2).double()) == float("inf")


def test_nan_and_infinity_must_be_in_the_same_places() -> None:
    odd = torch.tensor([float("nan"), float("inf"), 1.0])
    assert differ(odd.clone(), odd) is None
    assert differ(odd.clone(), odd, exact=True) is None
    assert differ(torch.ones(3), odd) == float("inf")
    assert differ(torch.tensor([float("nan"), -float("inf"), 1.0]), odd) is not None


def test_bits_tell_zeros_apart() -> None:
    assert differ(torch.tensor([-0.0]), torch.tensor([0.0]), exact=True) is not None
    assert differ(torch.tensor([-0.0]), torch.tensor([0.0])) is None


def test_missing_outputs_are_a_difference() -> None:
    found = compare(
        4, ["x"], "a", [torch.ones(1)], "b", [torch.ones(1)] * 2, exact=True
    )
    assert not found.ok
