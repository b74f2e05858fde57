from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.trace import Entry, Persistent, TraceSpec, export_entry, trace
from tests.trace.specs import Forward, module, refusal, spec_of

X = ("batch", 4)


def _casts(self: object, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = x * 2
    return y + 1


def _casts_nothing(self: object, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        y = x * 2
    return y + 1


def _enables_gradients(self: object, x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        y = x * 2
    return y + 1


def _branches(self: object, x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 2
    return x


def _conditional(self: object, x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.shape[0] > 2, lambda y: y * 2, lambda y: y + 1, (x,))


def _raises(self: object, x: torch.Tensor) -> torch.Tensor:
    raise ValueError("not today\nnor tomorrow")


def _writes_constant(self: object, x: torch.Tensor) -> torch.Tensor:
    y = torch.tensor([1.0, 2.0, 3.0, 4.0])
    y.mul_(2)
    return x + y


CASES: dict[str, tuple[Forward, str, str]] = {
    "fixed batch": (
        lambda self, x: x + torch.ones(3, 4),
        "works for one batch only",
        "lambda self, x: x + torch.ones(3, 4),",
    ),
    "bounded batch": (
        lambda self, x: x * 2 if x.shape[0] > 8 else x + 1,
        "does not work for every batch",
        "",
    ),
    "branch on data": (
        _branches,
        "decides by the values of a tensor",
        "if x.sum() > 0",
    ),
    "number from a tensor": (
        lambda self, x: x * x.sum().item(),
        "reads a number out of a tensor",
        "x.sum().item()",
    ),
    "shape from data": (
        lambda self, x: x.nonzero(),
        "depends on the values of a tensor",
        "x.nonzero()",
    ),
    "autocast": (_casts, "switches torch.autocast on", "y = x * 2"),
    "gradients": (_enables_gradients, "switches gradients", "y = x * 2"),
    "graph in graph": (_conditional, "calls another graph inside its own (cond)", ""),
    "count down": (
        lambda self, x: x[torch.arange(x.shape[0] - 1, -1, -1)],
        "has the size batch - 1",
        "",
    ),
    "sum of sizes": (
        lambda self, x: torch.cat([x, x[:1]]),
        "has the size batch + 1",
        "torch.cat([x, x[:1]])",
    ),
    "random numbers": (
        lambda self, x: x + torch.rand(4),
        "draws random numbers (aten.rand.default)",
        "torch.rand(4)",
    ),
    "dropout that is on": (
        lambda self, x: torch.dropout(x, 0.5, True),
        "draws random numbers (aten.dropout.default)",
        "torch.dropout",
    ),
    "shape changed in place": (
        lambda self, x: x.clone().t_() + 1,
        "changes a tensor's shape in place",
        "t_()",
    ),
    "write into a constant": (_writes_constant, "writes into a constant", "y.mul_(2)"),
    "large constant": (
        lambda self, x: x + torch.tensor([[1.0] * 4] * 17).sum(0),
        "a constant of 68 numbers",
        "[[1.0] * 4] * 17",
    ),
    "error in the model": (_raises, "ValueError: not today", "raise ValueError"),
    "number returned": (lambda self, x: (x, 3), "not a tensor", ""),
    "dictionary returned": (
        lambda self, x: {"y": x + 1, "z": x},
        "the model returns a nested structure, a dict",
        "",
    ),
    "tuple of one returned": (
        lambda self, x: (x + 1,),
        "the model returns a nested structure, a tuple",
        "",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_scheduled_is_refused_with_its_line(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    forward, message, code = CASES[name]
    diagnostic = refusal(spec_of(module(forward), X))
    assert message in diagnostic.message
    assert "\n" not in diagnostic.message
    if code:
        assert any(code in note for note in diagnostic.notes), diagnostic.notes
        assert any("tests/trace/test_refusals.py:" in n for n in diagnostic.notes)
    here = str(Path(__file__).parents[2])
    assert not any(here in note or "site-packages" in note for note in diagnostic.notes)
    assert capfd.readouterr().err == ""


def test_autocast_that_is_off_is_nothing() -> None:
    model = type("M", (torch.nn.Module,), {"forward": _casts_nothing})().eval()
    (graph,) = trace(spec_of(model, X), "m:t", {}).unwrap().graphs
    assert [each.operator for each in graph.operations] == [
        "aten.mul.Tensor",
        "aten.add.Tensor",
    ]
    # The contexts are those of torch again, and off.
    with torch.autocast("cpu", torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_torchs_own_suggestion_is_quoted() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 8 else x + 1

    diagnostic = refusal(spec_of(module(forward), X))
    assert any("batch = Dim('batch', max=8)" in note for note in diagnostic.notes)


def test_training_mode_is_refused_and_not_switched_off() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(4, 4)).eval()
    model[0].train()
    diagnostic = refusal(spec_of(model, X, dims={"input": ("batch", None)}))
    assert "training mode ('0')" in diagnostic.message
    assert [item.training for item in model.modules()] == [False, True, False]


def test_flags_of_the_adapter_and_random_numbers_are_left_alone() -> None:
    class Adapter(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model
            made.append(self)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x)

    made: list[Adapter] = []
    spec = spec_of(torch.nn.Linear(4, 4).eval(), X, adapter=Adapter, root="model")
    spec = spec_of(
        spec.model, X, adapter=Adapter, root="model", dims={"x": ("batch", None)}
    )
    state = torch.random.get_rng_state()
    assert trace(spec, "target", {}).ok
    assert torch.equal(torch.random.get_rng_state(), state)
    assert made[0].training
    assert not spec.model.training


def test_a_failed_trace_leaves_no_marks_on_the_examples() -> None:
    example = torch.rand(3, 4)
    attributes = set(vars(example))
    spec = spec_of(
        module(lambda self, x: x + torch.ones(3, 4)),
        X,
        entries={"run": Entry(lambda sizes: (example,))},
    )
    assert "works for one batch only" in refusal(spec).message
    assert set(vars(example)) == attributes


def _given(*tensors: Any) -> Entry:
    return Entry(lambda sizes: tensors)


def test_one_tensor_for_two_inputs_is_refused() -> None:
    x = torch.rand(3, 4)
    model = module(lambda self, x, y: x + y)
    for second in (x, x.view(3, 4), x[:]):
        diagnostic = refusal(spec_of(model, X, X, entries={"run": _given(x, second)}))
        assert "gives the same tensor for 'x' and 'y'" in diagnostic.message


def test_one_tensor_twice_in_a_list_is_refused() -> None:
    x = torch.rand(3, 4)
    spec = TraceSpec(
        model=module(lambda self, xs: xs[0] + xs[1]),
        entries={"run": _given([x, x])},
        dims={"xs.*": ("batch", None)},
        dimensions={"batch": (1, None)},
    )
    assert "for 'xs[0]' and 'xs[1]'" in refusal(spec).message


def test_arguments_must_be_tensors() -> None:
    model = module(lambda self, x, scale: x * scale)
    spec = spec_of(model, X, entries={"run": _given(torch.rand(3, 4), 2.0)})
    assert "'scale' of entry 'run' is a float" in refusal(spec).message
    spec = spec_of(model, X, entries={"run": Entry(lambda sizes: torch.rand(3, 4))})
    assert "must return a tuple" in refusal(spec).message


def test_bounds_are_of_an_axis_of_some_entry() -> None:
    model = module(lambda self, tokens: tokens + 1)

    def refused(*shape: int | str, **bounds: tuple[int, int | None]) -> Any:
        return refusal(spec_of(model, shape, dimensions=bounds))

    forgotten = refused(3, 4, batch=(1, 64))
    assert forgotten.message == (
        "'dimensions' of the target has bounds for batch, and 'dims' gives no axis "
        "this name"
    )
    (way,) = forgotten.helps
    assert way.startswith('say which axes it is: dims={"tokens": ("batch", ...)}')
    misspelt = refused("batch", 4, batch=(1, 64), btach=(1, 8))
    assert misspelt.helps[0] == "did you mean 'batch'?"


def test_dims_must_name_arguments_and_fit_the_examples() -> None:
    model = module(lambda self, tokens: tokens + 1)

    def refused(**options: Any) -> Any:
        return refusal(spec_of(model, X, **options))

    unknown = refused(dims={"token": ("batch", None)})
    assert "names 'token'" in unknown.message
    assert unknown.helps == ("did you mean 'tokens'?",)
    assert (
        "'persistent' of the target names 'keys'"
        in refused(persistent={"keys": Persistent()}).message
    )
    assert "gives 'tokens' 1 axes" in refused(dims={"tokens": ("batch",)}).message
    assert "should be batch" in refused(dims={"tokens": (None, "batch")}).message
    assert (
        "names rows, a dimension without bounds"
        in refused(dims={"tokens": ("rows", None)}).message
    )
    assert "no two sizes" in refused(dimensions={"batch": (1, 1)}).message
    assert "starts at 0" in refused(dimensions={"batch": (0, None)}).message
    assert "is an identifier" in refused(dimensions={"a b": (1, None)}).message


def test_bounds_that_exclude_the_usual_sizes_are_met() -> None:
    model = module(lambda self, x: x + 1)
    for bounds in ((100, 200), (1, 2), (64, None)):
        result = trace(spec_of(model, X, dimensions={"batch": bounds}), "t", {})
        assert result.unwrap().graphs[0].dimensions == (("batch", *bounds),)


def test_errors_of_the_target_itself_are_diagnostics() -> None:
    def arguments(sizes: Mapping[str, int]) -> tuple[Any, ...]:
        return (torch.rand(sizes["rows"], 4),)

    spec = spec_of(module(lambda self, x: x + 1), X, entries={"run": Entry(arguments)})
    diagnostic = refusal(spec)
    assert "arguments for entry 'run', raised KeyError: 'rows'" in diagnostic.message
    assert any('sizes["rows"]' in note for note in diagnostic.notes)


def test_a_device_that_is_not_here_is_refused() -> None:
    model = module(lambda self, x: x + 1)
    if not torch.cuda.is_available():
        diagnostic = refusal(spec_of(model, X, device="cuda"))
        assert "made for cuda, which this machine does not have" in diagnostic.message


def test_a_tensor_on_another_device_is_refused() -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros(4, device="meta")

    assert "device meta" in refusal(spec_of(module(forward), X)).message


def test_export_entry_raises_what_trace_returns() -> None:
    spec = spec_of(module(_branches), X)
    with pytest.raises(DiagnosticError, match="DFS111"):
        export_entry(spec, "run")


def _rank(self: object, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.squeeze().dim() == 2 else x


ONE_ROW: dict[str, tuple[Forward, str]] = {
    "equal": (lambda self, x: x * 2 if x.shape[0] == 1 else x, "x.shape[0] == 1"),
    "above": (lambda self, x: x * 2 if x.shape[0] > 1 else x, "x.shape[0] > 1"),
    "truth": (lambda self, x: x * 2 if x.shape[0] - 1 else x, "x.shape[0] - 1"),
    "product": (lambda self, x: x * 2 if x.numel() == 4 else x, "x.numel() == 4"),
    "shape": (lambda self, x: x * 2 if x.shape == (1, 4) else x, "(1, 4)"),
    "either": (
        lambda self, x: x * 2 if x.shape[0] == 1 or x.shape[1] == 3 else x,
        "x.shape[1] == 3",
    ),
    "number": (lambda self, x: x * bool(x.shape[0] == 1), "bool(x.shape[0] == 1)"),
    "squeeze": (lambda self, x: x.squeeze(0) + 1, "x.squeeze(0)"),
    "rank": (_rank, "x.squeeze().dim()"),
}


@pytest.mark.parametrize("name", ONE_ROW)
def test_what_differs_for_a_size_of_one_is_refused(name: str) -> None:
    forward, code = ONE_ROW[name]
    diagnostic = refusal(spec_of(module(forward), X))
    assert "entry 'run' does something else where batch is 1" in diagnostic.message
    assert any(code in note for note in diagnostic.notes), diagnostic.notes
    assert 'dimensions={"batch": (2, None)}' in diagnostic.helps[-1]
    spec = spec_of(module(forward), X, dimensions={"batch": (2, None)})
    assert trace(spec, "target", {}).ok


def test_questions_with_the_same_answer_for_every_size_are_no_decisions() -> None:
    def forward(self: object, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        batch, rows = x.shape[0], y.shape[0]
        if batch < 1 or batch * rows < rows or x.shape[1] == 1 or not y.is_contiguous():
            return x
        z = x.reshape(-1, 2, 2).transpose(1, 2).contiguous().squeeze(-1)
        return z.expand(batch, 2, 2) + y.sum() + x.new_zeros(1, 1)

    assert trace(spec_of(module(forward), X, ("rows", 4)), "target", {}).ok


def test_a_size_of_one_is_named_by_the_dimension_that_matters() -> None:
    def forward(self: object, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2 if y.shape[0] * x.shape[0] == x.shape[0] else x + y.sum()

    diagnostic = refusal(spec_of(module(forward), X, ("rows", 4)))
    assert "where rows is 1" in diagnostic.message


def test_torchs_tracebacks_do_not_show(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def forward(self: object, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(7, 7)

    assert "cannot be traced" in refusal(spec_of(module(forward), X)).message
    assert capfd.readouterr().err == ""
    assert [item for item in caplog.records if item.levelname == "ERROR"] == []


class Weighted(torch.nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Named(torch.Tensor):
    """A subclass that is one plain tensor."""


def test_weights_that_wrap_others_are_to_be_unwrapped() -> None:
    wrapped = TwoTensor(torch.rand(4, 4), torch.rand(4, 4))
    diagnostic = refusal(spec_of(Weighted(wrapped).eval(), X))
    assert "'weight' is a TwoTensor" in diagnostic.message
    assert "unwrap_tensor_subclass" in diagnostic.helps[0]
    plain = Weighted(torch.rand(4, 4).as_subclass(Named)).eval()
    assert trace(spec_of(plain, X), "target", {}).value is not None


def test_arguments_that_wrap_others_are_refused() -> None:
    for listed in (False, True):
        wrapped = TwoTensor(torch.rand(3, 4), torch.rand(3, 4))
        given = [wrapped] if listed else wrapped
        entry = Entry(lambda sizes, given=given: (given,))  # type: ignore[misc]
        spec = spec_of(module(lambda self, x: x), X, entries={"run": entry})
        diagnostic = refusal(spec)
        label = "x[0]" if listed else "x"
        assert diagnostic.message.startswith(
            f"argument '{label}' of entry 'run' is a TwoTensor: one tensor to the graph"
        )
        assert "to_local()" in diagnostic.helps[0]
