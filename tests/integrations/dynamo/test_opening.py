"""Every dimension that `dims` names is open, and what is said where one is not."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch._dynamo.exc import TensorifyScalarRestartAnalysis

from dynaflow_dsl.cli.foreign import import_module_file
from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.integrations import report
from dynaflow_dsl.integrations.dynamo import opening
from tests.integrations.dynamo.compiling import compiled
from tests.integrations.dynamo.models import HALVES, Block, Stack, evaluated, write


class Masked(Stack):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * mask


class Weighed(Stack):
    """Its second input has nothing to do with rows."""

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * weights.sum()


def refused(step: Any, *arguments: torch.Tensor) -> Diagnostic:
    with pytest.raises(DiagnosticError) as raised:
        step(*arguments)
    first, *_ = raised.value.diagnostics
    return first


def shapes() -> dict[str, tuple[int | str, ...]]:
    """The sizes of the inputs of the module that was written."""
    module = import_module_file(Path("executors/halves.py"))
    inputs = next(v for v in vars(module).values() if hasattr(v, "inputs")).inputs
    return {name: spec.shape for name, spec in inputs.items()}


def test_an_input_of_which_dims_is_wrong_is_named(tmp_path: Path) -> None:
    dims = {"x": ("batch", None), "mask": (None, None)}
    step = compiled(evaluated(Masked()), write(tmp_path), dims=dims)
    mask = torch.randn(4, 1)
    found = refused(step, torch.randn(4, 8), mask)
    assert (found.code, found.message) == (
        "DFS821",
        "axis 0 of 'mask' is batch to the model's code, and 'dims' does not say so",
    )
    assert found.helps == (
        'say it of each such input: options={"dims": {..., "mask": ("batch", None)}}',
    )
    assert found.primary is not None
    assert found.primary.span.text == "split batch into 2 as half"
    # A later call with other dims is not hindered by what was tried.
    torch._dynamo.reset()
    assert not [name for name in vars(mask) if "dynamo" in name]


def test_every_such_input_is_named_at_once(tmp_path: Path) -> None:
    class Model(Masked):
        def forward(self, x: Any, mask: Any, scale: Any) -> torch.Tensor:
            return super().forward(x, mask) * scale[:, None]

    dims = {"x": ("batch", None), "mask": (None, None), "scale": (None,)}
    step = compiled(evaluated(Model()), write(tmp_path), dims=dims)
    found = refused(step, torch.randn(4, 8), torch.randn(4, 1), torch.randn(4))
    assert found.helps[0].endswith(
        '{..., "mask": ("batch", None), "scale": ("batch",)}}'
    )


class Looking(Stack):
    """Its mask is looked up by the number of a row: no size ties it to the rows."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(x.shape[0])
        return super().forward(x) * mask[rows]


@pytest.mark.parametrize("kind", [Masked, Looking])
def test_an_input_that_dims_leaves_out_is_found_by_its_size(
    kind: type[Stack], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dynaflow_dsl")
    model = evaluated(kind())
    step = compiled(model, write(tmp_path))
    for rows in (4, 6, 5):
        x, mask = torch.randn(rows, 8), torch.randn(rows, 1)
        torch.testing.assert_close(step(x, mask), model(x, mask))
        assert not [name for name in (*vars(x), *vars(mask)) if "dynamo" in name]
    assert [each.module for each in report().graphs] == ["executors/halves.py"]
    assert shapes() == {"x": ("batch", 8), "mask": ("batch", 1)}
    said = "'mask' is taken to have the axis batch, by its size"
    assert sum(said in each.message for each in caplog.records) == 1


def test_all_axes_of_an_input_with_rows_are_found(tmp_path: Path) -> None:
    model = evaluated(Masked())
    step = compiled(model, write(tmp_path), dims={"x": ("batch", "seq", None)})
    for rows, tokens in ((4, 6), (5, 3), (5, 5), (2, 9)):
        x, mask = torch.randn(rows, tokens, 8), torch.randn(rows, tokens, 1)
        torch.testing.assert_close(step(x, mask), model(x, mask))
    assert shapes() == {"x": ("batch", "seq", 8), "mask": ("batch", "seq", 1)}
    assert len(report().graphs) == 1


class Attending(Stack):
    """Its mask has the length of the text, to the model's code too."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * mask[:, :, None]


@pytest.mark.parametrize("first", [4, 1])
def test_a_single_row_does_not_tell_which_inputs_have_rows(
    first: int, tmp_path: Path
) -> None:
    """The last batch of a data set may have one: it is Inductor's."""
    model = evaluated(Attending())
    step = compiled(model, write(tmp_path), dims={"x": ("batch", "seq", None)})
    for rows, tokens in ((first, 6), (5, 3), (1, 7), (1, 3)):
        x, mask = torch.randn(rows, tokens, 8), torch.randn(rows, tokens)
        torch.testing.assert_close(step(x, mask), model(x, mask))
    assert shapes() == {"x": ("batch", "seq", 8), "mask": ("batch", "seq")}
    reasons = {each.reason for each in report().graphs if each.module is None}
    assert reasons == {"batch is 1 in it, too few for the pieces of the split"}


def test_a_single_row_that_a_select_takes(tmp_path: Path) -> None:
    text = f"""{HALVES}
schedule whole:
    stream side

    each layer in .layers.*:
        part expand on side = .norm + .up
        part reduce = rest

        order:
            expand
            reduce

select by_rows:
    when batch >= 2: halves
    else:            whole
"""
    model = evaluated(Attending())
    step = compiled(model, write(tmp_path, text), dims={"x": ("batch", "seq", None)})
    for rows, tokens in ((1, 6), (4, 6), (1, 7)):
        x, mask = torch.randn(rows, tokens, 8), torch.randn(rows, tokens)
        torch.testing.assert_close(step(x, mask), model(x, mask))
    assert all(each.module is not None for each in report().graphs), report()


def test_open_axes_that_nobody_names_are_one_where_they_are_equal(
    tmp_path: Path,
) -> None:
    """Dynamo opens them by itself, one by one, when a second size comes along."""

    class Model(Looking):
        def forward(self, x: Any, mask: Any) -> torch.Tensor:
            if mask.shape[1] < x.shape[1]:
                raise ValueError
            return super().forward(x, mask[:, : x.shape[1], None])

    model = evaluated(Model())
    dims = {"x": ("batch", None, None)}
    step = compiled(model, write(tmp_path), dims=dims)
    for tokens in (6, 5, 7):
        x, mask = torch.randn(4, tokens, 8), torch.randn(4, tokens)
        torch.testing.assert_close(step(x, mask), model(x, mask))
    assert [each.entry for each in report().graphs] == ["forward", "forward_2"]


def test_of_two_errors_the_one_that_is_no_missing_name(tmp_path: Path) -> None:
    """With the mask named something else is wrong, and without it that it is not."""
    text = HALVES.replace(".up", ".upp")
    found = refused(
        compiled(evaluated(Masked()), write(tmp_path, text)),
        torch.randn(4, 8),
        torch.randn(4, 1),
    )
    assert found.code == "DFS201"


def test_a_guess_that_cannot_be_right_is_not_blamed_on_dims(tmp_path: Path) -> None:
    """A mask of pairs of tokens, in a call with as many rows as tokens."""

    class Model(Stack):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            scores = x @ x.transpose(1, 2) + mask
            return super().forward(torch.softmax(scores, -1) @ x)

    dims = {"x": ("batch", "seq", None)}
    step = compiled(evaluated(Model()), write(tmp_path), dims=dims)
    found = refused(step, torch.randn(4, 4, 8), torch.randn(4, 4))
    assert (found.code, found.message) == (
        "DFS821",
        "axis 0 of 'mask' is seq to the model's code, and 'dims' does not say so",
    )
    assert found.helps[0].endswith('{..., "mask": ("seq", "seq")}}')


class WeighedBlock(Block):
    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return super().forward(x - self.mean(x)) * weights

    def mean(self, x: torch.Tensor) -> float | torch.Tensor:
        return 0.0


class MeanBlock(WeighedBlock):
    def mean(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(0)


class WeighedLayers(Stack):
    block: type[Block] = WeighedBlock

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(self.block() for _ in range(2))

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, weights)
        return x


class MeanLayers(WeighedLayers):
    block = MeanBlock


class Doubling(Stack):
    def forward(
        self, x: torch.Tensor, weights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(x), weights * 2


@pytest.mark.parametrize("kind", [WeighedLayers, Doubling])
def test_an_input_that_has_the_size_by_chance(
    kind: type[Stack], tmp_path: Path
) -> None:
    """It stays fixed where the code says so; else its graph is for equal sizes."""
    model = evaluated(kind())
    step = compiled(model, write(tmp_path))
    for rows in (8, 6, 8, 4):
        x, weights = torch.randn(rows, 8), torch.randn(8)
        torch.testing.assert_close(step(x, weights), model(x, weights))
        assert not [name for name in (*vars(x), *vars(weights)) if "dynamo" in name]
    fixed = kind is WeighedLayers
    assert shapes() == {"x": ("batch", 8), "weights": (8,) if fixed else ("batch",)}
    assert len(report().graphs) == (1 if fixed else 2)


def test_what_is_wrong_without_a_guess_is_said(tmp_path: Path) -> None:
    """An input that has the size by chance takes no part in it."""

    step = compiled(evaluated(MeanLayers()), write(tmp_path))
    found = refused(step, torch.randn(8, 8), torch.randn(8))
    assert found.code == "DFS601"
    assert found.message == "batch cannot be split: mean over the split dimension"


def test_a_size_that_is_equal_by_chance_is_not_blamed(tmp_path: Path) -> None:
    class Model(Weighed):
        def forward(self, x: Any, weights: Any) -> torch.Tensor:
            return super().forward(x, weights) + torch.ones(4, 8)

    step = compiled(evaluated(Model()), write(tmp_path))
    found = refused(step, torch.randn(4, 8), torch.randn(4))
    assert found.message == (
        "batch is fixed to 4 in this graph: the model's code needs it to be 4"
    )


def test_all_named_dimensions_are_open(tmp_path: Path) -> None:
    model = evaluated(Weighed())
    step = compiled(model, write(tmp_path), dims={"x": ("batch", "seq", None)})
    weights = torch.randn(6)
    for rows, tokens in ((4, 6), (5, 3), (7, 9)):
        x = torch.randn(rows, tokens, 8)
        torch.testing.assert_close(step(x, weights), model(x, weights))
        assert not [name for name in vars(x) if "dynamo" in name]
    assert [each.module for each in report().graphs] == ["executors/halves.py"]
    # A size that was equal by chance stays as it is.
    assert shapes() == {"x": ("batch", "seq", 8), "weights": (6,)}


def test_an_input_that_fixes_a_dimension_that_nothing_splits(tmp_path: Path) -> None:
    step = compiled(
        evaluated(Masked()), write(tmp_path), dims={"x": ("batch", "seq", None)}
    )
    found = refused(step, torch.randn(4, 6, 8), torch.randn(6, 1))
    assert found.message.startswith("axis 0 of 'mask' is seq to the model's code")
    assert found.helps[0].endswith('{..., "mask": ("seq", None)}}')


def test_a_dimension_that_the_code_fixes_is_a_fixed_size(tmp_path: Path) -> None:
    """What was tried beside it leaves no trace: the other input has no open axis."""

    class Model(Weighed):
        def forward(self, x: Any, weights: Any) -> torch.Tensor:
            return super().forward(x, weights) + torch.ones(6, 8)

    model = evaluated(Model())
    step = compiled(model, write(tmp_path), dims={"x": ("batch", "seq", None)})
    x, weights = torch.randn(4, 6, 8), torch.randn(6)
    torch.testing.assert_close(step(x, weights), model(x, weights))
    assert shapes() == {"x": ("batch", 6, 8), "weights": (6,)}


class Optional(Stack):
    def forward(
        self,
        x: torch.Tensor,
        mask: torch.Tensor | None = None,
        more: Any = (),
        used: bool = True,
    ) -> torch.Tensor:
        x = super().forward(x)
        for factor in more:
            x = x * factor
        return x * mask if mask is not None and used else x


class Wrapped(Optional):
    """As `transformers` wraps the `forward` of its models."""

    @functools.wraps(Optional.forward)
    def forward(self, *arguments: Any, **named: Any) -> torch.Tensor:
        return super().forward(*arguments, **named)


@pytest.mark.parametrize("kind", [Optional, Wrapped])
@pytest.mark.parametrize(
    "leave_out",
    [
        lambda x: ((x,), {}),
        lambda x: ((x, None), {"more": []}),
        lambda x: ((x, torch.randn(4, 1)), {"used": False}),
        lambda x: ((x,), {"mask": torch.randn(4, 1), "used": False}),
        lambda x: ((x, x), {}),
        lambda x: ((x,), {"mask": x}),
    ],
    ids=[
        "left out",
        "None",
        "not read",
        "not read, by name",
        "twice",
        "twice, by name",
    ],
)
def test_an_argument_that_a_call_has_no_tensor_for(
    kind: type[Stack], leave_out: Any, tmp_path: Path
) -> None:
    """What `dims` says of it holds for later calls."""
    model = evaluated(kind())
    dims = {"x": ("batch", None), "mask": ("batch", None), "more.*": ("batch", None)}
    step = compiled(model, write(tmp_path), dims=dims)
    x = torch.randn(4, 8)
    arguments, named = leave_out(x)
    torch.testing.assert_close(step(*arguments, **named), model(*arguments, **named))
    factors = torch.randn(4, 8), torch.randn(4, 8)
    full = x, torch.randn(4, 1), factors
    torch.testing.assert_close(step(*full), model(*full))
    assert [each.module is None for each in report().graphs] == [False, False]


@pytest.mark.parametrize("name", ["masks", "x.*", "mask_0", "used"])
def test_a_name_that_is_none_of_an_argument(name: str, tmp_path: Path) -> None:
    dims = {"x": ("batch", None), name: ("batch", None)}
    step = compiled(evaluated(Optional()), write(tmp_path), dims=dims)
    found = refused(step, torch.randn(4, 8), torch.randn(4, 1))
    assert (
        found.message
        == f"the option 'dims' names '{name}', and the inputs of this graph are x, mask"
    )
    meant = {"masks": "mask", "mask_0": "mask"}
    assert found.helps == ((f"did you mean {meant[name]!r}?",) if name in meant else ())


def test_bounds_of_a_dimension_that_is_none(tmp_path: Path) -> None:
    step = compiled(evaluated(Stack()), write(tmp_path), dimensions={"bach": (2, 8)})
    found = refused(step, torch.randn(4, 8))
    assert found.message.startswith("the option 'dimensions' has bounds for bach, and")
    assert found.helps[0] == "did you mean 'batch'?"


def test_a_dimension_of_the_schedule_by_another_name(tmp_path: Path) -> None:
    step = compiled(evaluated(Stack()), write(tmp_path), dims={"x": ("bach", None)})
    found = refused(step, torch.randn(4, 8))
    assert (found.code, found.message) == (
        "DFS821",
        "the schedule speaks of batch, and 'dims' gives no axis this name",
    )
    assert found.helps == ("did you mean 'bach'?", "the axes that it names: bach")


def test_an_input_of_another_graph(tmp_path: Path) -> None:
    """What goes on after a break has names of its own."""
    model = evaluated(Stack(breaks_at=2))
    step = compiled(model, write(tmp_path), dims={"inputs": ("batch", None)})
    found = refused(step, torch.randn(4, 8))
    assert found.message.startswith("no input of this graph has an axis batch")
    assert found.notes[0] == (
        "'dims' names it of inputs, and the inputs of this graph are x"
    )


class Pair(NamedTuple):
    x: torch.Tensor
    mask: torch.Tensor | None


class OfOne(Stack):
    def forward(self, given: Any) -> torch.Tensor:
        x = given["x"] if isinstance(given, dict) else given.x
        return super().forward(x)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: Pair(x, None),
        lambda x: Pair(x, torch.randn(4, 1)),
        lambda x: {"x": x, "mask": torch.randn(4, 1)},
        lambda x: {"x": x, "mask": None},
        lambda x: SimpleNamespace(x=x, mask=torch.randn(4, 1)),
    ],
)
def test_a_tensor_in_an_argument_that_is_not_read(make: Any, tmp_path: Path) -> None:
    model = evaluated(OfOne())
    dims = {"given_x": ("batch", None), "given_mask": ("batch", None)}
    step = compiled(model, write(tmp_path), dims=dims)
    given = make(torch.randn(4, 8))
    torch.testing.assert_close(step(given), model(given))
    wrong = {**dims, "given_masks": ("batch", None)}
    step = compiled(model, write(tmp_path), dims=wrong)
    said = refused(step, given).message
    assert said.startswith("the option 'dims' names 'given_masks'")


def test_a_cache_that_is_not_there_yet(tmp_path: Path) -> None:
    dims = {"x": ("batch", None), "more_keys.*": ("batch", None)}
    model = evaluated(Optional())
    step = compiled(model, write(tmp_path), dims=dims, persistent=["more_keys"])
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))


def test_a_size_that_names_an_entry_stays(tmp_path: Path) -> None:
    model = evaluated(Stack())
    step = compiled(
        model,
        write(tmp_path),
        dims={"x": ("batch", "tokens", None)},
        entries={"chunk": {"tokens": 6}, "prefill": {}},
    )
    for tokens in (6, 5, 4):
        x = torch.randn(4, tokens, 8)
        torch.testing.assert_close(step(x), model(x))
    assert [each.entry for each in report().graphs] == ["chunk", "prefill"]


def test_a_frame_that_dynamo_never_came_back_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for in one call says nothing of the next."""
    model = evaluated(Stack())
    step = compiled(model, write(tmp_path))
    lost = torch.randn(4, 8)
    real = opening.begin_anew

    def interrupted(axes: Any) -> None:
        with pytest.raises(TensorifyScalarRestartAnalysis):
            real(axes)
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "begin_anew", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(lost)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    x = torch.randn(4, 8)
    torch.testing.assert_close(step(x), model(x))
    assert report().graphs[-1].module == "executors/halves.py"
    assert not [name for name in vars(lost) if "dynamo" in name]
