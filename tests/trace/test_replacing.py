"""Attributes of other people's classes are as they were afterwards."""

from __future__ import annotations

from contextlib import suppress

import pytest

from dynaflow_dsl.trace.replacing import replaced


class Base:
    inherited = "base"


class Kind(Base):
    own = "own"


@pytest.mark.parametrize("name", ["own", "inherited", "absent"])
def test_an_attribute_is_put_back(name: str) -> None:
    before = dict(vars(Kind)), getattr(Kind, name, None)
    with suppress(ZeroDivisionError), replaced(Kind, name, "other"):
        assert getattr(Kind(), name) == "other"
        raise ZeroDivisionError
    assert (dict(vars(Kind)), getattr(Kind, name, None)) == before
    assert not hasattr(Base, "own")
