"""Sends a load to a server on this machine and prints what came back, as JSON.

    python -m tests.integrations.vllm.send_load PORT NAME REQUESTS

All requests are sent at once. Prompts are of one token and of hundreds; many begin like
others, some are another's whole beginning. Each asks for a few tokens, the likeliest
ones, with the logarithms of their probabilities and of those of the runners-up.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from typing import Any

from tests.integrations.vllm.tiny_model import WORDS

# How long any request may take, in seconds.
LIMIT = 240


def prompts(count: int) -> Iterator[tuple[list[int], int]]:
    """Tokens of each prompt, and how many are to follow; the same every time."""
    drawn = random.Random(1)
    families = [drawn.choices(range(WORDS), k=200) for _ in range(5)]
    for number in range(count):
        begin = families[number % 5][: drawn.choice((0, 40, 96, 128, 200))]
        own = drawn.choices(range(WORDS), k=drawn.choice((1, 2, 7, 30, 75)))
        yield [*begin, *own], drawn.randint(2, 16)


async def send(port: int, name: str, count: int) -> list[dict[str, Any]]:
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
            *(one(session, prompt, more) for prompt, more in prompts(count))
        )


if __name__ == "__main__":
    _, port, name, count = sys.argv
    print(json.dumps(asyncio.run(send(int(port), name, int(count)))))
