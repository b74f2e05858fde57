"""A spec with a wrong field is refused, and the field named."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from dynaflow_dsl.trace import Entry, Persistent, trace
from dynaflow_dsl.trace.fields import wrong_field
from tests.trace.specs import module, refusal, spec_of

X = ("batch", 4)
MODEL = torch.nn.Linear(4, 4).eval()

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no model": ({"model": None}, "'model' is None; it must be a torch.nn.Module"),
    "class": ({"model": torch.nn.Linear}, "'model' is the class Linear"),
    "adapter": ({"adapter": 3}, "'adapter' is 3; it must be a function"),
    "root": ({"root": None}, "'root' is None"),
    "context": ({"context": "x"}, "'context' is 'x'"),
    "trial": ({"trial": 1}, "'trial' is 1; it must be a function, or None"),
    "disjoint": ({"disjoint": "keys"}, "'disjoint' is 'keys'; it must be a tuple"),
    "unknown device": ({"device": "blah"}, "'device' is 'blah'; it must be the name"),
    "no device": ({"device": None}, "'device' is None"),
    "dtype as text": ({"dtype": "float32"}, "'dtype' is 'float32'; it must be a dtype"),
    "other dtype": (
        {"dtype": torch.bfloat16},
        "'dtype' is torch.bfloat16, but the model's parameters are torch.float32",
    ),
    "no facts": ({"facts": None}, "'facts' is None; it must be a mapping by name"),
    "fact": ({"facts": {"n": [1]}}, "the fact 'n' is a list"),
    "endless fact": ({"facts": {"n": math.inf}}, "the fact 'n' is inf"),
    "no dims": ({"dims": None}, "'dims' is None; it must be a mapping"),
    "axes": ({"dims": {"input": "batch"}}, "'dims' has 'batch' for 'input'"),
    "axis": ({"dims": {"input": (0, 1)}}, "'dims' has a tuple for 'input'"),
    "entries": ({"entries": [Entry(lambda sizes: ())]}, "'entries' is a list"),
    "no entries": ({"entries": {}}, "'entries' is empty"),
    "fixed": (
        {"entries": {"run": Entry(lambda sizes: (), fixed=3)}},  # type: ignore[arg-type]
        "'fixed' of 'run' is 3; it must be sizes by name",
    ),
    "no size": (
        {"entries": {"run": Entry(lambda sizes: (), fixed={"seq": 0})}},
        "'seq' in 'fixed' of 'run' is 0; it must be positive",
    ),
    "fixed and not": (
        {
            "entries": {"run": Entry(lambda sizes: (), fixed={"batch": 2})},
            "dimensions": {"batch": (1, None)},
        },
        "'batch' is in 'fixed' of 'run' and in 'dimensions'",
    ),
    "dims of an entry": (
        {"entries": {"run": Entry(lambda sizes: (), dims={"input": "batch"})}},  # type: ignore[dict-item]
        "'dims' of 'run' has 'batch' for 'input'; it must be a tuple",
    ),
    "no dims of an entry": (
        {"entries": {"run": Entry(lambda sizes: (), dims=None)}},  # type: ignore[arg-type]
        "'dims' of 'run' is None; it must be a mapping",
    ),
    "fixed and its own": (
        {
            "entries": {
                "run": Entry(
                    lambda sizes: (), fixed={"seq": 2}, dims={"input": ("seq", None)}
                )
            },
            "dimensions": {"batch": (1, None), "seq": (1, None)},
        },
        "'seq' is in 'fixed' of 'run' and in 'dimensions'",
    ),
    "phases": (
        {"entries": {"run": Entry(lambda sizes: (), phases=("a", "b"))}},  # type: ignore[arg-type]
        "'phases' of 'run' is a tuple; it must be names by dimension",
    ),
    "phases of no dimension": (
        {"entries": {"run": Entry(lambda sizes: (), phases={"rows": ("a", "b")})}},
        "'phases' of 'run' cuts 'rows', and the dimensions are batch",
    ),
    "one phase": (
        {
            "entries": {"run": Entry(lambda sizes: (), phases={"batch": ("a",)})},
            "dimensions": {"batch": (1, None)},
        },
        "'phases' of 'run' has a tuple for 'batch'; it must be a tuple of two names",
    ),
    "name of a phase": (
        {
            "entries": {"run": Entry(lambda sizes: (), phases={"batch": ("a", "b c")})},
            "dimensions": {"batch": (1, None)},
        },
        "'phases' of 'run' has the name 'b c'; it must be an identifier",
    ),
    "phase and dimension": (
        {
            "entries": {
                "run": Entry(lambda sizes: (), phases={"batch": ("a", "batch")})
            },
            "dimensions": {"batch": (1, None)},
        },
        "'phases' of 'run' has the name 'batch', which is already a size or a phase",
    ),
    "entry": ({"entries": {"run": lambda sizes: ()}}, "it must be an Entry"),
    "arguments": ({"entries": {"run": Entry(None)}}, "it must be an Entry"),  # type: ignore[arg-type]
    "bounds": ({"dimensions": {"batch": 3}}, "'dimensions' has 3 for 'batch'"),
    "bound": ({"dimensions": {"batch": (1.0, None)}}, "'dimensions' has a tuple"),
    "persistent": ({"persistent": ["input"]}, "'persistent' is a list"),
    "persistent input": ({"persistent": {"input": 8}}, "it must be Persistent()"),
    "capacity": ({"persistent": {"input": Persistent(0)}}, "the capacity of 'input'"),
    "padding": (
        {"persistent": {"input": Persistent(padding="none")}},  # type: ignore[arg-type]
        "the padding of 'input' is 'none'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_field_is_named(name: str) -> None:
    fields, message = WRONG[name]
    spec = replace(spec_of(MODEL, X, dims={"input": ("batch", None)}), **fields)
    assert message in (wrong_field(spec) or "")
    assert message in refusal(spec).message


def test_right_fields_are_left_alone() -> None:
    spec = spec_of(
        MODEL,
        X,
        dims={"input": ["batch", None]},
        persistent={"input": Persistent(8, "scratch")},
        facts={"a": True, "b": 1, "c": 0.5, "d": "e"},
        context=torch.no_grad,
        disjoint=("input",),
    )
    assert wrong_field(spec) is None


def test_a_multiple_names_its_dimension() -> None:
    spec = spec_of(MODEL, X, dims={"input": ("2 * batch", None)})
    assert "batch" in spec.dimensions
    assert wrong_field(spec) is None


def test_an_adapter_must_make_a_module() -> None:
    spec = spec_of(MODEL, X, adapter=lambda model: None)
    assert "'adapter' of the target returns a NoneType" in refusal(spec).message


def test_disjoint_names_arguments() -> None:
    options: dict[str, Any] = {
        "dims": {"input": ("batch", None)},
        "disjoint": ("inputs",),
    }
    (found,) = trace(spec_of(MODEL, X, **options), "m:target", {}).diagnostics
    assert "'disjoint' of the target names 'inputs'" in found.message
    assert found.helps == ("did you mean 'input'?",)


def test_an_argument_named_like_that_of_phases_is_refused() -> None:
    class Named(torch.nn.Module):
        def forward(self, phases: torch.Tensor) -> torch.Tensor:
            return phases + 1

    def entry(phases: dict[str, tuple[str, ...]]) -> Entry:
        return Entry(lambda sizes: (torch.randn(sizes["batch"], 4),), phases=phases)

    options: dict[str, Any] = {"dims": {"phases": ("batch", None)}}
    spec = spec_of(Named().eval(), X, **options)
    cut = replace(spec, entries={"run": entry({"batch": ("a", "b")})})
    assert "steps take an argument 'phases'" in refusal(cut).message
    assert trace(replace(spec, entries={"run": entry({})}), "m:target", {}).ok


def test_persistent_names_arguments_as_they_are() -> None:
    options = {"dims": {"input": ("batch", None)}}
    spec = spec_of(MODEL, X, persistent={"input.*": Persistent()}, **options)
    assert "'persistent' of the target names 'input.*'" in refusal(spec).message


def test_a_complex_constant_is_refused() -> None:
    model = module(lambda self, x: x * torch.tensor([1j, 2.0, 3.0, 4.0]))
    diagnostic = refusal(spec_of(model, X))
    assert "a constant of complex numbers" in diagnostic.message
    assert any("1j" in note for note in diagnostic.notes)


def test_names_of_the_adapter_that_begin_as_the_root_are_its_own() -> None:
    class Adapter(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model, self.model_after = model, torch.nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            after: torch.Tensor = self.model_after(self.model(x))
            return after

    spec = spec_of(MODEL, X, adapter=Adapter, root="model", dims={"x": ("batch", None)})
    graph = trace(spec, "target", {}).unwrap().graphs[0]
    assert [operation.module for operation in graph.operations] == ["", ""]


def test_an_entry_names_dimensions_of_its_own() -> None:
    """A prompt has a length, and a decode step is one token long."""

    def tokens(length: int | None) -> Entry:
        fixed = {} if length is None else {"seq": length}
        dims = {"input": ("batch", "seq", None)} if length is None else {}
        return Entry(
            lambda sizes: (torch.rand(sizes["batch"], length or sizes["seq"], 4),),
            fixed=fixed,
            dims=dims,
        )

    spec = spec_of(
        MODEL,
        X,
        entries={"prefill": tokens(None), "decode": tokens(1)},
        dims={"input": ("batch", None, None)},
        dimensions={"batch": (1, None), "seq": (2, 8)},
    )
    model = trace(spec, "m:target", {}).unwrap()
    prefill, decode = model.graphs
    assert prefill.dimensions == (("batch", 1, None), ("seq", 2, 8))
    assert prefill.fixed == ()
    assert decode.dimensions == (("batch", 1, None),)
    assert decode.fixed == (("seq", 1),)
    other = replace(
        spec, entries={"prefill": Entry(tokens(None).arguments, dims={"x": ()})}
    )
    assert "'dims' of the target names 'x'" in refusal(other).message
