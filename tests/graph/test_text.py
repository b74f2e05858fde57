import math

import pytest

from dynaflow_dsl.graph.model import Constant, Reference, Size, TensorType
from dynaflow_dsl.graph.text import (
    TextError,
    read_argument,
    read_size,
    read_type,
    write_argument,
    write_size,
    write_type,
)

BATCH = Size(1, ("batch",))
SIZES = {
    "0": Size(0),
    "-3": Size(-3),
    "batch": BATCH,
    "16*batch": Size(16, ("batch",)),
    "0*batch": Size(0, ("batch",)),
    "-1*batch": Size(-1, ("batch",)),
    "batch*batch*sequence": Size(1, ("batch", "batch", "sequence")),
}


@pytest.mark.parametrize("text", SIZES)
def test_sizes(text: str) -> None:
    assert write_size(SIZES[text]) == text
    assert read_size(text) == SIZES[text]


@pytest.mark.parametrize(
    "text", ["", "*", "*a", "a*", "a**b", "2a", "a*2", "b*a", "-", " 1"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(TextError):
        read_size(text)


TYPES = {
    "float32[]": TensorType((), (), "float32"),
    "int64[batch, 4]": TensorType((BATCH, Size(4)), (Size(4), Size(1)), "int64"),
    "bool[4, batch] (1, 4)": TensorType((Size(4), BATCH), (Size(1), Size(4)), "bool"),
    "bool[2, 0, 3]": TensorType(
        (Size(2), Size(0), Size(3)), (Size(3), Size(3), Size(1)), "bool"
    ),
}


@pytest.mark.parametrize("text", TYPES)
def test_types(text: str) -> None:
    assert write_type(TYPES[text]) == text
    assert read_type(text) == TYPES[text]


ARGUMENTS = [
    (Reference("%x"), "%%x"),
    ("%x", "'%x"),
    ("", "'"),
    (BATCH, "=batch"),
    (Constant("dtype", "float32"), "@dtype:float32"),
    (Constant("device", "device"), "@device:device"),
    (-math.inf, "~-inf"),
    ((1, (2.0, None)), [1, [2.0, None]]),
    (True, True),
]


@pytest.mark.parametrize(("argument", "data"), ARGUMENTS)
def test_arguments(argument: object, data: object) -> None:
    assert write_argument(argument) == data  # type: ignore[arg-type]
    back = read_argument(data)
    assert back == argument
    assert type(back) is type(argument)


def test_not_a_number_comes_back() -> None:
    back = read_argument(write_argument(math.nan))
    assert isinstance(back, float)
    assert math.isnan(back)
