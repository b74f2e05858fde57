import copy

import pytest
import torch
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from dynaflow_dsl.models.decoder import random_model
from dynaflow_dsl.models.tensor_parallel import shard
from tests.models.decoding import decode
from tests.models.lockstep import on_ranks

SHAPE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
EXPERTS = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
LATENT = {
    **SHAPE,
    **EXPERTS,
    "num_key_value_heads": 8,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 4,
}

FAMILIES: dict[str, tuple[type[PreTrainedModel], PreTrainedConfig]] = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SHAPE)),
    "llama_biased": (
        LlamaForCausalLM,
        LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True),
    ),
    "llama_tied": (LlamaForCausalLM, LlamaConfig(**SHAPE, tie_word_embeddings=True)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SHAPE)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SHAPE, head_dim=12)),
    "qwen3_moe": (
        Qwen3MoeForCausalLM,
        Qwen3MoeConfig(**SHAPE, **EXPERTS, head_dim=8, num_experts=8),
    ),
    "mixtral": (
        MixtralForCausalLM,
        MixtralConfig(**SHAPE, num_local_experts=4, sliding_window=None),
    ),
    "deepseek_v2": (
        DeepseekV2ForCausalLM,
        DeepseekV2Config(**LATENT, q_lora_rank=None),
    ),
    "deepseek_v3": (DeepseekV3ForCausalLM, DeepseekV3Config(**LATENT, q_lora_rank=8)),
}
LENGTHS = [5, 2, 6]


def model_of(family: str) -> PreTrainedModel:
    model_class, config = FAMILIES[family]
    model = random_model(model_class, config)
    torch.manual_seed(3)
    for name, tensor in model.named_parameters():
        if name.endswith("bias"):
            tensor.copy_(torch.randn_like(tensor))
    return model


def prompts() -> torch.Tensor:
    return torch.randint(1, 97, (3, 6), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("ways", [2, 8])
def test_the_ranks_together_compute_what_the_whole_model_does(
    family: str, ways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = model_of(family)
    expected = decode(whole, prompts(), LENGTHS, steps=4)
    models = [shard(copy.deepcopy(whole), ways, rank) for rank in range(ways)]
    found = on_ranks(
        monkeypatch,
        ways,
        lambda rank: decode(models[rank], prompts(), LENGTHS, steps=4),
    )
    for logits in found:
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


REFUSED: dict[str, tuple[str, dict[str, int], str]] = {
    "layers that come last": (
        "llama",
        {"intermediate_size": 42},
        "4 ranks cannot share 42 features",
    ),
    "key-value heads": (
        "llama",
        {"num_attention_heads": 12, "num_key_value_heads": 6, "head_dim": 4},
        "4 ranks cannot share 6 heads of 24 outputs evenly",
    ),
    "experts": ("qwen3_moe", {"moe_intermediate_size": 18}, "4 ranks.*experts'"),
    "the head": ("llama", {}, "the head has a bias"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_model_that_is_refused_stays_as_it_was(reason: str) -> None:
    """What is refused last, after layers that could be cut."""
    family, sizes, message = REFUSED[reason]
    model_class, config = FAMILIES[family]
    changed = copy.deepcopy(config)
    for name, size in sizes.items():
        setattr(changed, name, size)
    model = random_model(model_class, changed)
    if reason == "the head":
        model.lm_head.bias = torch.nn.Parameter(torch.zeros(97))
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    modules = dict(model.named_modules())
    with pytest.raises(ValueError, match=message):
        shard(model, 4, 0)
    assert dict(model.named_modules()) == modules
    assert not any(module._forward_hooks for module in modules.values())
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    for module in modules.values():
        if isinstance(module, torch.nn.Linear):
            assert module.out_features == module.weight.shape[0]
