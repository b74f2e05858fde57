"""What the engine's configuration says of schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dynaflow_dsl.diagnostics import Diagnostic, DiagnosticError, Label
from dynaflow_dsl.integrations.dynamo.options import Options, read_options
from dynaflow_dsl.resolve.model import ScheduleFile
from dynaflow_dsl.trace.model import Scalar

# The table of `additional_config` that is read here.
KEY = "dynaflow"

# Options of the torch.compile backend that mean the same here. What inputs mean is the
# engine's, and so are captures.
ALLOWED = (
    "schedule",
    "module",
    "write",
    "parameters",
    "facts",
    "compile",
    "cache",
)


def options_of(config: Any) -> Options:
    """The options in `additional_config`; raises DiagnosticError (DFS820)."""
    additional = config.additional_config
    given = additional.get(KEY) if isinstance(additional, Mapping) else None
    if not isinstance(given, Mapping) or "schedule" not in given:
        raise DiagnosticError(
            [
                Diagnostic(
                    "DFS820",
                    "the engine was given this backend and no schedule",
                    helps=(
                        "--additional-config "
                        '\'{"dynaflow": {"schedule": "std:vllm/decoder.dfs"}}\'',
                    ),
                )
            ]
        )
    for name in given:
        if name not in ALLOWED:
            raise DiagnosticError(
                [
                    Diagnostic(
                        "DFS820",
                        f"'{KEY}' of --additional-config has no option {name!r}",
                        helps=(f"its options: {', '.join(ALLOWED)}",),
                    )
                ]
            )
    return read_options({**given, "capture": False})


def in_config(name: str) -> str:
    """How a parameter of a schedule is named in the engine's configuration."""
    return f"--additional-config {KEY}.parameters.{name}"


def facts_of(config: Any) -> dict[str, Scalar]:
    """What schedules may require of the engine."""
    parallel = config.parallel_config
    return {
        "tp_size": parallel.tensor_parallel_size,
        "pp_size": parallel.pipeline_parallel_size,
        "dp_size": parallel.data_parallel_size,
        "ep_size": parallel.tensor_parallel_size * parallel.data_parallel_size
        if parallel.enable_expert_parallel
        else 1,
    }


def check_splits(file: ScheduleFile, config: Any) -> None:
    """Refuse to cut steps of an engine whose steps cannot be cut.

    Raises DiagnosticError (DFS821). Most of it is what the engine's own microbatches do
    not go with either.
    """
    split = next((s.split for s in file.schedules if s.split is not None), None)
    reason = next(_in_the_way(config), None)
    if split is None or reason is None:
        return
    raise DiagnosticError(
        [
            Diagnostic(
                "DFS821",
                f"steps of this engine cannot be cut: {reason}",
                Label(split.span, f"cuts {split.dimension}"),
                helps=("use a schedule without 'split'", "or start the engine without"),
            )
        ]
    )


def _in_the_way(config: Any) -> Iterator[str]:
    parallel, model = config.parallel_config, config.model_config
    if config.use_v2_model_runner:
        yield "its V2 model runner is used (VLLM_USE_V2_MODEL_RUNNER=0)"
    if parallel.use_ubatching:
        yield "it makes microbatches of its own (--enable-dbo, --ubatch-size)"
    if parallel.data_parallel_size > 1:
        yield "ranks of data parallelism count their tokens together"
    if parallel.decode_context_parallel_size > 1:
        yield "contexts of requests are spread over ranks"
    if config.speculative_config is not None:
        yield "tokens are drafted (speculative decoding)"
    if config.lora_config is not None:
        yield "adapters are chosen for the tokens of a whole step (LoRA)"
    if config.kv_transfer_config is not None:
        yield "caches are transferred layer by layer"
    if config.cache_config.kv_sharing_fast_prefill:
        yield "layers that share a cache skip tokens of prompts"
    if model.is_mm_prefix_lm or model.rswa_window is not None:
        yield "prompts have parts that every token of them reads"
    if model.runner_type != "generate" or model.is_encoder_decoder:
        yield "the model is no decoder that generates"
