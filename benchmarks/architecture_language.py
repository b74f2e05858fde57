"""Models of language: decoders, encoders and both."""

from __future__ import annotations

from benchmarks.architecture_model import (
    BOXES,
    LENGTH,
    PAIRS,
    SEQ2SEQ,
    T5,
    TOKENS,
    UNMASKED,
    WORDS,
    Architecture,
    experts,
    grouped,
    sizes,
)

LLAMA_LIKE = tuple(
    Architecture("decoder, Llama-like", f"{family}ForCausalLM", given)
    for family, given in {
        "Llama": grouped(),
        "Mistral": grouped(),
        "Qwen2": grouped(),
        "Qwen3": grouped(),
        "Gemma2": grouped(),
        "Gemma3": grouped(),
        "Phi3": grouped(),
        "Olmo2": grouped(),
        "Granite": grouped(),
        "Cohere": grouped(),
        "Glm4": grouped(),
        "StableLm": grouped(),
        "Starcoder2": grouped(),
        "SmolLM3": grouped(),
        "Nemotron": grouped(),
    }.items()
)

DECODERS = (
    Architecture("decoder", "GPT2LMHeadModel", sizes(n_embd=32, n_layer=2, n_head=4)),
    Architecture("decoder", "GPTNeoXForCausalLM", sizes()),
    Architecture(
        "decoder",
        "GPTJForCausalLM",
        sizes(n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
    ),
    Architecture(
        "decoder",
        "GPTNeoForCausalLM",
        {
            **sizes(num_layers=2, num_heads=4),
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
        },
    ),
    Architecture(
        "decoder", "GPTBigCodeForCausalLM", sizes(n_embd=32, n_layer=2, n_head=4)
    ),
    Architecture("decoder", "BloomForCausalLM", sizes(n_layer=2, n_head=4)),
    Architecture("decoder", "FalconForCausalLM", sizes()),
    Architecture("decoder", "MptForCausalLM", sizes(d_model=32, n_heads=4, n_layers=2)),
    Architecture(
        "decoder", "OPTForCausalLM", sizes(ffn_dim=48, word_embed_proj_dim=32)
    ),
    Architecture("decoder", "PhiForCausalLM", sizes()),
    Architecture("decoder", "BioGptForCausalLM", sizes()),
    Architecture(
        "decoder",
        "CodeGenForCausalLM",
        sizes(n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
    ),
    Architecture(
        "decoder",
        "XGLMForCausalLM",
        sizes(d_model=32, ffn_dim=48, num_layers=2, attention_heads=4),
    ),
    Architecture("decoder", "PersimmonForCausalLM", sizes()),
    Architecture(
        "decoder",
        "DeepseekV2ForCausalLM",
        sizes(
            num_key_value_heads=4,
            q_lora_rank=16,
            kv_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
            first_k_dense_replace=2,
            n_routed_experts=4,
        ),
        note="dense layers",
    ),
)

EXPERTS = tuple(
    Architecture(
        "mixture of experts",
        model,
        {**given, "_experts_implementation": way},
        note=way,
    )
    for model, way, given in (
        ("MixtralForCausalLM", "batched_mm", experts()),
        ("Qwen3MoeForCausalLM", "batched_mm", experts()),
        (
            "Qwen2MoeForCausalLM",
            "batched_mm",
            experts(shared_expert_intermediate_size=16),
        ),
        ("GptOssForCausalLM", "batched_mm", experts(intermediate_size=16)),
        ("OlmoeForCausalLM", "batched_mm", experts()),
        (
            "DeepseekV3ForCausalLM",
            "batched_mm",
            sizes(
                num_key_value_heads=4,
                q_lora_rank=16,
                kv_lora_rank=16,
                qk_rope_head_dim=8,
                qk_nope_head_dim=8,
                v_head_dim=8,
                first_k_dense_replace=1,
                n_routed_experts=4,
                n_group=2,
                topk_group=1,
                num_experts_per_tok=2,
                moe_intermediate_size=16,
            ),
        ),
        ("MixtralForCausalLM", "grouped_mm", experts()),
        ("Qwen3MoeForCausalLM", "grouped_mm", experts()),
    )
)

STATE = (
    Architecture(
        "state space",
        "MambaForCausalLM",
        sizes(state_size=4, conv_kernel=3, time_step_rank=4),
        UNMASKED,
    ),
    Architecture(
        "state space",
        "Mamba2ForCausalLM",
        sizes(
            state_size=4,
            conv_kernel=3,
            num_heads=8,
            head_dim=8,
            n_groups=2,
            chunk_size=4,
        ),
        UNMASKED,
    ),
    Architecture(
        "state space",
        "RwkvForCausalLM",
        sizes(attention_hidden_size=32, context_length=32, rescale_every=0),
        UNMASKED,
    ),
    Architecture(
        "state space",
        "FalconMambaForCausalLM",
        sizes(state_size=4, conv_kernel=3, time_step_rank=4),
        UNMASKED,
    ),
    Architecture(
        "state space",
        "RecurrentGemmaForCausalLM",
        grouped(
            lru_width=32,
            attention_window_size=8,
            block_types=("recurrent", "attention"),
        ),
    ),
    Architecture(
        "state space",
        "BambaForCausalLM",
        grouped(
            mamba_n_heads=8,
            mamba_d_head=8,
            mamba_n_groups=2,
            mamba_d_state=4,
            mamba_chunk_size=4,
            attn_layer_indices=[1],
        ),
    ),
    Architecture(
        "state space",
        "Lfm2ForCausalLM",
        grouped(layer_types=["conv", "full_attention"]),
    ),
)

ENCODERS = (
    Architecture("encoder", "BertModel", sizes()),
    Architecture("encoder", "RobertaModel", sizes(type_vocab_size=1)),
    Architecture(
        "encoder",
        "DistilBertModel",
        sizes(dim=32, n_layers=2, n_heads=4, hidden_dim=48),
    ),
    Architecture("encoder", "ElectraModel", sizes(embedding_size=16)),
    Architecture("encoder", "AlbertModel", sizes(embedding_size=16)),
    Architecture(
        "encoder",
        "DebertaModel",
        sizes(relative_attention=True, pos_att_type=["c2p", "p2c"]),
    ),
    Architecture(
        "encoder",
        "DebertaV2Model",
        sizes(relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8),
    ),
    Architecture("encoder", "MPNetModel", sizes()),
    Architecture(
        "encoder",
        "ModernBertModel",
        sizes(cls_token_id=1, sep_token_id=2, local_attention=4),
    ),
    Architecture("encoder", "XLMRobertaModel", sizes(type_vocab_size=1)),
    Architecture(
        "encoder",
        "XLNetModel",
        {"vocab_size": WORDS, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
    ),
    Architecture("encoder", "FNetModel", sizes(), UNMASKED),
    Architecture("encoder", "RoFormerModel", sizes(embedding_size=32)),
    Architecture(
        "encoder",
        "FunnelModel",
        {
            "vocab_size": WORDS,
            "d_model": 32,
            "n_head": 4,
            "d_head": 8,
            "d_inner": 48,
            "block_sizes": [1, 1],
            "num_decoder_layers": 1,
        },
    ),
    Architecture(
        "encoder", "ConvBertModel", sizes(embedding_size=32, conv_kernel_size=3)
    ),
    Architecture("encoder", "SqueezeBertModel", sizes(embedding_size=32)),
    Architecture(
        "encoder",
        "MobileBertModel",
        sizes(embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    ),
    Architecture(
        "encoder", "EsmModel", sizes(position_embedding_type="rotary", mask_token_id=5)
    ),
    Architecture(
        "encoder", "LayoutLMModel", sizes(max_2d_position_embeddings=64), BOXES
    ),
    Architecture(
        "encoder",
        "NystromformerModel",
        sizes(num_landmarks=2, segment_means_seq_len=LENGTH),
    ),
    Architecture("encoder", "YosoModel", sizes(use_expectation=True)),
    Architecture("encoder", "LongformerModel", sizes(attention_window=[4, 4]), TOKENS),
    Architecture("encoder", "BigBirdModel", sizes(attention_type="original_full")),
    Architecture(
        "encoder",
        "ReformerModel",
        sizes(
            axial_pos_embds=False,
            is_decoder=False,
            attn_layers=["local", "lsh"],
            attention_head_size=8,
            feed_forward_size=48,
            local_attn_chunk_length=4,
            lsh_attn_chunk_length=4,
            num_buckets=2,
            hash_seed=0,
            pad_token_id=0,
        ),
    ),
    Architecture(
        "encoder", "XLMModel", sizes(emb_dim=32, n_layers=2, n_heads=4, n_words=WORDS)
    ),
)

PAIRED = (
    Architecture("encoder-decoder", "T5ForConditionalGeneration", T5, PAIRS),
    Architecture("encoder-decoder", "MT5ForConditionalGeneration", T5, PAIRS),
    Architecture("encoder-decoder", "BartForConditionalGeneration", SEQ2SEQ, PAIRS),
    Architecture("encoder-decoder", "MarianMTModel", SEQ2SEQ, PAIRS),
    Architecture("encoder-decoder", "PegasusForConditionalGeneration", SEQ2SEQ, PAIRS),
    Architecture("encoder-decoder", "MBartForConditionalGeneration", SEQ2SEQ, PAIRS),
    Architecture("encoder-decoder", "M2M100ForConditionalGeneration", SEQ2SEQ, PAIRS),
    Architecture(
        "encoder-decoder",
        "LongT5ForConditionalGeneration",
        {**T5, "local_radius": 3},
        PAIRS,
    ),
    Architecture(
        "encoder-decoder",
        "SwitchTransformersForConditionalGeneration",
        {
            **T5,
            "num_experts": 4,
            "num_sparse_encoder_layers": 1,
            "num_sparse_decoder_layers": 1,
        },
        PAIRS,
    ),
    Architecture(
        "encoder-decoder",
        "ProphetNetForConditionalGeneration",
        {
            "vocab_size": WORDS,
            "hidden_size": 32,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_position_embeddings": 64,
        },
        PAIRS,
    ),
)
