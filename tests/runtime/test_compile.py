from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from dynaflow_dsl.runtime import Executor, InputError, LoadError, TensorSpec
from dynaflow_dsl.runtime import compile as compile_room
from dynaflow_dsl.runtime import sizes as sizes_room
from dynaflow_dsl.runtime.artifacts import Artifact, read_artifact, write_artifact
from dynaflow_dsl.runtime.compile import compile_parts
from dynaflow_dsl.runtime.inductor import compile_graph
from dynaflow_dsl.runtime.weights import record
from tests.runtime.test_variants import WithoutKernels
from tests.runtime.toy_model import Toy, make_arguments, make_toy

pytestmark = pytest.mark.slow

aten = torch.ops.aten
CPU = torch.device("cpu")
TABLE = torch.tensor([1.0, 2.0, 3.0, 4.0])
ROWS = TensorSpec("float32", "batch", 4)


def compiled(
    folder: Path,
    function: Callable[..., Any],
    call: Callable[..., Any],
    weights: dict[str, torch.Tensor] | None = None,
    **inputs: TensorSpec,
) -> Callable[..., Any]:
    """`function` as the only part of an executor that does `call(part, ...)`."""

    def sequential(self: Any, *arguments: Any) -> Any:
        return call(lambda *given: self.part(0, *given), *arguments)

    body = {"entry": "test", "inputs": inputs, "sequential": sequential}
    executor: type[Executor] = type("Tested", (WithoutKernels,), body)
    own = weights or {}
    parts = compile_parts(executor, {"part": [function]}, {"part": [own]}, CPU, folder)
    return parts["part"][0]


def plain(part: Callable[..., Any], *arguments: Any) -> Any:
    return part(*arguments)


def test_the_toy_at_every_batch(halves: ModuleType, toy: Toy) -> None:
    executor = halves.load(toy)
    text = halves.load(toy, compile=False)
    for batch in (1, 2, 3, 17):
        arguments, copies = make_arguments(batch), make_arguments(batch)
        for one, other in zip(flat(arguments), flat(copies), strict=True):
            other.copy_(one)
        torch.testing.assert_close(executor(*arguments), text(*copies))
        for one, other in zip(flat(arguments), flat(copies), strict=True):
            torch.testing.assert_close(one, other)


def flat(arguments: Any) -> list[torch.Tensor]:
    return [*arguments[:3], *arguments[3], *arguments[4]]


def test_layers_and_modules_share_what_looks_the_same(
    halves: ModuleType, lanes: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves.load(toy)

    def refuse(*_: Any) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compile_room, "compile_graph", refuse)
    halves.load(toy)
    executor = lanes.load(toy)
    boxed = {id(call) for call in executor.attn.__closure__[0].cell_contents}
    assert len(boxed) == 3  # one callable per layer, with its own weights


def test_two_executors_do_not_disturb_each_other(halves: ModuleType, toy: Toy) -> None:
    arguments = make_arguments(4)
    first = halves.load(toy)
    before = first(*arguments)
    second = halves.load(make_toy(5))
    assert not torch.equal(second(*arguments), before)
    assert torch.equal(first(*arguments), before)


def test_a_damaged_artifact_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def double(w: object, hidden: Any) -> Any:
        return aten.mul.Tensor(hidden, 2)

    count: list[int] = []

    def counting(*arguments: Any) -> bytes:
        count.append(1)
        return compile_graph(*arguments)

    monkeypatch.setattr(compile_room, "compile_graph", counting)
    hidden = torch.randn(3, 4)
    for damage in (None, b"", b"{}\nxx"):
        part = compiled(tmp_path, double, plain, hidden=ROWS)
        torch.testing.assert_close(part(hidden), hidden * 2)
        (file,) = tmp_path.glob("*.part")
        if damage is not None:
            file.write_bytes(damage)
    file.write_bytes(file.read_bytes()[:-7])
    compiled(tmp_path, double, plain, hidden=ROWS)
    assert len(count) == 3
    # An artifact that is whole, but that this PyTorch cannot load.
    write_artifact(tmp_path, file.stem, Artifact(b"nonsense", ()))
    with pytest.warns(UserWarning, match="cannot be loaded"):
        part = compiled(tmp_path, double, plain, hidden=ROWS)
    torch.testing.assert_close(part(hidden), hidden * 2)
    assert len(count) == 4


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_artifact(tmp_path / "file", "key", Artifact(b"x", ()))
    assert read_artifact(tmp_path / "file", "key") is None


def test_artifacts_come_back_as_written(tmp_path: Path) -> None:
    artifact = Artifact(b"a\nb\x00", ("batch <= 8191",))
    write_artifact(tmp_path, "key", artifact)
    assert read_artifact(tmp_path, "key") == artifact
    assert [file.name for file in tmp_path.iterdir()] == ["key.part"]


def test_a_part_is_compiled_again_for_sizes_that_were_not_assumed(
    compiled_folder: Path,
) -> None:
    def first_rows(w: object, hidden: Any) -> Any:
        return aten.mul.Tensor(aten.slice.Tensor(hidden, 0, 0, 8), 2)

    part = compiled(compiled_folder, first_rows, plain, hidden=ROWS)
    for batch in (1, 3, 7, 8, 9, 30):
        hidden = torch.randn(batch, 4)
        torch.testing.assert_close(part(hidden), hidden[:8] * 2)


def test_a_lost_artifact_is_made_again_with_its_conditions(tmp_path: Path) -> None:
    def first_rows(w: object, hidden: Any) -> Any:
        return aten.mul.Tensor(aten.slice.Tensor(hidden, 0, 0, 8), 3)

    for _ in range(2):
        part = compiled(tmp_path, first_rows, plain, hidden=ROWS)
        hidden = torch.randn(3, 4)
        torch.testing.assert_close(part(hidden), hidden * 3)
        for file in tmp_path.glob("*.part"):
            file.unlink()


def convolve(w: Any, hidden: Any) -> Any:
    mixed = aten.conv1d.default(hidden, w.kernel, w.bias, [1], [1])
    return aten.group_norm.default(mixed, 2, w.scale, w.shift)


def convolution(folder: Path) -> Callable[..., Any]:
    weights = {name: torch.randn(4) for name in ("bias", "scale", "shift")}
    weights["kernel"] = torch.randn(4, 4, 3)
    rows = TensorSpec("float32", "batch", 4, 6)
    part = compiled(folder, convolve, plain, weights, hidden=rows)

    def both(batch: int) -> None:
        hidden = torch.randn(batch, 4, 6)
        expected = convolve(record(weights), hidden)
        torch.testing.assert_close(part(hidden), expected)

    return both


def test_a_choice_of_the_compiler_for_one_size_does_not_bind_others(
    compiled_folder: Path, recwarn: pytest.WarningsRecorder
) -> None:
    both = convolution(compiled_folder)
    for batch in range(1, 41):
        both(batch)
    assert not [one for one in recwarn if "was compiled for sizes" in str(one.message)]


def test_sizes_that_nothing_was_compiled_for_run_the_text(
    compiled_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes_room, "MOST", 1)
    both = convolution(compiled_folder)
    both(16)
    with pytest.warns(UserWarning, match="its text runs as it stands") as caught:
        both(3)
    assert "`part` was compiled for sizes with batch >= 16" in str(caught[0].message)
    assert "is called with batch = 3" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both(3)


def test_slices_of_a_tensor_are_taken_where_they_lie(compiled_folder: Path) -> None:
    def write(w: object, cache: Any, slot: Any, new: Any) -> None:
        aten.index_copy_.default(cache, 1, slot, new)

    part = compiled(
        compiled_folder,
        write,
        plain,
        cache=TensorSpec("float32", "batch", 6, 2),
        slot=TensorSpec("int64", 1),
        new=TensorSpec("float32", "batch", 1, 2),
    )
    cache, new = torch.zeros(5, 6, 2), torch.randn(5, 1, 2)
    assert part(cache[3:], torch.tensor([4]), new[3:]) is None
    expected = torch.zeros(5, 6, 2)
    expected[3:, 4:5] = new[3:]
    assert torch.equal(cache, expected)


def test_several_outputs_weights_and_constants(compiled_folder: Path) -> None:
    def both(w: Any, hidden: Any) -> Any:
        scaled = aten.mul.Tensor(hidden, TABLE)
        return scaled, aten.mm.default(scaled, w.matrix)

    matrix = torch.randn(4, 4)
    part = compiled(compiled_folder, both, plain, {"matrix": matrix}, hidden=ROWS)
    hidden = torch.randn(5, 4)
    scaled, product = part(hidden)
    torch.testing.assert_close(scaled, hidden * TABLE)
    torch.testing.assert_close(product, (hidden * TABLE) @ matrix)


def test_memory_made_in_a_part_is_fresh_in_every_call(compiled_folder: Path) -> None:
    def accumulate(w: object, hidden: Any) -> Any:
        total = aten.zeros.default([4])
        aten.add_.Tensor(total, aten.sum.dim_IntList(hidden, [0]))
        return total

    part = compiled(compiled_folder, accumulate, plain, hidden=ROWS)
    hidden = torch.ones(3, 4)
    assert part(hidden).tolist() == part(hidden).tolist() == [3.0] * 4


def test_expanded_inputs(compiled_folder: Path) -> None:
    def add_one(w: object, bias: Any) -> Any:
        return aten.add.Tensor(bias, 1)

    def call(part: Callable[..., Any], mask: torch.Tensor) -> Any:
        return part(mask[:, None, :].expand(-1, 2, -1))

    part = compiled(compiled_folder, add_one, call, mask=ROWS)
    for batch in (1, 4):
        mask = torch.randn(batch, 4)
        expanded = mask[:, None, :].expand(-1, 2, -1)
        torch.testing.assert_close(part(expanded), expanded + 1)
    with pytest.raises(AssertionError, match="expected"):
        part(expanded.contiguous())


def test_sizes_and_literals_without_tensors(compiled_folder: Path) -> None:
    def fill(w: object, size: Any, value: float) -> Any:
        return aten.full.default([size, 2], value)

    def call(part: Callable[..., Any], hidden: torch.Tensor) -> Any:
        return part(hidden.shape[0], 0.5)

    part = compiled(compiled_folder, fill, call, hidden=ROWS)
    assert part(3, 0.5).tolist() == [[0.5, 0.5]] * 3
    assert part(1, 0.5).tolist() == [[0.5, 0.5]]
    with pytest.raises(InputError, match=r"compiled for 0\.5 as its input 1"):
        part(3, 0.25)


def test_literals_alone(compiled_folder: Path) -> None:
    def fill(w: object, count: int) -> Any:
        return aten.full.default([count], 7)

    def call(part: Callable[..., Any], hidden: torch.Tensor) -> Any:
        return part(3)

    part = compiled(compiled_folder, fill, call, hidden=ROWS)
    assert part(3).tolist() == [7, 7, 7]


def test_two_dimensions(compiled_folder: Path) -> None:
    def join(w: object, left: Any, right: Any) -> Any:
        return aten.mm.default(left, right)

    part = compiled(
        compiled_folder,
        join,
        plain,
        left=TensorSpec("float32", "rows", 4),
        right=TensorSpec("float32", 4, "columns"),
    )
    left, right = torch.randn(3, 4), torch.randn(4, 3)
    torch.testing.assert_close(part(left, right), left @ right)
    left, right = torch.randn(2, 4), torch.randn(4, 9)
    torch.testing.assert_close(part(left, right), left @ right)


def test_what_cannot_be_compiled_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> bytes:
        raise RuntimeError("no compiler")

    def negate(w: object, hidden: Any) -> Any:
        return aten.neg.default(hidden)

    monkeypatch.setattr(compile_room, "compile_graph", fail)
    with pytest.raises(LoadError, match="cannot compile the part `part`") as caught:
        compiled(tmp_path, negate, plain, hidden=ROWS)
    assert caught.value.code == "DFS805"


def test_iterations_that_sequential_leaves_out(
    halves: ModuleType, compiled_folder: Path
) -> None:
    def sequential(self: Any, hidden: torch.Tensor) -> Any:
        return self.part(1, hidden)

    def double(w: object, hidden: Any) -> Any:
        return aten.mul.Tensor(hidden, 2)

    body = {"entry": "test", "inputs": {"hidden": ROWS}, "sequential": sequential}
    executor: type[Executor] = type("Tested", (WithoutKernels,), body)
    parts = compile_parts(
        executor, {"part": [double] * 2}, {"part": [{}, {}]}, CPU, compiled_folder
    )
    assert parts["part"][1](torch.ones(2, 4)).tolist() == [[2.0] * 4] * 2
    with pytest.raises(InputError, match="iteration 0 of the part"):
        parts["part"][0](torch.ones(2, 4))


def test_another_process_loads_without_compiling(compiled_folder: Path) -> None:
    script = (
        "import sys\n"
        "from dynaflow_dsl.runtime import compile as room\n"
        "def refuse(*_): raise SystemExit('compiled again')\n"
        "room.compile_graph = refuse\n"
        "from tests.runtime.toy_model import make_arguments, make_toy\n"
        "from tests.runtime.write_toy_maps import EXECUTORS\n"
        "from tests.verification.mutations import import_module\n"
        "step = import_module(EXECUTORS / 'toy_halves.py').load(make_toy())\n"
        "print(tuple(step(*make_arguments(3)).shape))\n"
    )
    environment = {**os.environ, "DFSC_CACHE_DIR": str(compiled_folder)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "(3, 1, 32)\n", done.stderr


@pytest.mark.parametrize("rows", ["4 * batch", "batch * seq", "6 * batch * seq"])
def test_sizes_that_are_read_in_products_only(tmp_path: Path, rows: str) -> None:
    def grouped(w: object, hidden: Any) -> Any:
        twice = aten.cat.default([hidden, hidden])
        return aten.mul.Tensor(aten.view.default(twice, [-1, 2, 2]), 2)

    part = compiled(tmp_path, grouped, plain, hidden=TensorSpec("float32", rows, 4))
    for count in (4, 12, 24, 600):
        hidden = torch.randn(count, 4)
        made = part(hidden)
        assert torch.equal(made, torch.cat([hidden, hidden]).view(-1, 2, 2) * 2)


def test_a_product_beside_one_of_its_factors(tmp_path: Path) -> None:
    def apart(w: object, rows: Any, columns: Any) -> Any:
        return aten.add.Tensor(rows, 1), aten.mul.Tensor(columns, 2)

    part = compiled(
        tmp_path,
        apart,
        plain,
        rows=TensorSpec("float32", "2 * batch * seq"),
        columns=TensorSpec("float32", "seq"),
    )
    for batch, seq in ((1, 3), (2, 4), (5, 40)):
        rows, columns = torch.randn(2 * batch * seq), torch.randn(seq)
        made = part(rows, columns)
        assert torch.equal(made[0], rows + 1)
        assert torch.equal(made[1], columns * 2)


def test_what_is_assumed_of_a_product_is_a_condition_on_its_factors(
    compiled_folder: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """The convolution's choice above, of a part that sees `4 * batch` alone."""
    weights = {"kernel": torch.randn(1, 1, 3, 3)}

    def convolve(w: Any, hidden: Any) -> Any:
        images = aten.view.default(hidden, [-1, 1, 8, 8])
        return aten.convolution.default(
            images, w.kernel, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
        )

    part = compiled(
        compiled_folder,
        convolve,
        plain,
        weights,
        hidden=TensorSpec("float32", "4 * batch", 8, 8),
    )
    for batch in (1, 2, 4, 8, 64):
        hidden = torch.randn(4 * batch, 8, 8)
        expected = convolve(record(weights), hidden)
        torch.testing.assert_close(part(hidden), expected)
