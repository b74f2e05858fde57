"""Writes a tiny Llama with random weights, and a tokenizer of its own, into a folder.

A script, so that no test imports what the engine brings along:

    python -m tests.integrations.vllm.tiny_model FOLDER

The weights are spread wide, so that the likeliest token is so by far: what the tests
compare are tokens, and two engines round differently.
"""

from __future__ import annotations

import sys
from pathlib import Path

WORDS = 512


def write(folder: Path) -> None:
    """Write model and tokenizer; the same files every time."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = {"<s>": WORDS, "</s>": WORDS + 1, "<unk>": WORDS + 2}
    words = {f"w{number}": number for number in range(WORDS)} | special
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=WORDS,
        eos_token_id=WORDS + 1,
        initializer_range=0.2,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
