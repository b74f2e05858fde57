"""What modules hold beside tensors and plain text is the model too."""

from __future__ import annotations

import enum
import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from dynaflow_dsl.runtime.fingerprint import fingerprint, first_difference
from dynaflow_dsl.trace import trace
from dynaflow_dsl.trace.model import Entry, TraceSpec

FACTOR: object = 2.0
PADDING = 1


class Kind(enum.Enum):
    FIRST = 1
    SECOND = 2


@dataclass
class Settings:
    scale: float = 1.0
    output: str = "/home/me"
    _name_or_path: str = "here"


@dataclass(frozen=True, slots=True)
class Slots:
    scale: float = 1.0
    tp_rank: int = 0


class Saying:
    def __init__(self, base: object) -> None:
        self.base = base

    def to_dict(self) -> dict[str, object]:
        return {"base": 1 / self.base}  # type: ignore[operator]

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)


class Rope:
    def __init__(self, base: float) -> None:
        self.base = base
        self.again = self


class Net(nn.Module):
    limit = 3

    def __init__(self, **held: Any) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 3, padding=held.pop("padding", PADDING))
        self._count = 0
        vars(self).update(held)

    @staticmethod
    def act(x: torch.Tensor) -> torch.Tensor:
        return x

    @property
    def half(self) -> float:
        return 0.5

    def forward(self, x: torch.Tensor) -> Any:
        return self.act(self.conv(x)) * FACTOR * getattr(self, "_scale", 1) * self._eps


def closure(by: object) -> Callable[[torch.Tensor], object]:
    def scaled(x: torch.Tensor) -> object:
        return x * by

    return scaled


def default(by: float) -> Callable[..., object]:
    def scaled(x: torch.Tensor, k: float = by) -> object:
        return x * k

    return scaled


def made(by: float) -> nn.Module:
    class Local(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * by

    return Local()


def patched(by: object) -> nn.Module:
    model = Net()
    vars(model)["forward"] = closure(by)
    return model


def bound(by: object) -> nn.Module:
    model = Net()
    model.act = MethodType(closure(by), model)  # type: ignore[method-assign]
    return model


def hooked(by: object) -> nn.Module:
    model = Net()
    model.register_forward_hook(closure(by))  # type: ignore[arg-type]
    return model


def named(**items: object) -> dict[str, object]:
    return items


@pytest.mark.parametrize(
    ("make", "old", "new"),
    [
        (lambda k: Net(padding=k), 1, 2),
        (lambda k: Net(strides=k), (1, 2), (1, 3)),
        (lambda k: Net(strides=k), [1, [2]], [1, [3]]),
        (lambda k: Net(strides=k), {1, 2}, {1, 3}),
        (lambda k: Net(table=k), {"k": 1}, {"k": 2}),
        (lambda k: Net(table=k), {1: "a"}, {2: "a"}),
        (lambda k: Net(act=k), torch.relu, torch.tanh),
        (lambda k: Net(act=k), nn.functional.relu, nn.functional.gelu),
        (
            lambda k: Net(act=functools.partial(nn.functional.leaky_relu, **k)),
            named(negative_slope=0.1),
            named(negative_slope=0.2),
        ),
        (lambda k: Net(act=k), torch.ops.aten.relu, torch.ops.aten.tanh),
        (lambda k: Net(kind=k), Kind.FIRST, Kind.SECOND),
        (lambda k: Net(kind=k), torch.float16, torch.float32),
        (lambda k: Net(kind=k), Settings, Rope),
        (lambda k: Net(args=k), Settings(1.0), Settings(2.0)),
        (lambda k: Net(args=k), SimpleNamespace(eps=1), SimpleNamespace(eps=2)),
        (lambda k: Net(config=k), Settings(1.0), Settings(2.0)),
        (lambda k: Net(config=k), SimpleNamespace(eps=1), SimpleNamespace(eps=2)),
        (lambda k: Net(config=k), {"eps": 1}, {"eps": 2}),
        (lambda k: Net(rope=Rope(k)), 1.0, 2.0),
        (lambda k: Net(rope=Saying(k)), 1.0, 2.0),
        # A dictionary that cannot be made.
        (lambda k: Net(rope=Saying(k)), 0, "2"),
        (lambda k: Net(args=k), Slots(1.0), Slots(2.0)),
        (lambda k: Net(config=k), Slots(1.0), Slots(2.0)),
        (lambda k: Net(act=closure(k)), 1.0, 2.0),
        (lambda k: Net(act=default(k)), 1.0, 2.0),
        (lambda k: Net(act=closure(closure(k))), 1.0, 2.0),
        (lambda k: Net(_eps=k), 1.0, 2.0),
        (made, 1.0, 2.0),
        (patched, 1.0, 2.0),
        (bound, 1.0, 2.0),
        (hooked, 1.0, 2.0),
        (lambda k: nn.Sequential(Net(rope=Rope(k))), 1.0, 2.0),
    ],
)
def test_what_modules_hold_counts(
    make: Callable[[object], nn.Module], old: object, new: object
) -> None:
    before = fingerprint(make(old))
    assert first_difference(before, make(old)) is None
    found = str(first_difference(before, make(new)))
    assert "what its modules hold differs" in found or "configuration" in found


@pytest.fixture
def set_back() -> Iterator[None]:
    kept = dict(vars(Net))
    yield
    for name in ("limit", "act", "half"):
        setattr(Net, name, kept[name])


def other(*_: object) -> float:
    return 2.0


@pytest.mark.usefixtures("set_back")
@pytest.mark.parametrize(
    ("name", "value"),
    [("limit", 4), ("act", staticmethod(other)), ("half", property(other))],
)
def test_what_was_put_into_a_class_counts(name: str, value: object) -> None:
    class Inner(Net):
        pass

    before = fingerprint(Inner())
    setattr(Net, name, value)
    assert first_difference(before, Inner()) is not None


def test_globals_that_were_set_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(Net())
    with monkeypatch.context() as changed:
        changed.setitem(globals(), "FACTOR", 3.0)
        assert first_difference(before, Net()) is not None
    # What a model was made with is to be seen in what it has.
    monkeypatch.setitem(globals(), "PADDING", 2)
    assert first_difference(before, Net(padding=1)) is None
    assert first_difference(before, Net()) is not None


def test_code_that_is_held_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def act(x):\n    return x * 1\n\n\nclass Rope:\n    base = 1\n"
    (tmp_path / "held_acts.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    acts = importlib.import_module("held_acts")
    for model in (
        Net(act=acts.act),
        Net(acts=[functools.partial(acts.act, 3)]),
        hooked(acts.act),
        patched(acts.act),
    ):
        assert "code held_acts.act" in fingerprint(model)
    assert "code held_acts.Rope" in fingerprint(Net(rope=acts.Rope()))
    assert "code held_acts" not in fingerprint(Net())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (named(), named(_records=3, _count=5)),
        (named(args=Settings(1.0)), named(args=Settings(1.0, "/tmp", "there"))),
        (named(args=Slots(1.0)), named(args=Slots(1.0, 1))),
        (named(table={"rank": 0}), named(table={"rank": 1})),
        (named(place=["cuda:0"]), named(place=["cuda:1"])),
        (named(kept=torch.ones(1)), named(kept=torch.zeros(1))),
        (named(other=object()), named(other=object())),
        (named(warnings_issued={}), named(warnings_issued={"a": True})),
    ],
)
def test_records_and_what_is_of_the_machine_do_not(
    old: dict[str, object], new: dict[str, object]
) -> None:
    assert first_difference(fingerprint(Net(**old)), Net(**new)) is None


def test_the_rest_of_a_file_of_held_code_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import functools\n\n\ndef act(x):\n    return x\n\n\n"
    other = "@functools.cache\ndef load():\n    return 1\n"
    path = tmp_path / "held_with_others.py"
    path.write_text(text + other)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = Net(act=importlib.import_module("held_with_others").act)
    before = fingerprint(model)
    path.write_text(text + other.replace("1", "2"))
    assert fingerprint(model) == before


def counting(kind: str) -> Callable[..., object]:
    calls, seen = 0, [0]

    def by_name(*_: object) -> None:
        nonlocal calls
        calls += 1

    def in_a_list(*_: object, kept: list[int] = [0]) -> None:  # noqa: B006
        seen[0] += 1
        kept[0] += 1

    return by_name if kind == "name" else in_a_list


@pytest.mark.parametrize("kind", ["name", "list"])
def test_what_hooks_write_down_does_not(kind: str) -> None:
    model = Net(_eps=1.0)
    count = counting(kind)
    model.register_forward_hook(count)
    before = fingerprint(model)
    count()
    assert first_difference(before, model) is None


def test_records_of_installed_modules_do_not() -> None:
    first, second = (nn.Sequential(nn.Linear(1, 1)) for _ in range(2))
    vars(second[0]).update(device_map={"a": 0}, _seen=3, info=Settings(3.0))
    assert first_difference(fingerprint(first), second) is None


class Longest:
    """What an object keeps of the steps so far."""

    def __init__(self) -> None:
        self.rows = 0


class Recording(torch.nn.Module):
    def __init__(self, records: bool) -> None:
        super().__init__()
        self.records = records
        self.longest = Longest()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if self.records:
            self.longest.rows += 1
        return rows + 1


@pytest.mark.parametrize("records", [True, False])
def test_what_a_run_itself_changes_is_not_compared(records: bool) -> None:
    spec = TraceSpec(
        model=Recording(records).eval(),
        entries={"forward": Entry(lambda sizes: (torch.ones(sizes["batch"], 2),))},
        dims={"rows": ("batch", None)},
        dimensions={"batch": (1, 8)},
    )
    found = dict(trace(spec, "target", {}).unwrap().fingerprint)
    assert ("values" in found) is not records
