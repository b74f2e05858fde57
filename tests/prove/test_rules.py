"""Rules that `prove` keeps beyond those of which schedules tell."""

from __future__ import annotations

from dataclasses import replace

from dynaflow_dsl.plan.model import Call, PieceOf, Plan, Program, Return, Variable
from dynaflow_dsl.prove import prove
from tests.plan.layered import Layered
from tests.prove.program_mutations import with_block
from tests.prove.schedules import SCHEDULED_HALVES as HALVES
from tests.prove.schedules import TWO, order, scheduled
from tests.prove.test_messages import last_of, spans


def test_a_step_that_runs_twice() -> None:
    spot, statements = last_of(HALVES.plan)
    (head,) = (s for s in statements if isinstance(s, Call))
    at = statements.index(head)
    twice = (*statements[:at], head, *statements[at:])
    (found,) = prove(with_block(HALVES.plan, spot, twice)).diagnostics
    assert (found.code, found.message) == (
        "DFS707",
        "after runs 2 times in layer 0",
    )


def test_rows_of_what_has_none_are_returned() -> None:
    model = Layered(TWO.shapes, layers=1, results=(), head=(("mlp", 0),))
    plan = scheduled(model, {}, 1, order("attn", "mlp")).plan
    spot, statements = last_of(plan)
    (returned,) = (s for s in statements if isinstance(s, Return))
    (result,) = returned.operands
    assert isinstance(result, Variable)
    assert prove(plan).ok
    cut = replace(plan, binding=replace(plan.binding, axes={}))
    piece = Return((PieceOf(result.name, 0),))
    said = prove(with_block(cut, spot, (*statements[:-1], piece))).diagnostics[0]
    assert (said.code, said.message) == (
        "DFS707",
        f"{result.name} is returned for {plan.binding.results[0]}",
    )


def touching(plan: Plan, name: str, writes: dict[str, bool]) -> Plan:
    """The plan, with parts that touch memory which is none of their arguments."""
    (section,) = plan.binding.sections
    parts = []
    for part in section.parts:
        added = ((name, writes[part.name]),)
        instances = (replace(i, touched=i.touched + added) for i in part.instances)
        parts.append(replace(part, instances=tuple(instances)))
    sections = (replace(section, parts=tuple(parts)),)
    return replace(plan, binding=replace(plan.binding, sections=sections))


def test_memory_read_between_the_pieces_that_write_it() -> None:
    model = Layered(TWO.shapes, layers=1, results=(), head=(("mlp", 0),))
    timeline = order("attn[0]", "attn[1]", "mlp[0]", "mlp[1]")
    plan = scheduled(model, {}, 2, timeline).plan
    plan = touching(plan, "cache", {"attn": True, "mlp": False})
    assert prove(plan).ok
    (parts,) = (s for s in plan.step.segments if len(s.blocks) == 4)
    number = plan.step.segments.index(parts)
    first, second, third, fourth = parts.blocks
    segments = list(plan.step.segments)
    segments[number] = replace(parts, blocks=(first, third, second, fourth))
    found = prove(replace(plan, step=Program(tuple(segments)))).diagnostics[0]
    assert found.code == "DFS701"
    assert found.message == "mlp[0] reads cache before attn[1] writes it"
    assert spans(found) == ["mlp[0]", "attn[1]"]


def test_a_piece_of_an_argument_that_is_cut_along_another_axis() -> None:
    binding = HALVES.plan.binding
    axes = {**binding.axes, "keys.0": 1}
    (found,) = prove(
        replace(HALVES.plan, binding=replace(binding, axes=axes))
    ).diagnostics[:1]
    assert (found.code, found.message) == (
        "DFS707",
        "attn[0] in layer 0 reads piece 0 of keys.0 in the model, and finds no piece "
        "of keys.0 in keys",
    )
