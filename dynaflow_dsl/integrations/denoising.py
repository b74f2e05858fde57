"""Calls of a transformer of `diffusers` as denoising steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from diffusers import ModelMixin
from diffusers.models.modeling_outputs import Transformer2DModelOutput

from dynaflow_dsl.integrations.errors import ScheduleError
from dynaflow_dsl.integrations.forwards import ScheduledForward
from dynaflow_dsl.integrations.making import (
    MadeModule,
    ReadSchedule,
    Step,
    Target,
    executors_of,
    make,
    steps_of,
    tell_stale,
)
from dynaflow_dsl.models.denoiser import ENTRY, Kind, denoiser_spec
from dynaflow_dsl.models.dit import DIT
from dynaflow_dsl.models.flux import FLUX
from dynaflow_dsl.models.sd3 import SD3
from dynaflow_dsl.runtime import TensorSpec

KINDS = (DIT, FLUX, SD3)

# What differs between calls that need modules of their own: of each argument its name,
# dtype, and sizes, None for rows.
Form: TypeAlias = tuple[tuple[str, torch.dtype, tuple[int | None, ...]], ...]


@dataclass(frozen=True, slots=True)
class Loading:
    """The options of a module's `load`, and whether it is written to its folder."""

    options: Mapping[str, Any]
    write: bool


def kind_of(model: ModelMixin) -> Kind:
    """How a model is called. Raises ScheduleError (DFS830) for an unknown class."""
    for kind in KINDS:
        if type(model) is kind.model:
            return kind
    known = ", ".join(kind.model.__name__ for kind in KINDS)
    raise ScheduleError(
        "DFS830",
        f"how a {type(model).__name__} is called is not known, as it is of {known}: "
        "write a trace target for it, and call the step that its module gives.",
    )


class DenoiserForward(ScheduledForward):
    """The forward of a transformer whose steps a module runs, one for each form.

    Exactly one of `schedule` and `made` is given: what to compile in the first call of
    each form, or the module that runs.
    """

    def __init__(
        self,
        model: ModelMixin,
        kind: Kind,
        schedule: ReadSchedule | None,
        made: MadeModule | None,
        loading: Loading,
        strict: bool,
    ) -> None:
        super().__init__(model, strict)
        self.model: ModelMixin = model
        self.kind, self.schedule, self.loading = kind, schedule, loading
        self.steps: dict[Form, Step] = {}
        self.given: Form | None = None
        self._processors = self._kinds_of_attention()
        if made is not None:
            self.given = _form_of(kind, made)
            self.steps[self.given] = self._load(made)

    def run(self, given: dict[str, Any]) -> Any:
        """A step where the call is one, the model's own forward where it is not."""
        reason = self._other_call(given) or self.watch.change()
        if reason is None and self._kinds_of_attention() != self._processors:
            reason = "its attention was changed since it was scheduled"
        if reason is not None:
            return self.own(reason, given)
        arguments = {
            name: given[key].contiguous()
            for key, name in self.kind.arguments.items()
            if given.get(key) is not None
        }
        form = _form(self.kind, arguments)
        step = self.steps.get(form)
        if step is None:
            if self.schedule is None:
                return self.own("the module was made for other sizes", given)
            step = self.steps[form] = self._make(self.schedule, arguments)
        sample = self.step(ENTRY, step, **arguments)
        if given.get("return_dict") is False:
            return (sample,)
        return Transformer2DModelOutput(sample=sample)

    def _other_call(self, given: Mapping[str, Any]) -> str | None:
        """What a call asks for that no step gives."""
        for name, value in given.items():
            if name in self.kind.arguments:
                if value is not None and not isinstance(value, torch.Tensor):
                    return f"`{name}` is a {type(value).__name__}"
            elif name != "return_dict" and value is not None and value != {}:
                return f"it is called with `{name}`"
        for key, name in self.kind.arguments.items():
            value, axes = given.get(key), self.kind.dims.get(name)
            if value is not None and axes is not None and value.ndim != len(axes):
                return (
                    f"`{key}` has {value.ndim} dimensions, and steps take {len(axes)}"
                )
        return None

    def _make(
        self, schedule: ReadSchedule, arguments: Mapping[str, torch.Tensor]
    ) -> Step:
        spec = denoiser_spec(self.kind, self.model, arguments)
        target = Target("dynaflow_dsl.integrations.diffusers:schedule", {})
        first = not self.steps
        made = make(schedule, spec, target, write=self.loading.write and first)
        # That one module is not for other sizes as well is no news.
        if first:
            tell_stale(made)
        return self._load(made)

    def _load(self, made: MadeModule) -> Step:
        options = dict(self.loading.options)
        loaded = made.module.load(self.model, self.model.device, **options)
        self.modules.append(made)
        return steps_of(loaded, made.name)[ENTRY]

    def _kinds_of_attention(self) -> dict[str, type]:
        processors = getattr(self.model, "attn_processors", {})
        return {name: type(processor) for name, processor in processors.items()}


def _form(kind: Kind, arguments: Mapping[str, torch.Tensor]) -> Form:
    found = []
    for name, tensor in arguments.items():
        axes = kind.dims.get(name, (None,) * tensor.ndim)
        sizes = zip(tensor.shape, axes, strict=True)
        fixed = tuple(None if axis is not None else size for size, axis in sizes)
        found.append((name, tensor.dtype, fixed))
    return tuple(found)


def _form_of(kind: Kind, made: MadeModule) -> Form:
    """The form of the calls that a module is for.

    Raises ScheduleError (DFS830) where it is for other steps.
    """
    entries = executors_of(made.module)
    inputs = entries[ENTRY].inputs if ENTRY in entries else {}
    known = set(kind.arguments.values())
    if len(entries) > 1 or not inputs or not inputs.keys() <= known:
        raise ScheduleError(
            "DFS830",
            f"{made.name} is not for denoising steps of a {kind.model.__name__}: they "
            f"are the entry `{ENTRY}`, with inputs of {', '.join(sorted(known))}.",
        )
    found = []
    for name, spec in inputs.items():
        assert isinstance(spec, TensorSpec)
        sizes = tuple(size if isinstance(size, int) else None for size in spec.shape)
        found.append((name, getattr(torch, spec.dtype), sizes))
    return tuple(found)
