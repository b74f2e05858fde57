"""Binds generated executors to a model."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NoReturn

import torch

from dynaflow_dsl.runtime.artifacts import cache_folder
from dynaflow_dsl.runtime.communication import communicating
from dynaflow_dsl.runtime.errors import LoadError
from dynaflow_dsl.runtime.executor import Call, Context, Executor, Setup
from dynaflow_dsl.runtime.facts import Fact, check_facts, facts_given, facts_here
from dynaflow_dsl.runtime.fetch import HostWeights, fetched_paths
from dynaflow_dsl.runtime.fetch import place as place_model
from dynaflow_dsl.runtime.graphs import GraphBackend, Pools, make_graphs
from dynaflow_dsl.runtime.kernel_sources import kernel_digest
from dynaflow_dsl.runtime.kernels import ComparedOnce, Kernel
from dynaflow_dsl.runtime.model import every_part
from dynaflow_dsl.runtime.module_map import ModuleMap, read_map
from dynaflow_dsl.runtime.notes import add_place, step_at
from dynaflow_dsl.runtime.ranks import Ranks, ranks_of, statement_of
from dynaflow_dsl.runtime.report import Estimate, FetchedMemory
from dynaflow_dsl.runtime.retraced import check_graphs
from dynaflow_dsl.runtime.select import Choice, Selected
from dynaflow_dsl.runtime.shared_code import code_of_this_load
from dynaflow_dsl.runtime.streams import MakeStreams, Streams, make_streams
from dynaflow_dsl.runtime.weights import (
    check_model,
    model_tensors,
    part_weights,
    record,
)

_log = logging.getLogger("dynaflow_dsl.runtime")


def loader(
    *executors: type[Executor], select: Mapping[str, Choice] | None = None
) -> Callable[..., Any]:
    """The `load` function of a generated module with these executors.

    `select` chooses among them in each step, by entry.
    """

    def load(
        model: torch.nn.Module,
        device: str | torch.device = "cpu",
        *,
        compile: bool = True,  # noqa: A002 - the name users expect
        cache: str | os.PathLike[str] | None = None,
        check: Literal["quick", "full", "none"] = "quick",
        facts: Mapping[str, Fact] | None = None,
        capture: bool = True,
        outputs: Literal["own", "lent"] = "own",
        place: bool = False,
        context: Context | None = None,
        streams: MakeStreams = make_streams,
    ) -> Any:
        """Bind the module to `model`: an executor, or one attribute per entry.

        Executors of several schedules for one entry go by the names of their classes;
        where the module chooses among them, an entry is a `Selected`.
        `compile=False` runs the module's text as it stands. `cache` is the folder of
        compiled parts (else `DFSC_CACHE_DIR`, else the user's cache). `check="none"`
        leaves out comparing versions, source, configuration and plain attributes, and
        the facts that this process knows; the model's tensors are always compared.
        `check="full"` also traces the model again, as the module's target says, and
        compares its operations; that takes seconds. `facts` are what the caller knows
        of this machine and model: those that the module was made with must be the same.
        `capture=False` captures no step in a CUDA graph, whatever the schedule says.
        With `outputs="lent"` what a captured step returns lies in the graph's memory
        until the next step of the module, or until `release()`; it is copied otherwise.
        `context(rows)` makes the context manager in which each step of a piece with
        these rows runs, for a module whose target has such a context.
        `streams` makes the streams that steps run on.

        Weights that parts fetch are copied to host memory (pinned where the device is
        CUDA), wherever the model has them, and are never all on the device; the model
        stays as it is. `place=True` moves the model's own tensors instead: these
        weights to that host memory, and all others that the module uses to the device.
        Raises LoadError.
        """
        if check not in ("quick", "full", "none"):
            raise ValueError(f'check is "quick", "full" or "none", not {check!r}')
        if outputs not in ("own", "lent"):
            raise ValueError(f'outputs is "own" or "lent", not {outputs!r}')
        _check_is_model(model)
        _check_context(executors, context)
        known = facts_given(facts)
        file = executors[0].step.__code__.co_filename
        module_map = read_map(Path(file))
        target = _device(device)
        # A device that has no streams is refused before its model is looked at.
        made = [
            streams(target, executor.stream_names, executor.stream_options)
            for executor in executors
        ]
        tensors = model_tensors(model)
        fetches = [f for executor in executors for f in executor.fetches().values()]
        check_model(
            model,
            tensors,
            module_map,
            target,
            fingerprint=check != "none",
            anywhere=list(module_map.tensors) if place else fetched_paths(fetches),
        )
        if check != "none":
            _check_kernels(executors[0].step.__globals__, module_map)
            known = {**facts_here(model, target), **known}
        check_facts(module_map, known)
        if check == "full":
            said = check_graphs(model, target, module_map, Path(file))
            check_facts(module_map, {**said, **known})
        names = [executor.entry for executor in executors]
        if len(set(names)) < len(names):  # several schedules of one entry
            names = [executor.__name__ for executor in executors]
        ranks = ranks_of(
            [executor.groups for executor in executors],
            statement_of(module_map, target, sequential=_sequential()),
            target,
            always=_checks(),
        )
        host = HostWeights(target)
        if place:
            with torch.inference_mode(False):
                place_model(model, list(module_map.tensors), fetches, host)
            tensors = model_tensors(model)
        compiled = code_of_this_load()
        pools = Pools()
        loaded = [
            _load_one(
                executor,
                tensors,
                module_map,
                file,
                target,
                own_streams,
                cache_folder(cache) if compile else None,
                compiled,
                host,
                make_graphs(target, own_streams, pools)
                if capture and executor.capture is not None and not _checks()
                else None,
                outputs == "lent",
                None if select is None else select.get(executor.entry),
                ranks,
                context,
            )
            for executor, own_streams in zip(executors, made, strict=True)
        ]
        if _log.isEnabledFor(logging.INFO):
            for executor in loaded:
                if executor.replays is not None:
                    _log.info("%s", executor.report())
        if select is not None:
            entries = {
                entry: Selected(entry, choose, [e for e in loaded if e.entry == entry])
                for entry, choose in select.items()
            }
            if len(entries) == 1:
                return next(iter(entries.values()))
            return Entries(**entries)
        if len(executors) == 1:
            return loaded[0]
        return Entries(**dict(zip(names, loaded, strict=True)))

    return load


class Entries(SimpleNamespace):
    """The entries of a module that has several, by name."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Say what can be called. Raises TypeError."""
        names = [f"step.{name}(...)" for name in vars(self)]
        raise TypeError(
            f"this module has {len(names)} steps, each called by its name: "
            f"{', '.join(names[:-1])} or {names[-1]}"
        )


def _check_kernels(names: Mapping[str, Any], module_map: ModuleMap) -> None:
    """Refuse kernels that are not those which parts were compared with."""
    for name, digest in module_map.kernels.items():
        made = names.get(name)
        if not isinstance(made, Kernel) or kernel_digest(made) != digest:
            raise LoadError(
                "DFS801",
                f"the source of the kernel `{name}` is not that which "
                f"{module_map.module} was compiled with: compile {module_map.source} "
                "again, which compares the kernel with the parts that run through it.",
            )


def _check_is_model(model: object) -> None:
    if isinstance(model, torch.nn.Module):
        return
    given = f"a {type(model).__name__}"
    if model is None:
        given = "None"
    elif isinstance(model, type):
        given = f"the class {model.__name__}"
    raise LoadError(
        "DFS801", f"a module is loaded with a torch.nn.Module, and {given} was given."
    )


def _check_context(executors: Sequence[type[Executor]], context: object) -> None:
    """Refuse steps of pieces that would read what is meant for the whole step."""
    needing = next((each for each in executors if each.needs_context), None)
    if needing is None or callable(context):
        return
    given = "" if context is None else f", and a {type(context).__name__} was given"
    raise LoadError(
        "DFS811",
        f"pieces of {needing.schedule} run in a context that the caller makes{given}: "
        "`load(..., context=make)`, where `make(rows)` returns the context manager for "
        "the rows of a piece.",
    )


def _device(given: str | torch.device) -> torch.device:
    """The device as its tensors name it."""
    try:
        device = torch.device(given)
    except (RuntimeError, TypeError) as error:
        raise LoadError(
            "DFS801", f"{given!r} is no device that PyTorch knows."
        ) from error
    if device.type == "cpu" and device.index == 0:
        return torch.device("cpu")
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _static_steps(
    executor: type[Executor], choose: Choice | None
) -> list[tuple[dict[str, int], bool]]:
    """Sizes whose parts are compiled for them alone, and whether steps run unsplit."""
    capture = executor.capture
    if capture is None or not capture.static:
        return []
    always = _sequential()
    found = []
    for one in capture.combinations():
        sizes = {**dict(zip(capture.sizes, one, strict=True)), **capture.complete(one)}
        method = (
            None
            if choose is None
            else choose(*[sizes[name] for name in executor.dimensions])
        )
        if always or method in (None, executor.step, executor.sequential):
            found.append((sizes, always or method is executor.sequential))
    return found


def _load_one(
    executor: type[Executor],
    tensors: dict[str, torch.Tensor],
    module_map: ModuleMap,
    file: str,
    device: torch.device,
    streams: Streams,
    folder: Path | None,
    compiled: dict[str, Any],
    host: HostWeights,
    graphs: GraphBackend | None,
    lend: bool,
    choose: Choice | None,
    ranks: Ranks | None,
    context: Context | None,
) -> Executor:
    """One executor; `compiled` holds what others of the module compiled already, and
    `host` the weights that they fetch."""
    # Buffers that are made in inference mode can be written in inference mode alone.
    with torch.inference_mode(False):
        fetched = {
            name: host.fetched(fetch, tensors)
            for name, fetch in executor.fetches().items()
        }
    for one in fetched.values():
        tensors = {**tensors, **one.views}
    parts = every_part(executor.parts())
    weights = {
        name: part_weights(name, part, tensors, module_map.module)
        for name, part in parts.items()
    }
    functions = {
        name: [part.function(position) for position in range(len(part.layers))]
        for name, part in parts.items()
    }
    all_functions, all_weights = functions, weights
    own_texts = {
        name: [
            partial(function, record(own))
            for function, own in zip(listed, weights[name], strict=True)
        ]
        for name, listed in functions.items()
    }
    # A kernel stands for the text of another part.
    texts = {name: own_texts[part.instead_of or name] for name, part in parts.items()}
    calls: dict[str, Sequence[Call]] = {
        name: one.calls for name, one in fetched.items()
    }
    for name in functions:
        if folder is None or parts[name].kernel:
            calls[name] = own_texts[name]
    trusted: list[ComparedOnce] = []
    for name, part in parts.items():
        if part.trusted:
            compared = [
                ComparedOnce(part.kernel, call, text)
                for call, text in zip(calls[name], texts[name], strict=True)
            ]
            calls[name] = compared
            trusted += compared
    if folder is not None:
        functions = {name: functions[name] for name in parts if name not in calls}
        weights = {name: weights[name] for name in functions}
        # Inductor takes a second to import, and text that runs as it stands needs none.
        from dynaflow_dsl.runtime.compile import compile_parts

        static = _static_steps(executor, choose) if graphs is not None else []
        calls.update(
            compile_parts(
                executor,
                functions,
                weights,
                device,
                folder,
                loaded=compiled,
                static=static,
            )
        )
    estimate: Estimate | None = None
    if graphs is not None:
        # As above; nothing runs before somebody asks.
        from dynaflow_dsl.runtime.estimate import Estimator

        plain = [name for name, part in parts.items() if not part.kernel]
        estimate = Estimator(
            executor,
            {name: all_functions[name] for name in plain},
            {name: all_weights[name] for name in plain},
            device,
        )
    checker = None
    if _checks():
        # Here, since it imports what no unchecked step needs.
        from dynaflow_dsl.runtime.checking import Checker

        checker = Checker(file, module_map)
        streams = checker.streams(streams)
        calls |= {
            name: [
                checker.call(name, layer, call, text)
                for layer, call, text in zip(
                    parts[name].layers, calls[name], texts[name], strict=True
                )
            ]
            for name in texts
        }
    if executor.groups and ranks is not None:
        # A thread would run a part when the context of its piece has been left.
        if device.type == "cpu" and not executor.needs_context:
            streams = streams.with_collectives()
        calls |= {
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
                    parts[name].layers, calls[name], texts[name], strict=True
                )
            ]
            for name in texts
        }
    layers = {name: part.layers for name, part in parts.items()}
    layers |= {name: fetch.layers for name, fetch in executor.fetches().items()}

    def explain(error: BaseException) -> None:
        add_place(error, file, module_map, layers)

    made = executor(
        Setup(
            calls=calls,
            streams=streams,
            device=device,
            explain=explain,
            always_sequential=_sequential(),
            graphs=graphs,
            lend=lend,
            trusted=trusted,
            estimate=estimate,
            ranks=ranks,
            context=context,
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


def _sequential() -> bool:
    """Whether all steps run unsplit and on one stream."""
    return os.environ.get("DFSC_SEQUENTIAL") == "1"


def _checks() -> bool:
    """Whether steps are checked while they run; decided when a module is loaded."""
    return os.environ.get("DFSC_CHECK") == "1"
