"""The functions of a module, each written once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dynaflow_dsl.bind.kernels import types_of
from dynaflow_dsl.bind.model import (
    AFTER,
    BEFORE,
    Binding,
    Body,
    BoundKernel,
    BoundPart,
)
from dynaflow_dsl.emit.functions import FunctionText, write_function
from dynaflow_dsl.emit.inside import PartTable, RecordedRun
from dynaflow_dsl.emit.kernels import KernelNames, write_kernel_call
from dynaflow_dsl.emit.loops import InnerLoop, numbered, parameter_names
from dynaflow_dsl.emit.weights import layer_numbers
from dynaflow_dsl.graph.model import TensorType
from dynaflow_dsl.plan.model import Plan
from dynaflow_dsl.plan.names import BUILTINS, RESERVED, free_name, identifier
from dynaflow_dsl.plan.tensor_names import WeightTable, input_names, iterations_of

MODULE_NAMES = frozenset(
    {
        "Capture",
        "Executor",
        "Fetch",
        "Modules",
        "Part",
        "PhaseSplit",
        "Split",
        "StreamOptions",
        "TensorSpec",
        "aten",
        "load",
        "loader",
        "torch",
    }
)


class FunctionWriter:
    """Collects functions, and the names that are taken at the top of a module."""

    def __init__(self) -> None:
        self.written: list[FunctionText] = []
        # A function of a builtin's name would hide it in the whole module.
        self._taken = set(MODULE_NAMES | BUILTINS)
        self.kernels = KernelNames(self.new_name)
        # Names of functions by their text without a name.
        self._known: dict[tuple[str, ...], str] = {}

    def new_name(self, wanted: str) -> str:
        """A name that nothing at the top of the module has."""
        wanted = identifier(wanted)
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def of_part(
        self, part: BoundPart, table: PartTable, plan: Plan, prefix: str
    ) -> list[str]:
        """The functions of a part, one for each of its programs, and of its loops."""
        binding = plan.binding
        types = types_of(binding.graph)
        names = []
        for number, body in enumerate(part.bodies):
            users = [i for i, inst in enumerate(part.instances) if inst.body == number]
            iterations = iterations_of(part, binding)
            inputs = input_names(part, number, binding, plan.sequential)
            wanted = f"{prefix}{part.name}"
            spelled = dict(zip(body.inputs, inputs, strict=True))
            spelled |= table.weights.fields[number]
            later: list[FunctionText] = []
            loops = [
                self._loop(one, body, spelled, types, wanted, part.name, later)
                for one in table.runs[number]
            ]
            written = partial(
                write_function,
                body=body,
                inputs=inputs,
                weights=table.weights.fields[number],
                types=types,
                about=_function_doc(part, users, binding),
                scope=iterations[body.example].path if iterations else "",
                inner=loops,
                notes=_stated(part.name, binding),
            )
            names.append(self._function(written, wanted, self.written))
            self.written += later
        return names

    def _loop(
        self,
        one: RecordedRun,
        caller: Body,
        spelled: Mapping[str, str],
        types: Mapping[str, TensorType],
        wanted: str,
        part: str,
        later: list[FunctionText],
    ) -> InnerLoop:
        """The functions of a run, which go behind that of the part: into `later`."""
        run = one.run
        leaf = run.parent.rpartition(".")[2] or "modules"
        wanted = free_name(identifier(f"{wanted}_{leaf}"), set(spelled.values()))
        names = []
        for number, body in enumerate(run.part.bodies):
            users = [
                each.path
                for each, instance in zip(
                    run.iterations, run.part.instances, strict=True
                )
                if instance.body == number
            ]
            taken = {*RESERVED}
            written = partial(
                write_function,
                body=body,
                inputs=[
                    free_name(name, taken)
                    for name in parameter_names(run, caller, spelled)
                ],
                weights=one.table.fields[number],
                types=types,
                about=f"{part}, in a loop: {numbered(users)}",
                scope=run.iterations[body.example].path,
            )
            names.append(self._function(written, wanted, later))
        return InnerLoop(run, tuple(names), one.field)

    def of_kernel(
        self,
        part: BoundPart,
        table: WeightTable,
        plan: Plan,
        prefix: str,
        bound: BoundKernel,
        texts: Sequence[str],
    ) -> list[str]:
        """Functions that call the kernel of a part, one for each of its programs."""
        names = []
        for number, body in enumerate(part.bodies):
            written = partial(
                write_kernel_call,
                kernel=self.kernels.name(bound),
                bound=bound,
                chosen=bound.calls[number] if bound.calls else None,
                body=body,
                inputs=input_names(part, number, plan.binding, plan.sequential),
                weights=table.fields[number],
                types=types_of(plan.binding.graph),
                text=texts[number],
            )
            wanted = f"{prefix}{part.name}_kernel"
            names.append(self._function(written, wanted, self.written))
        return names

    def _function(
        self,
        written: Callable[[str], FunctionText],
        wanted: str,
        functions: list[FunctionText],
    ) -> str:
        """The name of a function, which is written once however many classes run it."""
        known = self._known.get(text := written("").lines)
        if known is None:
            known = self._known[text] = self.new_name(wanted)
            functions.append(written(known))
        return known


def _function_doc(part: BoundPart, users: Sequence[int], binding: Binding) -> str:
    if part.name in (BEFORE, AFTER):
        return f"What runs {part.name} the parts, on the whole batch."
    if binding.gaps is not None and part is binding.gaps.part:
        places = [binding.gaps.places[n] for n in users]
        (section, *others) = dict.fromkeys(place.section for place in places)
        at = "" if others else _where([p.iteration for p in places], section, binding)
        return f"gap: what lies {f'before {at}' if at else 'between the iterations'}"
    section = next(
        n for n, one in enumerate(binding.sections) if any(p is part for p in one.parts)
    )
    where = _where(users, section, binding)
    selector = next(
        p.selector.span for p in binding.schedule.parts if p.name == part.name
    )
    return f"{part.name}{where and f', {where}'}: {selector.phrase}"


def _stated(part: str, binding: Binding) -> list[str]:
    """What the file states of a part and nothing proves."""
    mine = [stated for stated in binding.stated if part in stated.parts]
    reasons = dict.fromkeys(
        refusal.reason
        for stated in mine
        if stated.source == "file"
        for refusal in stated.relied
    )
    named = {name for one in mine if one.source == "plug-in" for name in one.operations}
    declared = sorted({o.operator for o in binding.graph.operations if o.name in named})
    notes = []
    if declared:
        notes.append(
            f"A plug-in declares how {', '.join(declared)} treats rows; `dfsc verify` "
            "checks it by numbers."
        )
    if any(one.source == "target" for one in mine):
        notes.append(
            "Each piece writes places of its own into what all pieces share, as the "
            "target says; `dfsc verify` checks it by numbers."
        )
    if not reasons:
        return notes
    first, *others = reasons
    more = f", and {len(others)} more" if others else ""
    return [
        *notes,
        "rowwise = true: that its rows do not depend on each other is stated, and not "
        f"proved: {first}{more}. `dfsc verify` checks it by numbers.",
    ]


def _where(users: Sequence[int], section: int, binding: Binding) -> str:
    """`layers 0 to 7`; nothing outside an `each`."""
    bound = binding.sections[section]
    if not bound.word:
        return ""
    numbers = layer_numbers([bound.iterations[i] for i in users])
    if numbers is None:
        return f"{len(users)} modules"
    if len(numbers) == 1:
        return f"{bound.word} {numbers[0]}"
    if numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"{bound.word}s {numbers[0]} to {numbers[-1]}"
    return f"{bound.word}s {', '.join(map(str, numbers))}"
