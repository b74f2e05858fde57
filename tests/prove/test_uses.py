"""What kernels and operators use, one step at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dynaflow_dsl.bind.communicators import alike, alike_in_kernels
from dynaflow_dsl.bind.model import BoundKernel
from dynaflow_dsl.bind.uses import groups, groups_of_kernel, resources, uses_of
from dynaflow_dsl.diagnostics import Diagnostic
from dynaflow_dsl.operations.effects import effects_of
from dynaflow_dsl.prove import prove
from dynaflow_dsl.resolve.model import Kernel, Via
from dynaflow_dsl.source import Source, Span
from tests.bind.graphs import graph
from tests.prove.schedules import written

BESIDE = """    stream side
    part left on side = .left
    part right = .right
    order:
        left | right
"""
HALVES = """    stream side
    split batch into 2 as half
    part left on side = .left
    part right = .right
    order:
        left[0]
        right[0] | left[1]
        right[1]
"""
APART = BESIDE.replace("left | right", "left\n        right")
TWO = """
    input x
    l = {left}(x{more}) @ left
    r = {left}(x{more}) @ right
    y = mul.Tensor(l, r) @ head
    return y
"""
PLAIN = TWO.format(left="relu", more="")
SUMS = TWO.format(left="_c10d_functional.all_reduce.default", more=", sum, tp")
PLACE = Span(Source("s.dfs", "kernel"), 0, 6)


def kernel(
    part: str,
    *,
    communicator: str | None = None,
    uses: tuple[str, ...] = (),
    symmetric: bool = False,
    by_stream: bool = False,
) -> BoundKernel:
    named = Kernel("fused", "engine:fused", symmetric, PLACE)
    via = Via(named, (), PLACE)
    return BoundKernel(
        part, via, (), "", communicator=communicator, uses=uses, by_stream=by_stream
    )


def found(*kernels: BoundKernel, text: str = PLAIN) -> tuple[Diagnostic, ...]:
    plan = written(text, BESIDE).plan
    binding = replace(plan.binding, kernels=kernels)
    return prove(replace(plan, binding=binding)).diagnostics


@pytest.mark.parametrize(
    ("left", "right", "what"),
    [
        (
            kernel("left", communicator="tp"),
            kernel("right", communicator="tp"),
            "the process group 'tp'",
        ),
        (
            kernel("left", uses=("workspace",)),
            kernel("right", uses=("workspace", "other")),
            "the shared resource 'workspace'",
        ),
        (
            kernel("left", symmetric=True),
            kernel("right", symmetric=True),
            "the symmetric memory of the kernel 'fused'",
        ),
    ],
)
def test_two_kernels_share_what_one_may_use(
    left: BoundKernel, right: BoundKernel, what: str
) -> None:
    (said,) = found(left, right)
    assert said.code == "DFS705"
    assert said.message == f"right and left use {what} at once"
    assert not any("in the model" in way for way in said.helps)


def test_kernels_with_things_of_their_own() -> None:
    assert found(kernel("left", uses=("a",)), kernel("right", uses=("b",))) == ()
    assert found(kernel("left", communicator="tp"), kernel("right")) == ()
    assert found(kernel("left", communicator="tp")) == ()


@pytest.mark.parametrize(
    "said",
    [{"communicator": "tp"}, {"uses": ("workspace",)}, {"symmetric": True}],
    ids=["communicator", "uses", "symmetric"],
)
def test_kernels_that_have_it_by_stream_leave_those_on_others_alone(
    said: dict[str, Any],
) -> None:
    left, right = (kernel(each, **said, by_stream=True) for each in ("left", "right"))
    assert found(left, right) == ()
    # One that has it for all streams may be any of them.
    for shared in (
        (replace(left, by_stream=False), right),
        (left, kernel("right", **said)),
    ):
        (refused,) = found(*shared)
        assert refused.code == "DFS705"


def test_a_collective_beside_a_kernel_that_has_its_group_by_stream() -> None:
    (refused,) = found(kernel("left", by_stream=True), text=SUMS)
    assert refused.message == "right and left use the process group 'tp' at once"
    assert (
        found(*(kernel(k, by_stream=True) for k in ("left", "right")), text=SUMS) == ()
    )


def test_a_kernel_uses_what_it_says_and_not_what_its_part_held() -> None:
    (said,) = found(text=SUMS)
    assert said.code == "DFS705"
    assert found(kernel("left", uses=("mailbox",)), text=SUMS) == ()
    assert found(kernel("left", communicator="of its own"), text=SUMS) == ()
    assert found(kernel("left", symmetric=True), text=SUMS) == ()
    binding = written(SUMS, BESIDE).plan.binding
    binding = replace(binding, kernels=(kernel("left", uses=("mailbox",)),))
    (of_left,) = uses_of(binding)["left"]
    assert list(map(str, of_left)) == ["the shared resource 'mailbox'"]


def test_a_kernel_that_does_not_say_how_it_reaches_other_ranks() -> None:
    (said,) = found(kernel("left"), text=SUMS)
    assert said.message == "right and left use the process group 'tp' at once"


def test_a_kernel_uses_the_groups_of_the_collectives_that_it_stands_for() -> None:
    (left,) = (
        part.bodies
        for part in written(SUMS, BESIDE).plan.binding.parts
        if part.name == "left"
    )
    one, two = ("side",), ("side", "main")
    assert groups_of_kernel(kernel("left"), left, one) == ("tp",)
    assert groups_of_kernel(kernel("left", communicator="ep"), left, one) == ("ep",)
    assert groups_of_kernel(kernel("left", uses=("workspace",)), left, one) == ()
    apart = kernel("left", by_stream=True)
    assert groups_of_kernel(apart, left, one) == ("tp:side",)
    assert groups_of_kernel(apart, left, two) == ("tp:side", "tp")


def test_ranks_that_meet_in_a_kernel_have_equally_many_rows() -> None:
    """An exchange has what each of them sends; the memory for it is made by all."""
    exchanged = TWO.format(left="dynaflow.dispatch.default", more=", 4, 2, moe")
    binding = written(exchanged, APART).plan.binding
    assert alike(binding.graph, "moe") == set()
    assert alike_in_kernels(binding) == set()
    for part, expected in (("left", {"batch"}), ("right", {"batch"})):
        assert alike_in_kernels(replace(binding, kernels=(kernel(part),))) == expected
    plain = written(PLAIN, APART).plan.binding
    assert alike_in_kernels(replace(plain, kernels=(kernel("left"),))) == set()


def test_the_group_is_the_last_text_of_a_collective() -> None:
    made = graph(
        """
        input x
        a = _c10d_functional.all_reduce.default(x, sum, tp)
        b = _c10d_functional.all_to_all_single.default(a, 4, 4, ep)
        c = dynaflow.dispatch.default(b, 4, 2, moe)
        d = relu(c)
        return d
        """
    )
    assert groups(made) == ("tp", "ep", "moe")
    assert list(resources(made.operations[-1])) == []


def test_operators_of_torch_ask_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(_: object) -> tuple[()]:
        raise AssertionError

    monkeypatch.setattr("dynaflow_dsl.operations.effects.registered", asked)
    effects_of.cache_clear()
    assert effects_of("aten.add.Tensor") == ()
    (known,) = effects_of("aten.nonzero.default")
    assert known.waits_on_host
    with pytest.raises(AssertionError):
        effects_of("engine.write.default")


def test_equal_sizes_let_ranks_choose_alike() -> None:
    text = """
        input x seen:fixed
        a = relu(x) @ left
        s = _c10d_functional.all_reduce.default(seen, sum, ep) @ right
        b = mul.Tensor(a, s) @ right
        return b
    """
    plan = written(text, HALVES).plan
    assert [d.code for d in prove(plan).diagnostics] == ["DFS706"]
    assert prove(plan, {"batch"}).diagnostics == ()


CUT = """    stream side
    split batch into 2 as half
    part left on side = .left
    part right = .right
    order:
        right[*]
        left
"""
SEEN = """
    input x seen:fixed
    a = relu(x) @ left
    s = _c10d_functional.all_reduce.default(seen, sum, ep) @ right
    b = mul.Tensor(a, x) @ left
    return b s
"""


def test_a_rank_that_runs_a_kernel_meets_none_that_runs_its_operations() -> None:
    plan = written(SEEN, CUT).plan
    assert prove(plan).ok
    for one in (
        kernel("right", communicator="mine"),
        kernel("right", symmetric=True),
        kernel("right", communicator="ep"),
        kernel("right"),
    ):
        binding = replace(plan.binding, kernels=(one,))
        said = prove(replace(plan, binding=binding)).diagnostics[0]
        assert said.code == "DFS706"
        assert said.notes[1] == (
            "right runs through the kernel 'fused' here, and by its own operations in "
            "'sequential'"
        )
        assert said.helps == (
            "choose this schedule in a 'select' with 'equal batch' and 'when batch >= "
            "2:'",
            "leave out 'via fused' of part right",
        )
        assert prove(replace(plan, binding=binding), {"batch"}).ok


def test_nothing_runs_beside_a_kernel_without_effects() -> None:
    plan = written(PLAIN, APART).plan
    blind = replace(kernel("left"), declared=False)
    (error,) = prove(
        replace(plan, binding=replace(plan.binding, kernels=(blind,)))
    ).diagnostics
    assert error.code == "DFS404"
    assert error.message == (
        "kernel 'fused' declares no effects, and right may run beside it"
    )
