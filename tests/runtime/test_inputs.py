from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.testing._internal.two_tensor import TwoTensor

from dynaflow_dsl.runtime import InputError, TensorSpec
from dynaflow_dsl.runtime.inputs import InputCheck, InputSpecs, factors

SPECS: InputSpecs = {
    "ids": TensorSpec("int64", "batch", 1),
    "tokens": TensorSpec("float32", "4 * batch", 2),
    "keys": [TensorSpec("float32", "batch", 2)] * 2,
}


def arguments(batch: int = 3) -> list[Any]:
    return [
        torch.zeros(batch, 1, dtype=torch.int64),
        torch.zeros(4 * batch, 2),
        [torch.zeros(batch, 2) for _ in range(2)],
    ]


def check() -> InputCheck:
    return InputCheck(SPECS, torch.device("cpu"))


def test_sizes_of_what_fits() -> None:
    checked = check()
    assert checked(arguments(3)) == {"batch": 3}
    assert checked(arguments(3)) == {"batch": 3}
    assert checked(arguments(5)) == {"batch": 5}


def replace(position: int, value: Any) -> Callable[[list[Any]], None]:
    def apply(given: list[Any]) -> None:
        given[position] = value

    return apply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace(0, 7), "input `ids`: expected int64[batch, 1] on cpu, given a int."),
        (
            replace(0, torch.zeros(3, 1)),
            "input `ids`: expected int64[batch, 1] on cpu, given float32[3, 1] on cpu.",
        ),
        (
            replace(0, torch.zeros(3, dtype=torch.int64)),
            "expected int64[batch, 1] on cpu, given int64[3] on cpu.",
        ),
        (replace(0, torch.zeros(3, 2, dtype=torch.int64)), "given int64[3, 2] on cpu."),
        (
            replace(1, torch.zeros(11, 2)),
            "input `tokens`: expected float32[4 * batch, 2] on cpu "
            "(batch = 3 in `ids`), given float32[11, 2] on cpu.",
        ),
        (
            replace(2, [torch.zeros(3, 2), torch.zeros(4, 2)]),
            "input `keys[1]`: expected float32[batch, 2] on cpu (batch = 3 in `ids`), "
            "given float32[4, 2] on cpu.",
        ),
        (
            replace(2, [torch.zeros(3, 2)]),
            "input `keys`: expected a list of 2 tensors, given a list of 1.",
        ),
        (replace(2, torch.zeros(3, 2)), "expected a list of 2 tensors, given float32"),
        (
            replace(1, torch.zeros(2, 12).t()),
            "input `tokens`: expected a contiguous float32[4 * batch, 2] on cpu, given "
            "float32[12, 2] on cpu with strides (1, 12).",
        ),
        (
            replace(1, torch.zeros(12, 2, device="meta")),
            "expected float32[4 * batch, 2] on cpu, given float32[12, 2] on meta.",
        ),
    ],
)
def test_misfits_are_named(change: Callable[[list[Any]], None], message: str) -> None:
    checked = check()
    for remembered in (False, True):
        given = arguments()
        if remembered:
            checked(given)
        change(given)
        with pytest.raises(InputError) as caught:
            checked(given)
        assert caught.value.code == "DFS802"
        assert message in str(caught.value)


def test_no_rows_are_refused() -> None:
    with pytest.raises(InputError, match="with at least one row, given"):
        check()(arguments(0))


def test_arguments_by_name() -> None:
    ids, tokens, keys = arguments()
    arranged = check().arrange((ids,), {"keys": keys, "tokens": tokens})
    assert arranged[0] is ids
    assert arranged[2] is keys


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ((1, 2, 3, 4), {}, "expected 3 inputs (ids, tokens, keys), but 4 were given"),
        ((1, 2), {}, "but `keys` is missing"),
        ((1, 2), {"key": 3}, "`key` is none of them"),
        ((1, 2), {"ids": 3}, "the input `ids` was given twice"),
    ],
)
def test_wrong_arguments(
    given: tuple[int, ...], named: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        check().arrange(given, named)
    assert message in str(caught.value)


def test_factors_of_a_size() -> None:
    assert factors(16) == (16, ())
    assert factors("batch") == (1, ("batch",))
    assert factors("4 * batch * tokens") == (4, ("batch", "tokens"))


@pytest.mark.parametrize(
    ("bounds", "refused"),
    [((2, 4), {1: "2 to 4", 5: "2 to 4"}), ((2, None), {1: "2 upwards"})],
)
def test_bounds_of_dimensions(
    bounds: tuple[int, int | None], refused: dict[int, str]
) -> None:
    checked = InputCheck(SPECS, torch.device("cpu"), {"batch": bounds})
    for batch in (1, 2, 4, 5, 1):
        if batch not in refused:
            assert checked(arguments(batch)) == {"batch": batch}
            continue
        with pytest.raises(InputError) as caught:
            checked(arguments(batch))
        assert caught.value.code == "DFS802"
        assert caught.value.message == (
            f"the dimension `batch` was traced from {refused[batch]}, and batch = "
            f"{batch} in `ids`."
        )


def both_keys(given: list[Any]) -> None:
    given[2][1] = given[2][0]


def keys_overlap(given: list[Any]) -> None:
    memory = torch.zeros(5, 2)
    given[2] = [memory[:3], memory[2:]]


def tokens_in_keys(given: list[Any]) -> None:
    memory = torch.zeros(15, 2)
    given[1], given[2][0] = memory[:12], memory[11:14]


def keys_in_tokens(given: list[Any]) -> None:
    given[2][1] = given[1][4:7]


@pytest.mark.parametrize(
    ("share", "names"),
    [
        (both_keys, "`keys[0]` and `keys[1]`"),
        (keys_overlap, "`keys[0]` and `keys[1]`"),
        (tokens_in_keys, "`keys[0]` and `tokens`"),
        (keys_in_tokens, "`keys[1]` and `tokens`"),
    ],
)
def test_written_inputs_share_no_memory(
    share: Callable[[list[Any]], None], names: str
) -> None:
    checked = InputCheck(SPECS, torch.device("cpu"), written=("keys",))
    given = arguments()
    for _ in range(2):
        checked(given)
    share(given)
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            checked(given)
        assert caught.value.code == "DFS802"
        assert f"the inputs {names} share memory" in caught.value.message
    check()(given)  # nothing is written: nothing is wrong


def test_neighbours_in_one_memory_are_apart() -> None:
    checked = InputCheck(SPECS, torch.device("cpu"), written=("keys",))
    given, memory = arguments(), torch.zeros(18, 2)
    given[2], given[1] = [memory[15:], memory[:3]], memory[3:15]
    for _ in range(2):
        assert checked(given) == {"batch": 3}


def test_another_size_in_the_same_place_is_checked() -> None:
    checked = InputCheck(SPECS, torch.device("cpu"), written=("keys",))
    memory = torch.zeros(24, 2)
    given = arguments(2)
    given[2] = [memory[:2], memory[2:4]]
    checked(given)
    given = arguments(3)
    given[2] = [memory[:3], memory[2:5]]
    with pytest.raises(InputError, match="share memory"):
        checked(given)


def test_tensors_that_wrap_others_are_refused_whenever_they_come() -> None:
    """As the first call, and after a plain tensor of the same shape was accepted."""
    checked = check()
    for _ in range(2):
        given = arguments()
        given[2][1] = TwoTensor(torch.zeros(3, 2), torch.zeros(3, 2))
        with pytest.raises(InputError) as caught:
            checked(given)
        assert caught.value.message == (
            "input `keys[1]`: expected a plain tensor float32[batch, 2] on cpu, given "
            "a TwoTensor, which holds tensors of its own: take the plain one out of it "
            "(`to_local()`, `dequantize()`)."
        )
        checked(arguments())


def test_a_distributed_tensor_is_refused() -> None:
    mesh = DeviceMesh("cpu", torch.tensor([0]), _init_backend=False, _rank=0)
    given = arguments()
    given[1] = DTensor.from_local(given[1], mesh, [Replicate()], run_check=False)
    with pytest.raises(InputError, match="given a DTensor, which holds tensors"):
        check()(given)


def test_a_parameter_is_a_plain_tensor() -> None:
    given = arguments()
    given[1] = torch.nn.Parameter(given[1])
    checked = check()
    for _ in range(2):
        assert checked(given) == checked(arguments()) == {"batch": 3}
