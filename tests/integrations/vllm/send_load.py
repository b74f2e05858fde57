"""Sends a load to a server on this machine and prints what came back, as JSON.

    python -m tests.integrations.vllm.send_load PORT NAME REQUESTS LOAD

All requests are sent at once. Many begin like others, some are another's whole
beginning. Each asks for a few tokens, the likeliest ones, with the logarithms of their
probabilities and of those of the runners-up.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.integrations.vllm.tiny_model import WORDS

# How long any request may take, in seconds.
LIMIT = 240


@dataclass(frozen=True, slots=True)
class Load:
    """How requests are drawn, in tokens.

    A prompt is the beginning of one of five texts, as long as one of `begins`, and then
    tokens of its own, as many as one of `own`. `fewest` to `most` tokens follow.
    """

    seed: int
    begins: tuple[int, ...]
    own: tuple[int, ...]
    fewest: int
    most: int


LOADS = {
    # Prompts of one token and of hundreds.
    "mixed": Load(1, (0, 40, 96, 128, 200), (1, 2, 7, 30, 75), 2, 16),
    # Nearly all of the work is prompts; most of them are cut over several steps.
    "prompts": Load(7, (150, 310, 400), (20, 61, 80), 1, 4),
    # Nearly all of the work is single tokens, of many requests at once.
    "answers": Load(23, (0, 3, 17), (1, 4, 13), 20, 48),
}


def prompts(load: Load, count: int) -> Iterator[tuple[list[int], int]]:
    """Tokens of each prompt, and how many are to follow; the same every time."""
    drawn = random.Random(load.seed)
    longest = max(load.begins)
    texts = [drawn.choices(range(WORDS), k=longest) for _ in range(5)]
    for number in range(count):
        begin = texts[number % 5][: drawn.choice(load.begins)]
        own = drawn.choices(range(WORDS), k=drawn.choice(load.own))
        yield [*begin, *own], drawn.randint(load.fewest, load.most)


async def send(port: int, name: str, count: int, load: Load) -> list[dict[str, Any]]:
    """What each request gave, in the order of the requests."""
    import aiohttp

    async def one(
        session: aiohttp.ClientSession, prompt: list[int], more: int
    ) -> dict[str, Any]:
        request = {
            "model": name,
            "prompt": prompt,
            "max_tokens": more,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": 2,
        }
        url = f"http://127.0.0.1:{port}/v1/completions"
        async with session.post(url, json=request) as response:
            answer = await response.json()
        if response.status != 200:
            return {"error": answer}
        (choice,) = answer["choices"]
        return {
            "wanted": more,
            "tokens": choice["logprobs"]["tokens"],
            "chosen": choice["logprobs"]["token_logprobs"],
            "likeliest": [
                sorted(each.values(), reverse=True)[:2]
                for each in choice["logprobs"]["top_logprobs"]
            ],
        }

    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=LIMIT)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        return await asyncio.gather(
            *(one(session, prompt, more) for prompt, more in prompts(load, count))
        )


if __name__ == "__main__":
    _, port, name, count, load = sys.argv
    found = asyncio.run(send(int(port), name, int(count), LOADS[load]))
    print(json.dumps(found))
