from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from dynaflow_dsl.runtime import Executor, LoadError, Part, loader
from dynaflow_dsl.runtime import compile as compile_room
from dynaflow_dsl.runtime.inductor import load_artifact
from dynaflow_dsl.runtime.module_map import map_path, read_map
from dynaflow_dsl.runtime.shared_code import shared_code
from dynaflow_dsl.trace.model import Entry, TraceSpec
from tests.runtime.toy_model import Layer, Toy, make_arguments, make_toy
from tests.runtime.write_toy_maps import EXECUTORS, module_map
from tests.verification.mutations import write_module

TEXT = (EXECUTORS / "toy_halves.py").read_text(encoding="utf-8")


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> ModuleType:
    document: dict[str, Any] = json.loads(json.dumps(module_map("toy_halves", TEXT)))
    change(document)
    return write_module(folder, "toy_halves", TEXT, document)


def refusal(module: ModuleType, model: torch.nn.Module, **options: Any) -> LoadError:
    with pytest.raises(LoadError) as caught:
        module.load(model, compile=False, **options)
    return caught.value


def test_maps_of_the_toys_are_up_to_date() -> None:
    for module in EXECUTORS.glob("*.py"):
        text = module.read_text(encoding="utf-8")
        written = json.loads(map_path(module).read_text(encoding="utf-8"))
        assert written == module_map(module.stem, text)
        assert read_map(module).intact


def test_one_entry_gives_the_executor(halves: ModuleType, toy: Toy) -> None:
    assert isinstance(halves.load(toy, compile=False), halves.ToyHalvesDecode)


def test_several_entries_give_an_attribute_each(halves: ModuleType, toy: Toy) -> None:
    prefill = type("Prefill", (halves.ToyHalvesDecode,), {"entry": "prefill"})
    loaded = loader(halves.ToyHalvesDecode, prefill)(toy, compile=False)
    assert isinstance(loaded.decode, halves.ToyHalvesDecode)
    assert isinstance(loaded.prefill, prefill)


def test_calling_a_module_of_several_entries_names_them(
    halves: ModuleType, toy: Toy
) -> None:
    prefill = type("Prefill", (halves.ToyHalvesDecode,), {"entry": "prefill"})
    steps = loader(halves.ToyHalvesDecode, prefill)(toy, compile=False)
    with pytest.raises(TypeError) as caught:
        steps(torch.zeros(1))
    assert str(caught.value) == (
        "this module has 2 steps, each called by its name: "
        "step.decode(...) or step.prefill(...)"
    )


def test_several_schedules_of_one_entry_go_by_class(
    halves: ModuleType, lanes: ModuleType, toy: Toy
) -> None:
    load = loader(halves.ToyHalvesDecode, lanes.ToyLanesDecode)
    loaded = load(toy, compile=False)
    assert isinstance(loaded.ToyLanesDecode, lanes.ToyLanesDecode)


def test_missing_map(tmp_path: Path, toy: Toy) -> None:
    module = changed(tmp_path, lambda document: None)
    map_path(tmp_path / "toy_halves.py").unlink()
    error = refusal(module, toy)
    assert error.code == "DFS803"
    assert "toy_halves.map.json beside it" in error.message


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "model": 3}'),
        "[" * 100_000,
    ],
    ids=range(7),
)
def test_broken_map(tmp_path: Path, toy: Toy, content: str) -> None:
    module = changed(tmp_path, lambda document: None)
    map_path(tmp_path / "toy_halves.py").write_text(content)
    assert refusal(module, toy).code == "DFS803"


def test_unknown_format(tmp_path: Path, toy: Toy) -> None:
    module = changed(tmp_path, lambda document: document.update(format=99))
    error = refusal(module, toy)
    assert error.code == "DFS505"
    assert "has module format 99" in error.message


def test_edited_module_keeps_running_without_lines(tmp_path: Path, toy: Toy) -> None:
    path = tmp_path / "toy_halves.py"
    changed(tmp_path, lambda document: None)
    path.write_text(TEXT + "\n# a remark\n", encoding="utf-8")
    assert not read_map(path).intact
    assert read_map(path).plan_lines(41) is None


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_other_line_ends_are_no_edit(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "toy_halves.py"
    changed(tmp_path, lambda document: None)
    path.write_bytes(TEXT.encode().replace(b"\n", end))
    assert read_map(path).intact


def rename_tensor(document: dict[str, Any]) -> None:
    tensors = document["model"]["tensors"]
    tensors["layers.0.attention.query.weight"] = tensors.pop(
        "layers.0.attention.q.weight"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            rename_tensor,
            "it has no tensor `layers.0.attention.query.weight` (the nearest is "
            "`layers.0.attention.q.weight`)",
        ),
        (
            lambda document: document["model"]["tensors"].update(
                {"head.weight": ["float32", [32, 8]]}
            ),
            "`head.weight` is float32[32, 16] instead of float32[32, 8]",
        ),
        (
            lambda document: document["model"]["tensors"].update(
                {"head.weight": ["bfloat16", [32, 16]]}
            ),
            "`head.weight` is float32[32, 16] instead of bfloat16[32, 16]",
        ),
        (
            lambda document: document.update(device="cuda"),
            "was made for the device type `cuda`",
        ),
        (
            lambda document: document["model"]["fingerprint"].update(
                {"code toy_model.Attention": "0" * 12}
            ),
            "has changed: the class `Attention` in tests/runtime/toy_model.py",
        ),
        (
            lambda document: document["model"]["fingerprint"].update(torch="1.0.0"),
            "it was traced with torch 1.0.0, and torch is",
        ),
        (
            lambda document: document["model"]["fingerprint"].update(
                {"class": "Other"}
            ),
            "it is not a Other",
        ),
        (
            lambda document: document["model"]["fingerprint"].update(classes="0" * 12),
            "its modules are of other classes, or lie elsewhere in it",
        ),
        (
            lambda document: document["model"]["fingerprint"].update(tensors="0" * 12),
            "it has other tensors, or ties others, than the traced model",
        ),
        (
            lambda document: document["model"]["fingerprint"].update(state="0" * 12),
            "plain attributes, hooks or a replaced `forward` of its modules differ",
        ),
    ],
)
def test_another_model(
    tmp_path: Path, toy: Toy, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    error = refusal(changed(tmp_path, change), toy)
    assert error.code == "DFS801"
    assert message in error.message


def test_fingerprints_can_be_left_out(tmp_path: Path, toy: Toy) -> None:
    def change(document: dict[str, Any]) -> None:
        document["model"]["fingerprint"]["torch"] = "1.0.0"

    loaded = changed(tmp_path, change).load(toy, compile=False, check="none")
    assert isinstance(loaded, Executor)


def test_more_layers_are_refused_without_fingerprints_too(halves: ModuleType) -> None:
    model = make_toy()
    model.layers.append(Layer().eval())
    error = refusal(halves, model, check="none")
    assert error.code == "DFS801"
    assert "`layers.3.attention.q.weight` is not one of the module's" in error.message


def test_tied_weights_are_refused(halves: ModuleType) -> None:
    model = make_toy()
    model.head.weight = model.embed.weight
    assert "`embed.weight` and `head.weight` are one tensor" in (
        refusal(halves, model).message
    )


def test_training_mode_is_refused(halves: ModuleType) -> None:
    model = make_toy()
    model.get_submodule("layers.1.up").train()
    error = refusal(halves, model)
    assert error.code == "DFS801"
    assert "`layers.1.up` is in training mode" in error.message


@pytest.mark.parametrize(
    ("model", "given"), [(None, "None"), (Toy, "the class Toy"), (3, "a int")]
)
def test_what_is_no_model_is_refused(
    halves: ModuleType, model: Any, given: str
) -> None:
    error = refusal(halves, model)
    assert error.code == "DFS801"
    assert f"{given} was given." in error.message


def test_a_spec_given_as_the_model_has_one(halves: ModuleType) -> None:
    entries = {"forward": Entry(lambda sizes: ())}
    spec: Any = TraceSpec(model=make_toy(), entries=entries, dims={}, dimensions={})
    error = refusal(halves, spec)
    assert error.message.endswith("a TraceSpec was given; its model is spec.model.")


@pytest.mark.parametrize("device", ["blah", "cpu:1", None, 1.5, "cuda:99"])
def test_unknown_devices_are_refused(halves: ModuleType, toy: Toy, device: Any) -> None:
    assert refusal(halves, toy, device=device).code == "DFS801"


def test_the_one_cpu_has_an_index(halves: ModuleType, toy: Toy) -> None:
    executor = halves.load(toy, "cpu:0", compile=False)
    assert executor.device == torch.device("cpu")


def test_unknown_check_is_refused(halves: ModuleType, toy: Toy) -> None:
    with pytest.raises(ValueError, match="check is"):
        halves.load(toy, check="fast")


def test_a_device_without_streams_is_refused(halves: ModuleType, toy: Toy) -> None:
    error = refusal(halves, toy, device="meta")
    assert "streams for the device types `cpu` and `cuda`" in error.message
    assert "`meta` was asked for" in error.message


def test_a_model_elsewhere_is_refused(halves: ModuleType, toy: Toy) -> None:
    with torch.device("meta"):
        model = Toy().eval()
    assert "is on `meta`, where it has no memory" in refusal(halves, model).message


def test_weights_that_no_layer_has(halves: ModuleType, toy: Toy) -> None:
    class Longer(halves.ToyHalvesDecode):  # type: ignore[name-defined,misc]
        @staticmethod
        def parts() -> dict[str, Part]:
            parts: dict[str, Part] = halves.ToyHalvesDecode.parts()
            listed = parts["attn"].weights
            return {**parts, "attn": Part(halves.attn, range(4), listed)}

    with pytest.raises(LoadError, match=r"layer 3 from `layers\.3\.attention\.q"):
        loader(Longer)(toy, compile=False)


@pytest.mark.parametrize("name", ["step", "streams", "split", "inputs"])
def test_part_names_that_executors_need(
    halves: ModuleType, toy: Toy, name: str
) -> None:
    class Taken(halves.ToyHalvesDecode):  # type: ignore[name-defined,misc]
        @staticmethod
        def parts() -> dict[str, Part]:
            return {name: Part(halves.attn)}

    with pytest.raises(LoadError, match="keeps for itself"):
        loader(Taken)(toy, compile=False)


def test_always_sequential(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DFSC_SEQUENTIAL", "1")
    executor = halves.load(toy, compile=False)
    monkeypatch.setattr(type(executor), "step", lambda *_: pytest.fail("step ran"))
    executor(*make_arguments(4))


def test_two_models_in_one_process(halves: ModuleType) -> None:
    first, second = make_toy(1), make_toy(2)
    arguments = make_arguments(4)
    one = halves.load(first, compile=False)
    before = one.sequential(*arguments)
    other = halves.load(second, compile=False)
    assert not torch.equal(before, other.sequential(*arguments))
    assert torch.equal(before, one.sequential(*arguments))


def test_weights_that_wrap_others_are_other_weights(halves: ModuleType) -> None:
    toy = make_toy()
    path, weight = next(iter(toy.named_parameters()))
    parent, _, name = path.rpartition(".")
    wrapped = torch.nn.Parameter(
        TwoTensor(weight.detach(), weight.detach()), requires_grad=False
    )
    setattr(toy.get_submodule(parent), name, wrapped)
    error = refusal(halves, toy)
    assert error.code == "DFS801"
    assert f"`{path}` is float32" in error.message
    assert "of TwoTensor instead of float32" in error.message


@pytest.mark.slow
def test_code_is_shared_by_loads_that_are_compared(
    halves: ModuleType, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[int] = []

    def counting(content: bytes) -> Any:
        loaded.append(1)
        return load_artifact(content)

    monkeypatch.setattr(compile_room, "load_artifact", counting)

    def load() -> int:
        before = len(loaded)
        halves.load(toy, compile=True, cache=tmp_path)
        return len(loaded) - before

    with shared_code():
        parts = load()
        assert parts > 0
        assert load() == 0
        with shared_code():
            assert load() == 0
    assert load() == parts
