"""Runs an engine on prompts from stdin and prints the tokens that follow.

python -m tests.integrations.vllm.generate MODEL CONFIGURATION
"""

from __future__ import annotations

import json
import sys


def main(model: str, config: str) -> None:
    from vllm import LLM, SamplingParams

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
