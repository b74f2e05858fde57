"""Runs an engine on prompts from stdin and prints the tokens that follow.

Run as `python -m tests.integrations.vllm.generate MODEL CONFIGURATION`. With
EXCHANGED=1 in the environment each piece gets the metadata of another one.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager


def exchange() -> None:
    """Break what cuts metadata."""
    from vllm.forward_context import override_forward_context

    from dynaflow_dsl.integrations.vllm.pieces import Pieces

    def context(self: Pieces, rows: slice) -> AbstractContextManager[None]:
        others = [c for (start, _), c in self._contexts.items() if start != rows.start]
        return override_forward_context(others[0])

    Pieces.context = context


def main(model: str, config: str) -> None:
    from vllm import LLM, SamplingParams

    if os.environ.get("EXCHANGED"):
        exchange()
    engine = LLM(
        model,
        dtype="float32",
        gpu_memory_utilization=0.2,
        **{"max_model_len": 512, **json.loads(config)},
    )
    prompts = [{"prompt_token_ids": prompt} for prompt in json.load(sys.stdin)]
    sampled = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    found = engine.generate(prompts, sampled, use_tqdm=False)
    print(json.dumps([list(each.outputs[0].token_ids) for each in found]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
