"""Loads a generated module: checks what it is given, and makes its executors."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NoReturn

import torch

from dynaflow_dsl.runtime.artifacts import cache_folder
from dynaflow_dsl.runtime.executor import Executor
from dynaflow_dsl.runtime.executor_setup import Context
from dynaflow_dsl.runtime.facts import Fact, check_facts, facts_given, facts_here
from dynaflow_dsl.runtime.fetch import HostWeights, fetched_paths
from dynaflow_dsl.runtime.fetch import place as place_model
from dynaflow_dsl.runtime.graphs import Pools, make_graphs
from dynaflow_dsl.runtime.load_arguments import (
    check_context,
    check_is_model,
    check_kernels,
    known_device,
)
from dynaflow_dsl.runtime.loaded_executor import Loading, load_executor
from dynaflow_dsl.runtime.module_map import read_map
from dynaflow_dsl.runtime.ranks import ranks_of, statement_of
from dynaflow_dsl.runtime.retraced import check_graphs
from dynaflow_dsl.runtime.select import Choice, Selected
from dynaflow_dsl.runtime.shared_code import code_of_this_load
from dynaflow_dsl.runtime.streams import MakeStreams, make_streams
from dynaflow_dsl.runtime.weights import check_model, model_tensors

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
        check_is_model(model)
        check_context(executors, context)
        known = facts_given(facts)
        file = executors[0].step.__code__.co_filename
        module_map = read_map(Path(file))
        target = known_device(device)
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
            check_kernels(executors[0].step.__globals__, module_map)
            known = {**facts_here(model, target), **known}
        check_facts(module_map, known)
        if check == "full":
            said = check_graphs(model, target, module_map, Path(file))
            check_facts(module_map, {**said, **known})
        names = [executor.entry for executor in executors]
        if len(set(names)) < len(names):  # several schedules of one entry
            names = [executor.__name__ for executor in executors]
        sequential, checked = _sequential(), _checks()
        ranks = ranks_of(
            [executor.groups for executor in executors],
            statement_of(module_map, target, sequential=sequential),
            target,
            always=checked,
        )
        host = HostWeights(target)
        if place:
            with torch.inference_mode(False):
                place_model(model, list(module_map.tensors), fetches, host)
            tensors = model_tensors(model)
        loading = Loading(
            module_map=module_map,
            file=file,
            device=target,
            tensors=tensors,
            host=host,
            folder=cache_folder(cache) if compile else None,
            compiled=code_of_this_load(),
            sequential=sequential,
            checked=checked,
            lend=outputs == "lent",
            ranks=ranks,
            context=context,
        )
        pools = Pools()
        loaded = [
            load_executor(
                executor,
                loading,
                own_streams,
                make_graphs(target, own_streams, pools)
                if capture and executor.capture is not None and not checked
                else None,
                None if select is None else select.get(executor.entry),
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


def _sequential() -> bool:
    """Whether all steps run unsplit and on one stream."""
    return os.environ.get("DFSC_SEQUENTIAL") == "1"


def _checks() -> bool:
    """Whether steps are checked while they run; decided when a module is loaded."""
    return os.environ.get("DFSC_CHECK") == "1"
