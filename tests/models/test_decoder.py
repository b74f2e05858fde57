from copy import deepcopy

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    DynamicCache,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dynaflow_dsl.models.cache import attends_to_everything, cache_shapes
from dynaflow_dsl.models.decoder import (
    CachedDecoder,
    decoder_spec,
    greedy_inputs,
    random_model,
)
from dynaflow_dsl.trace import export_entry, trace

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    # Large enough that logits differ between tokens.
    "initializer_range": 0.3,
}
GROUPED = {**SHAPE, "num_key_value_heads": 2}
CAPACITY = 16
LENGTHS = (5, 2, 6)
SEQUENCE = max(LENGTHS)

Family = tuple[type[PreTrainedModel], PreTrainedConfig]
FAMILIES: dict[str, Family] = {
    "cohere": (CohereForCausalLM, CohereConfig(**GROUPED)),
    "gpt_neox": (GPTNeoXForCausalLM, GPTNeoXConfig(**SHAPE)),
    "granite": (GraniteForCausalLM, GraniteConfig(**GROUPED)),
    "llama": (LlamaForCausalLM, LlamaConfig(**GROUPED)),
    "mistral": (MistralForCausalLM, MistralConfig(**GROUPED, sliding_window=None)),
    "olmo2": (Olmo2ForCausalLM, Olmo2Config(**GROUPED)),
    "phi3": (Phi3ForCausalLM, Phi3Config(**GROUPED)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**GROUPED)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**GROUPED, head_dim=12)),
}


def model_of(family: str) -> PreTrainedModel:
    model_class, config = FAMILIES[family]
    # Some tests change it.
    return random_model(model_class, deepcopy(config))


@pytest.fixture(params=sorted(FAMILIES))
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return model_of(request.param)


def alone(model: PreTrainedModel, prompt: torch.Tensor, steps: int) -> torch.Tensor:
    """Logits [steps, vocab] of greedy generation with the library's own cache."""
    cache = DynamicCache(config=model.config)
    ids, logits = prompt[None], []
    for _ in range(steps):
        output = model(input_ids=ids, past_key_values=cache, use_cache=True)
        logits.append(output.logits[0, -1])
        ids = logits[-1].argmax()[None, None]
    return torch.stack(logits)


@torch.no_grad()
def test_greedy_generation_with_left_padding_equals_each_row_alone(
    model: PreTrainedModel,
) -> None:
    steps = 4
    torch.manual_seed(1)
    prompts = [torch.randint(1, 96, (length,)) for length in LENGTHS]
    expected = torch.stack([alone(model, prompt, steps) for prompt in prompts])
    spec = decoder_spec(model, capacity=CAPACITY, sequence=SEQUENCE)
    adapter = CachedDecoder(model)
    *_, keys, values = spec.entries["decode"].arguments({"batch": len(LENGTHS)})
    ids = torch.zeros(len(LENGTHS), SEQUENCE, dtype=torch.int64)
    for row, prompt in zip(ids, prompts, strict=True):
        row[SEQUENCE - len(prompt) :] = prompt
    position, mask, slot = greedy_inputs(LENGTHS, SEQUENCE, CAPACITY)
    for step in range(steps):
        logits = adapter(ids, position, mask, slot, keys, values)
        assert logits.shape == (len(LENGTHS), 1, 96)
        torch.testing.assert_close(logits[:, 0], expected[:, step])
        ids = logits.argmax(-1)
        position = position[:, -1:] + 1
        slot = slot[-1:] + 1
        mask[:, slot] = True


@torch.no_grad()
@pytest.mark.parametrize("family", ["cohere", "gpt_neox", "llama"])
def test_the_exported_entries_do_what_the_adapter_does(family: str) -> None:
    model = model_of(family)
    spec = decoder_spec(model, capacity=CAPACITY, sequence=SEQUENCE)
    assert sorted(spec.entries) == ["decode", "prefill"]
    for name, entry in spec.entries.items():
        exported = export_entry(spec, name).module()
        for batch in (1, 4):
            given = entry.arguments({"batch": batch})
            copied = tuple(
                [tensor.clone() for tensor in item]
                if isinstance(item, list)
                else item.clone()
                for item in given
            )
            torch.testing.assert_close(exported(*given), CachedDecoder(model)(*copied))
            torch.testing.assert_close(given[4:], copied[4:])


def test_every_family_traces_to_a_graph_with_the_models_own_paths(
    model: PreTrainedModel,
) -> None:
    spec = decoder_spec(model, capacity=CAPACITY)
    graph = trace(spec, "target", {}).unwrap().graphs[0]
    assert {operation.module for operation in graph.operations} <= set(graph.modules)
    assert set(graph.modules) == {name for name, _ in model.named_modules()}
    parameters = {i.name for i in graph.inputs if i.kind == "parameter"}
    assert parameters <= {
        name for name, _ in model.named_parameters(remove_duplicate=False)
    }
    written = {name for operation in graph.operations for name in operation.writes}
    assert written == {"keys.0", "keys.1", "values.0", "values.1"}
    persistent = {i.name for i in graph.inputs if i.kind == "persistent"}
    assert persistent == written


@torch.no_grad()
def test_padding_puts_no_nan_into_the_cache() -> None:
    model = model_of("llama")
    spec = decoder_spec(model, capacity=CAPACITY, sequence=SEQUENCE)
    *_, keys, values = spec.entries["prefill"].arguments({"batch": 2})
    position, mask, slot = greedy_inputs((1, SEQUENCE), SEQUENCE, CAPACITY)
    ids = torch.ones(2, SEQUENCE, dtype=torch.int64)
    CachedDecoder(model)(ids, position, mask, slot, keys, values)
    assert all(tensor.isfinite().all() for tensor in (*keys, *values))


def test_greedy_inputs_count_each_row_from_its_own_start() -> None:
    position, mask, slot = greedy_inputs((3, 1), 3, 5)
    assert position.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert mask.int().tolist() == [[1, 1, 1, 0, 0], [0, 0, 1, 0, 0]]
    assert slot.tolist() == [0, 1, 2]


def test_a_meta_model_is_made_without_memory_and_a_seed_makes_the_same_model() -> None:
    model_class, config = FAMILIES["llama"]
    assert random_model(model_class, config, meta=True).device.type == "meta"
    state = torch.random.get_rng_state()
    first, second = (random_model(model_class, config, seed=3) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    for left, right in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right)
    other = random_model(model_class, config, seed=4)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_half_precision_keeps_rotary_frequencies_exact() -> None:
    model_class, config = FAMILIES["llama"]
    model = random_model(model_class, config, dtype="bfloat16")
    assert model.lm_head.weight.dtype == torch.bfloat16
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32


def test_an_unknown_dtype_is_refused() -> None:
    model_class, config = FAMILIES["llama"]
    with pytest.raises(ValueError, match="'float33'"):
        random_model(model_class, config, dtype="float33")
    with pytest.raises(ValueError, match="'nn'"):
        random_model(model_class, config, dtype="nn")


def test_a_model_without_a_cache_of_fixed_length_is_refused() -> None:
    """It would count its windows from the end of the cache, and say other tokens."""
    config = GPTNeoConfig(
        vocab_size=96,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        max_position_embeddings=64,
    )
    model = random_model(GPTNeoForCausalLM, config)
    with pytest.raises(ValueError, match="does not work with a cache of a fixed"):
        decoder_spec(model, capacity=CAPACITY)


def test_layers_of_an_unknown_kind_are_refused() -> None:
    model = model_of("llama")
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(ValueError, match="layers of kind linear_attention"):
        decoder_spec(model, capacity=CAPACITY)


def test_layers_that_keep_nothing_are_refused() -> None:
    model = model_of("llama")
    model.config.num_hidden_layers = 3
    with pytest.raises(ValueError, match="layer 2 of the model keeps no keys"):
        cache_shapes(model)


def test_an_attention_implementation_with_kernels_is_refused() -> None:
    model = model_of("llama")
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match='attn_implementation="sdpa"'):
        decoder_spec(model, capacity=CAPACITY)


def test_experts_in_a_loop_are_refused() -> None:
    model = random_model(MixtralForCausalLM, MixtralConfig(**GROUPED))
    assert decoder_spec(model, capacity=CAPACITY).entries
    model.set_experts_implementation("eager")
    with pytest.raises(ValueError, match=r'implementation\("batched_mm"\)'):
        decoder_spec(model, capacity=CAPACITY)


@torch.no_grad()
def test_eager_attention_is_given_the_same_masks() -> None:
    model = model_of("llama")
    given = decoder_spec(model, capacity=CAPACITY, sequence=SEQUENCE)
    arguments = given.entries["prefill"].arguments({"batch": 3})
    sdpa = CachedDecoder(model)(*arguments)
    model.set_attn_implementation("eager")
    assert not attends_to_everything(model)
    torch.testing.assert_close(CachedDecoder(model)(*arguments), sdpa)


def test_latent_attention_keeps_what_its_layers_say() -> None:
    config = DeepseekV3Config(
        **SHAPE,
        num_key_value_heads=4,
        kv_lora_rank=16,
        q_lora_rank=12,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=12,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=16,
    )
    shapes = cache_shapes(random_model(DeepseekV3ForCausalLM, config))
    assert [(one.keys, one.values) for one in shapes] == [((1, 16), (1, 8))] * 2


@pytest.mark.parametrize(
    ("capacity", "message"), [(0, "a place or more"), (65, "positions for 64 tokens")]
)
def test_a_cache_is_as_long_as_the_positions_at_most(
    capacity: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        decoder_spec(model_of("gpt_neox"), capacity=capacity)
    assert decoder_spec(model_of("gpt_neox"), capacity=64).entries


@pytest.mark.parametrize("sequence", [1, CAPACITY + 1])
def test_prompts_must_fit_into_the_cache(sequence: int) -> None:
    with pytest.raises(ValueError, match="sequence is"):
        decoder_spec(model_of("llama"), capacity=CAPACITY, sequence=sequence)


@torch.no_grad()
def test_prompts_of_any_length() -> None:
    model = model_of("olmo2")
    spec = decoder_spec(model, capacity=CAPACITY, sequence="any")
    decode, prefill = trace(spec, "m:target", {}).unwrap().graphs
    assert prefill.dimensions == (("batch", 1, None), ("seq", 2, CAPACITY))
    assert decode.dimensions == (("batch", 1, None),)
    program = export_entry(spec, "prefill").module()
    for batch, seq in ((1, 2), (4, 7), (2, CAPACITY)):
        arguments = spec.entries["prefill"].make({"batch": batch, "seq": seq})
        assert arguments[0].shape == (batch, seq)
        torch.testing.assert_close(
            program(*deepcopy(arguments)), spec.adapted()(*arguments)
        )


def test_a_cache_that_is_too_short_for_any_prompt() -> None:
    with pytest.raises(ValueError, match="need three places or more"):
        decoder_spec(model_of("olmo2"), capacity=2, sequence="any")
