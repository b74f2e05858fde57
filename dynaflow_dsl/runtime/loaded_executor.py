"""One executor of a module that is loaded: how each of its parts is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from dynaflow_dsl.runtime.communication import communicating
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.executor_setup import Call, Context, Setup
from dynaflow_dsl.runtime.fetch import Fetched, HostWeights
from dynaflow_dsl.runtime.graphs import GraphBackend
from dynaflow_dsl.runtime.kernels import ComparedOnce
from dynaflow_dsl.runtime.module_map import ModuleMap
from dynaflow_dsl.runtime.notes import add_place, step_at
from dynaflow_dsl.runtime.part_texts import PartTexts, part_texts
from dynaflow_dsl.runtime.ranks import Ranks
from dynaflow_dsl.runtime.report import Estimate, FetchedMemory
from dynaflow_dsl.runtime.select import Choice
from dynaflow_dsl.runtime.streams import Streams

# Callables of each part, one for each iteration.
Calls: TypeAlias = Mapping[str, Sequence[Call]]


@dataclass(frozen=True, slots=True)
class Loading:
    """What all executors of a module are loaded with.

    `file` is the module's, and `tensors` are the model's. `host` holds the weights that
    are fetched; `compiled` what has been compiled so far, kept in `folder`, which is
    None where text runs as it stands. With `sequential` all steps run unsplit and on
    one stream, with `checked` they are checked while they run, and with `lend` what a
    captured one returns is the graph's memory. `ranks` are those that run the module
    together, and `context` is what steps of pieces run in.
    """

    module_map: ModuleMap
    file: str
    device: torch.device
    tensors: Mapping[str, torch.Tensor]
    host: HostWeights
    folder: Path | None
    compiled: dict[str, Any]
    sequential: bool = False
    checked: bool = False
    lend: bool = False
    ranks: Ranks | None = None
    context: Context | None = None


def load_executor(
    executor: type[Executor],
    loading: Loading,
    streams: Streams,
    graphs: GraphBackend | None,
    choose: Choice | None,
) -> Executor:
    """One executor on `streams`, whose steps `graphs` records.

    `choose` is the `select` of its entry.
    """
    fetched = _fetched(executor, loading)
    tensors = {**loading.tensors}
    for one in fetched.values():
        tensors |= one.views
    texts = part_texts(executor, tensors, loading.module_map.module)
    calls: dict[str, Sequence[Call]] = {
        name: one.calls for name, one in fetched.items()
    }
    for name, part in texts.parts.items():
        if loading.folder is None or part.kernel:
            calls[name] = texts.own[name]
    trusted = _trusted(texts, calls)
    calls |= trusted
    if loading.folder is not None:
        static = (
            _static_steps(executor, choose, always_unsplit=loading.sequential)
            if graphs is not None
            else []
        )
        calls |= _compiled(executor, loading, loading.folder, texts, static)
    estimate = None
    if graphs is not None:
        estimate = _estimate(executor, texts, loading.device)
    checker = None
    if loading.checked:
        # Here, since it imports what no unchecked step needs.
        from dynaflow_dsl.runtime.checking import Checker

        checker = Checker(loading.file, loading.module_map)
        streams = checker.streams(streams)
        calls |= {
            name: [
                checker.call(name, layer, call, text)
                for layer, call, text in zip(
                    part.layers, calls[name], texts.text(name), strict=True
                )
            ]
            for name, part in texts.parts.items()
        }
    if executor.groups and loading.ranks is not None:
        # A thread would run a part when the context of its piece has been left.
        if loading.device.type == "cpu" and not executor.needs_context:
            streams = streams.with_collectives()
        calls |= _communicating(executor, loading, loading.ranks, streams, texts, calls)
    layers = {name: part.layers for name, part in texts.parts.items()}
    layers |= {name: fetch.layers for name, fetch in executor.fetches().items()}

    def explain(error: BaseException) -> None:
        add_place(error, loading.file, loading.module_map, layers)

    made = executor(
        Setup(
            calls=calls,
            streams=streams,
            device=loading.device,
            explain=explain,
            always_sequential=loading.sequential,
            graphs=graphs,
            lend=loading.lend,
            trusted=[one for compared in trusted.values() for one in compared],
            estimate=estimate,
            ranks=loading.ranks,
            context=loading.context,
            fetched=FetchedMemory(
                sum(one.host for one in fetched.values()),
                sum(one.buffers for one in fetched.values()),
                sum(one.count for one in fetched.values()),
            ),
        )
    )
    if checker is not None:
        for method in ("step", "sequential"):
            setattr(made, method, checker.wrap(getattr(made, method)))
    return made


def _fetched(executor: type[Executor], loading: Loading) -> dict[str, Fetched]:
    """What the parts are made of that bring weights."""
    # Buffers that are made in inference mode can be written in inference mode alone.
    with torch.inference_mode(False):
        return loading.host.fetched(executor.fetches(), loading.tensors)


def _trusted(texts: PartTexts, calls: Calls) -> dict[str, list[ComparedOnce]]:
    """Kernels that are compared with the part's text in their first call."""
    return {
        name: [
            ComparedOnce(part.kernel, call, text)
            for call, text in zip(calls[name], texts.text(name), strict=True)
        ]
        for name, part in texts.parts.items()
        if part.trusted
    }


def _compiled(
    executor: type[Executor],
    loading: Loading,
    folder: Path,
    texts: PartTexts,
    static: list[tuple[dict[str, int], bool]],
) -> Calls:
    """Parts that Inductor has compiled: all but kernels."""
    # It takes a second to import, and text that runs as it stands needs none.
    from dynaflow_dsl.runtime.compile import compile_parts

    names = texts.written()
    return compile_parts(
        executor,
        {name: texts.functions[name] for name in names},
        {name: texts.weights[name] for name in names},
        loading.device,
        folder,
        loaded=loading.compiled,
        static=static,
    )


def _static_steps(
    executor: type[Executor], choose: Choice | None, *, always_unsplit: bool
) -> list[tuple[dict[str, int], bool]]:
    """Sizes whose parts are compiled for them alone, and whether steps run unsplit."""
    capture = executor.capture
    if capture is None or not capture.static:
        return []
    found = []
    for one in capture.combinations():
        sizes = {**dict(zip(capture.sizes, one, strict=True)), **capture.complete(one)}
        method = (
            None
            if choose is None
            else choose(*[sizes[name] for name in executor.dimensions])
        )
        if always_unsplit or method in (None, executor.step, executor.sequential):
            found.append((sizes, always_unsplit or method is executor.sequential))
    return found


def _estimate(
    executor: type[Executor], texts: PartTexts, device: torch.device
) -> Estimate:
    """What bounds the memory of a step; nothing runs before somebody asks."""
    # As above.
    from dynaflow_dsl.runtime.estimate import Estimator

    names = texts.written()
    return Estimator(
        executor,
        {name: texts.functions[name] for name in names},
        {name: texts.weights[name] for name in names},
        device,
    )


def _communicating(
    executor: type[Executor],
    loading: Loading,
    ranks: Ranks,
    streams: Streams,
    texts: PartTexts,
    calls: Calls,
) -> Calls:
    """How the parts of an executor are called that has collectives."""
    file, module_map = loading.file, loading.module_map
    return {
        name: [
            communicating(
                ranks,
                streams,
                executor.groups.get(name, ()),
                call,
                text,
                partial(step_at, module_map=module_map, name=name, layer=layer),
                file,
            )
            for layer, call, text in zip(
                part.layers, calls[name], texts.text(name), strict=True
            )
        ]
        for name, part in texts.parts.items()
    }
