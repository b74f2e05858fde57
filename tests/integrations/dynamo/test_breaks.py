"""Graph breaks inside layers: which graphs are scheduled, and what is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError
from dynaflow_dsl.integrations import report
from tests.integrations.dynamo.compiling import compiled
from tests.integrations.dynamo.models import HALVES, Block, Stack, evaluated, write


class BreaksInside(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(self.norm(x))
        torch._dynamo.graph_break()
        return x + self.down(torch.relu(y))


class BreaksFirst(Block):
    """What runs before its break is in no part but the rest."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return super().forward(x)


def stack(*kinds: type[nn.Module]) -> nn.Module:
    model = Stack(0)
    model.layers.extend(kind() for kind in kinds)
    return evaluated(model)


def run(model: nn.Module, schedule: str) -> None:
    x = torch.randn(4, 8)
    step = compiled(model, schedule)
    torch.testing.assert_close(step(x), model(x))
    torch.testing.assert_close(step(x[:3]), model(x[:3]))


def refused(model: nn.Module, schedule: str) -> Diagnostic:
    with pytest.raises(DiagnosticError) as raised:
        compiled(model, schedule)(torch.randn(4, 8))
    first, *_ = raised.value.diagnostics
    return first


OWN_PARTS = HALVES.replace("reduce = rest", "reduce = .down + (own in .)")
BY_KIND = HALVES.replace(".norm + .up", "(matmul in .up) + (norm in .norm)")


@pytest.mark.parametrize("text", [HALVES, OWN_PARTS, BY_KIND])
def test_one_layer_that_breaks_is_left_to_inductor(text: str, tmp_path: Path) -> None:
    run(stack(Block, BreaksInside, Block), write(tmp_path, text))
    scheduled = [each for each in report().graphs if each.module is not None]
    assert {each.function for each in scheduled} == {"Block.forward"}
    first = next(each for each in report().graphs if "Breaks" in each.function)
    assert first.reason is not None
    assert first.reason.startswith("it holds a layer in part: ")
    assert "not scheduled: it holds a layer in part" in str(first)
    (found, *_) = first.diagnostics
    assert found.code == "DFS201"
    assert any("ends in a graph break" in note for note in found.notes)


def test_it_may_come_first(tmp_path: Path) -> None:
    run(stack(BreaksInside, Block), write(tmp_path))
    assert any(each.module is not None for each in report().graphs)


def test_where_every_layer_breaks_nothing_fits(tmp_path: Path) -> None:
    found = refused(stack(BreaksInside, BreaksInside), write(tmp_path))
    assert (found.code, found.message) == ("DFS201", "part reduce holds no operation")
    assert any("ends in a graph break" in note for note in found.notes)


def test_layers_that_break_before_their_parts_are_scheduled(tmp_path: Path) -> None:
    run(stack(BreaksFirst, BreaksFirst), write(tmp_path))
    first, second, *_ = report().graphs
    assert first.reason == "it holds none of the parts of the schedule"
    assert second.module == "executors/halves.py"
    assert second.begins


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (HALVES.replace(".norm", ".nrom"), ".nrom matches no module"),
        (HALVES.replace(".layers", ".layer"), ".layer.* matches no module"),
    ],
)
@pytest.mark.parametrize("kind", [BreaksInside, BreaksFirst])
def test_a_name_that_the_model_has_not_is_an_error(
    kind: type[nn.Module], wrong: str, said: str, tmp_path: Path
) -> None:
    found = refused(stack(Block, kind), write(tmp_path, wrong))
    assert found.code == "DFS201"
    assert found.message.startswith(said)
    assert found.primary is not None


TWO_KINDS = """dfs 1

schedule halves:
    each first in .layers.*:
        part whole = .norm + .up + .down

        order:
            whole

    each second in .others.*:
        part other = .norm + .up + .down

        order:
            other
"""


def test_a_break_between_the_sections_of_a_schedule(tmp_path: Path) -> None:
    """No graph has both: another one cannot fit either."""

    class Other(Block):
        pass

    class Model(Stack):
        def __init__(self) -> None:
            super().__init__(2)
            self.others = nn.ModuleList(Other() for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = super().forward(x)
            torch._dynamo.graph_break()
            for layer in self.others:
                x = layer(x)
            return x

    found = refused(evaluated(Model()), write(tmp_path, TWO_KINDS))
    assert found.code == "DFS201"
    assert ".others.*" in found.message


def test_values_that_an_earlier_graph_made_need_no_names(tmp_path: Path) -> None:
    class Model(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = x.sum(-1, keepdim=True)
            torch._dynamo.graph_break()
            return super().forward(x) * scale

    run(evaluated(Model()), write(tmp_path))
    first, second, *_ = report().graphs
    assert first.reason == "it holds none of the modules that the schedule names"
    assert second.module == "executors/halves.py"


class Named(Stack):
    """Its layers run with values of other names than those of its arguments."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, scale = x * 2, x.sum(-1, keepdim=True)
        del x
        torch._dynamo.graph_break()
        return super().forward(hidden) * scale


def test_values_of_other_names_have_the_sizes_of_the_call(tmp_path: Path) -> None:
    model = evaluated(Named())
    step = compiled(model, write(tmp_path))
    for rows in (4, 6, 5):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(step(x), model(x))
    assert [each.module for each in report().graphs if each.module] == [
        "executors/halves.py"
    ]
