"""Writes a tiny decoder with random weights, and its tokenizer, into a folder.

A script, so that no test imports what the engine brings along:

    python -m tests.integrations.vllm.tiny_model FOLDER Llama

The weights are spread wide, so that the likeliest token is so by far: what the tests
compare are tokens, and two engines round differently.
"""

from __future__ import annotations

import sys
from pathlib import Path

WORDS = 512


def write(folder: Path, family: str) -> None:
    """Write model and tokenizer; the same files every time."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = {"<s>": WORDS, "</s>": WORDS + 1, "<unk>": WORDS + 2}
    words = {f"w{number}": number for number in range(WORDS)} | special
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=len(words),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        bos_token_id=WORDS,
        eos_token_id=WORDS + 1,
        initializer_range=0.2,
        tie_word_embeddings=False,
    )
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    model.to(torch.float32).save_pretrained(folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
