"""The architectures of transformers that the row check is tried on.

Each is one class with a tiny random configuration. Sizes are chosen so that no two
axes are equal by accident; everything else is the configuration's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WORDS, LENGTH = 64, 6

Inputs = Mapping[str, tuple[Any, ...]]

# What a model is called with: its arguments, as kind and shape without the batch.
TOKENS: Inputs = {"input_ids": ("token", LENGTH), "attention_mask": ("mask", LENGTH)}
UNMASKED: Inputs = {"input_ids": ("token", LENGTH)}
PAIRS: Inputs = {
    **TOKENS,
    "decoder_input_ids": ("token", 4),
    "decoder_attention_mask": ("mask", 4),
}
BOXES: Inputs = {**TOKENS, "bbox": ("box", LENGTH, 4)}


def pixels(size: int, channels: int = 3) -> Inputs:
    """Square images."""
    return {"pixel_values": ("number", channels, size, size)}


def sound(length: int) -> Inputs:
    """Raw sound."""
    return {"input_values": ("number", length)}


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model class: its group in the table, its configuration and its inputs.

    `config` is the name of the configuration class, by default that of the family;
    `nested` are the configurations inside it. `call` names the method that is called
    when it is not the model itself.
    """

    group: str
    model: str
    sizes: Mapping[str, Any]
    inputs: Inputs = field(default_factory=lambda: TOKENS)
    config: str = ""
    call: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """The class, and the method where one is named."""
        call = f".{self.call}" if self.call else ""
        return f"{self.model}{call}{f' ({self.note})' if self.note else ''}"


def _sizes(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": WORDS,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
    }


def _grouped(**more: Any) -> dict[str, Any]:
    return _sizes(num_key_value_heads=2, head_dim=8, **more)


def _experts(**more: Any) -> dict[str, Any]:
    return _grouped(
        moe_intermediate_size=16,
        num_experts=4,
        num_local_experts=4,
        num_experts_per_tok=2,
        **more,
    )


def _vision(**more: Any) -> dict[str, Any]:
    sizes = _sizes(image_size=16, patch_size=4, **more)
    return {k: v for k, v in sizes.items() if k not in _OF_TEXT}


def _text(**more: Any) -> dict[str, Any]:
    return _sizes(**more)


_OF_TEXT = (
    "vocab_size",
    "max_position_embeddings",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
)
_SEQ2SEQ: dict[str, Any] = {
    "vocab_size": WORDS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
_T5: dict[str, Any] = {
    "vocab_size": WORDS,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
}
_SPEECH = _sizes(
    conv_dim=(16, 16),
    conv_kernel=(4, 3),
    conv_stride=(2, 2),
    num_feat_extract_layers=2,
    num_conv_pos_embeddings=4,
    num_conv_pos_embedding_groups=2,
)
_TOWERS = {
    "text_config": _text(),
    "vision_config": _vision(),
    "projection_dim": 16,
}
_SERIES: dict[str, Any] = {
    "num_input_channels": 3,
    "context_length": 16,
    "prediction_length": 4,
    "patch_length": 4,
    "patch_stride": 4,
}

LLAMA_LIKE = tuple(
    Architecture("decoder, Llama-like", f"{family}ForCausalLM", sizes)
    for family, sizes in {
        "Llama": _grouped(),
        "Mistral": _grouped(),
        "Qwen2": _grouped(),
        "Qwen3": _grouped(),
        "Gemma2": _grouped(),
        "Gemma3": _grouped(),
        "Phi3": _grouped(),
        "Olmo2": _grouped(),
        "Granite": _grouped(),
        "Cohere": _grouped(),
        "Glm4": _grouped(),
        "StableLm": _grouped(),
        "Starcoder2": _grouped(),
        "SmolLM3": _grouped(),
        "Nemotron": _grouped(),
    }.items()
)

DECODERS = (
    Architecture("decoder", "GPT2LMHeadModel", _sizes(n_embd=32, n_layer=2, n_head=4)),
    Architecture("decoder", "GPTNeoXForCausalLM", _sizes()),
    Architecture(
        "decoder",
        "GPTJForCausalLM",
        _sizes(n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
    ),
    Architecture(
        "decoder",
        "GPTNeoForCausalLM",
        {
            **_sizes(num_layers=2, num_heads=4),
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
        },
    ),
    Architecture(
        "decoder", "GPTBigCodeForCausalLM", _sizes(n_embd=32, n_layer=2, n_head=4)
    ),
    Architecture("decoder", "BloomForCausalLM", _sizes(n_layer=2, n_head=4)),
    Architecture("decoder", "FalconForCausalLM", _sizes()),
    Architecture(
        "decoder", "MptForCausalLM", _sizes(d_model=32, n_heads=4, n_layers=2)
    ),
    Architecture(
        "decoder", "OPTForCausalLM", _sizes(ffn_dim=48, word_embed_proj_dim=32)
    ),
    Architecture("decoder", "PhiForCausalLM", _sizes()),
    Architecture("decoder", "BioGptForCausalLM", _sizes()),
    Architecture(
        "decoder",
        "CodeGenForCausalLM",
        _sizes(n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
    ),
    Architecture(
        "decoder",
        "XGLMForCausalLM",
        _sizes(d_model=32, ffn_dim=48, num_layers=2, attention_heads=4),
    ),
    Architecture("decoder", "PersimmonForCausalLM", _sizes()),
    Architecture(
        "decoder",
        "DeepseekV2ForCausalLM",
        _sizes(
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
        {**sizes, "_experts_implementation": way},
        note=way,
    )
    for model, way, sizes in (
        ("MixtralForCausalLM", "batched_mm", _experts()),
        ("Qwen3MoeForCausalLM", "batched_mm", _experts()),
        (
            "Qwen2MoeForCausalLM",
            "batched_mm",
            _experts(shared_expert_intermediate_size=16),
        ),
        ("GptOssForCausalLM", "batched_mm", _experts(intermediate_size=16)),
        ("OlmoeForCausalLM", "batched_mm", _experts()),
        (
            "DeepseekV3ForCausalLM",
            "batched_mm",
            _sizes(
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
        ("MixtralForCausalLM", "grouped_mm", _experts()),
        ("Qwen3MoeForCausalLM", "grouped_mm", _experts()),
    )
)

STATE = (
    Architecture(
        "state space",
        "MambaForCausalLM",
        _sizes(state_size=4, conv_kernel=3, time_step_rank=4),
        UNMASKED,
    ),
    Architecture(
        "state space",
        "Mamba2ForCausalLM",
        _sizes(
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
        _sizes(attention_hidden_size=32, context_length=32, rescale_every=0),
        UNMASKED,
    ),
    Architecture(
        "state space",
        "FalconMambaForCausalLM",
        _sizes(state_size=4, conv_kernel=3, time_step_rank=4),
        UNMASKED,
    ),
    Architecture(
        "state space",
        "RecurrentGemmaForCausalLM",
        _grouped(
            lru_width=32,
            attention_window_size=8,
            block_types=("recurrent", "attention"),
        ),
    ),
    Architecture(
        "state space",
        "BambaForCausalLM",
        _grouped(
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
        _grouped(layer_types=["conv", "full_attention"]),
    ),
)

ENCODERS = (
    Architecture("encoder", "BertModel", _sizes()),
    Architecture("encoder", "RobertaModel", _sizes(type_vocab_size=1)),
    Architecture(
        "encoder",
        "DistilBertModel",
        _sizes(dim=32, n_layers=2, n_heads=4, hidden_dim=48),
    ),
    Architecture("encoder", "ElectraModel", _sizes(embedding_size=16)),
    Architecture("encoder", "AlbertModel", _sizes(embedding_size=16)),
    Architecture(
        "encoder",
        "DebertaModel",
        _sizes(relative_attention=True, pos_att_type=["c2p", "p2c"]),
    ),
    Architecture(
        "encoder",
        "DebertaV2Model",
        _sizes(
            relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8
        ),
    ),
    Architecture("encoder", "MPNetModel", _sizes()),
    Architecture(
        "encoder",
        "ModernBertModel",
        _sizes(cls_token_id=1, sep_token_id=2, local_attention=4),
    ),
    Architecture("encoder", "XLMRobertaModel", _sizes(type_vocab_size=1)),
    Architecture(
        "encoder",
        "XLNetModel",
        {"vocab_size": WORDS, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
    ),
    Architecture("encoder", "FNetModel", _sizes(), UNMASKED),
    Architecture("encoder", "RoFormerModel", _sizes(embedding_size=32)),
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
        "encoder", "ConvBertModel", _sizes(embedding_size=32, conv_kernel_size=3)
    ),
    Architecture("encoder", "SqueezeBertModel", _sizes(embedding_size=32)),
    Architecture(
        "encoder",
        "MobileBertModel",
        _sizes(embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    ),
    Architecture(
        "encoder", "EsmModel", _sizes(position_embedding_type="rotary", mask_token_id=5)
    ),
    Architecture(
        "encoder", "LayoutLMModel", _sizes(max_2d_position_embeddings=64), BOXES
    ),
    Architecture(
        "encoder",
        "NystromformerModel",
        _sizes(num_landmarks=2, segment_means_seq_len=LENGTH),
    ),
    Architecture("encoder", "YosoModel", _sizes(use_expectation=True)),
    Architecture("encoder", "LongformerModel", _sizes(attention_window=[4, 4]), TOKENS),
    Architecture("encoder", "BigBirdModel", _sizes(attention_type="original_full")),
    Architecture(
        "encoder",
        "ReformerModel",
        _sizes(
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
        "encoder", "XLMModel", _sizes(emb_dim=32, n_layers=2, n_heads=4, n_words=WORDS)
    ),
)

PAIRED = (
    Architecture("encoder-decoder", "T5ForConditionalGeneration", _T5, PAIRS),
    Architecture("encoder-decoder", "MT5ForConditionalGeneration", _T5, PAIRS),
    Architecture("encoder-decoder", "BartForConditionalGeneration", _SEQ2SEQ, PAIRS),
    Architecture("encoder-decoder", "MarianMTModel", _SEQ2SEQ, PAIRS),
    Architecture("encoder-decoder", "PegasusForConditionalGeneration", _SEQ2SEQ, PAIRS),
    Architecture("encoder-decoder", "MBartForConditionalGeneration", _SEQ2SEQ, PAIRS),
    Architecture("encoder-decoder", "M2M100ForConditionalGeneration", _SEQ2SEQ, PAIRS),
    Architecture(
        "encoder-decoder",
        "LongT5ForConditionalGeneration",
        {**_T5, "local_radius": 3},
        PAIRS,
    ),
    Architecture(
        "encoder-decoder",
        "SwitchTransformersForConditionalGeneration",
        {
            **_T5,
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

VISION = (
    Architecture("vision", "ViTModel", _vision(), pixels(16)),
    Architecture("vision", "DeiTModel", _vision(), pixels(16)),
    Architecture(
        "vision", "BeitModel", _vision(use_relative_position_bias=True), pixels(16)
    ),
    Architecture("vision", "Dinov2Model", _vision(), pixels(16)),
    Architecture(
        "vision", "DINOv3ViTModel", _vision(), pixels(16), config="DINOv3ViTConfig"
    ),
    Architecture(
        "vision",
        "ConvNextModel",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
        pixels(16),
    ),
    Architecture(
        "vision",
        "ConvNextV2Model",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
        pixels(16),
    ),
    Architecture(
        "vision",
        "ResNetModel",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
        pixels(16),
    ),
    Architecture(
        "vision",
        "RegNetModel",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "groups_width": 4,
        },
        pixels(16),
    ),
    Architecture(
        "vision",
        "MobileNetV2Model",
        {"depth_multiplier": 0.25, "image_size": 32},
        pixels(32),
    ),
    Architecture(
        "vision",
        "EfficientNetModel",
        {
            "width_coefficient": 0.25,
            "depth_coefficient": 0.2,
            "image_size": 32,
            "hidden_dim": 320,
        },
        pixels(32),
    ),
    Architecture(
        "vision",
        "SwinModel",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [2, 2],
            "num_heads": [2, 2],
            "window_size": 2,
        },
        pixels(16),
    ),
    Architecture(
        "vision",
        "Swinv2Model",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [2, 2],
            "num_heads": [2, 2],
            "window_size": 2,
        },
        pixels(16),
    ),
    Architecture(
        "vision",
        "PvtModel",
        {
            "image_size": 64,
            "depths": [1] * 4,
            "hidden_sizes": [8, 8, 16, 16],
            "num_attention_heads": [1, 1, 2, 2],
        },
        pixels(64),
    ),
    Architecture(
        "vision",
        "PoolFormerModel",
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4},
        pixels(64),
    ),
    Architecture(
        "vision",
        "SegformerForSemanticSegmentation",
        {
            "hidden_sizes": [8, 8, 16, 16],
            "depths": [1] * 4,
            "num_attention_heads": [1, 1, 2, 2],
            "decoder_hidden_size": 16,
        },
        pixels(64),
    ),
    Architecture(
        "vision",
        "MobileViTModel",
        {
            "image_size": 32,
            "hidden_sizes": [16, 16, 16],
            "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 16],
            "intermediate_size": 16,
        },
        pixels(32),
    ),
    Architecture(
        "vision",
        "LevitModel",
        {
            "image_size": 32,
            "hidden_sizes": [16, 16, 16],
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "key_dim": [4, 4, 4],
            "attention_ratio": [2, 2, 2],
            "mlp_ratio": [2, 2, 2],
        },
        pixels(32),
    ),
    Architecture(
        "vision",
        "FocalNetModel",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [1, 1],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
            "hidden_sizes": [8, 16],
        },
        pixels(16),
    ),
    Architecture(
        "vision",
        "VitDetModel",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 16,
            "pretrain_image_size": 16,
            "patch_size": 4,
            "window_block_indices": [0],
            "window_size": 3,
            "use_relative_position_embeddings": True,
        },
        pixels(16),
    ),
    Architecture(
        "vision",
        "HieraModel",
        {
            "embed_dim": 16,
            "image_size": [32, 32],
            "patch_stride": [4, 4],
            "depths": [1, 1],
            "num_heads": [1, 2],
            "masked_unit_size": [4, 4],
            "num_query_pool": 1,
            "query_stride": [2, 2],
        },
        pixels(32),
    ),
    Architecture(
        "vision",
        "DPTForDepthEstimation",
        {
            **_vision(),
            "image_size": 32,
            "neck_hidden_sizes": [8, 8, 8, 8],
            "fusion_hidden_size": 8,
            "is_hybrid": False,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
        },
        pixels(32),
    ),
    Architecture(
        "vision",
        "DetrForObjectDetection",
        {
            "use_timm_backbone": False,
            "backbone_config": {
                "model_type": "resnet",
                "embedding_size": 8,
                "hidden_sizes": [8, 16],
                "depths": [1, 1],
                "out_features": ["stage2"],
            },
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "num_queries": 3,
        },
        pixels(32),
    ),
    Architecture(
        "vision",
        "YolosModel",
        _vision(
            image_size_=0, num_detection_tokens=3, use_mid_position_embeddings=False
        )
        | {"image_size": [16, 16]},
        pixels(16),
    ),
    Architecture(
        "vision",
        "VideoMAEModel",
        _vision(num_frames=4, tubelet_size=2),
        {"pixel_values": ("number", 4, 3, 16, 16)},
    ),
    Architecture(
        "vision",
        "TimesformerModel",
        _vision(num_frames=4),
        {"pixel_values": ("number", 4, 3, 16, 16)},
    ),
    Architecture(
        "vision",
        "VivitModel",
        _vision(num_frames=4, tubelet_size=[2, 4, 4]),
        {"pixel_values": ("number", 4, 3, 16, 16)},
    ),
    Architecture(
        "vision",
        "ImageGPTModel",
        _sizes(n_embd=32, n_layer=2, n_head=4, n_positions=64),
        UNMASKED,
    ),
)

AUDIO = (
    Architecture(
        "audio",
        "WhisperForConditionalGeneration",
        {
            **_SEQ2SEQ,
            "num_mel_bins": 8,
            "max_source_positions": 8,
            "max_target_positions": 16,
        },
        {"input_features": ("number", 8, 16), "decoder_input_ids": ("token", 4)},
    ),
    Architecture("audio", "Wav2Vec2Model", _SPEECH, sound(60)),
    Architecture("audio", "HubertModel", _SPEECH, sound(60)),
    Architecture(
        "audio",
        "WavLMModel",
        {**_SPEECH, "num_buckets": 8, "max_bucket_distance": 16},
        sound(60),
    ),
    Architecture("audio", "SEWModel", {**_SPEECH, "squeeze_factor": 2}, sound(60)),
    Architecture(
        "audio",
        "ASTModel",
        _sizes(
            patch_size=4,
            num_mel_bins=8,
            max_length=16,
            frequency_stride=4,
            time_stride=4,
        ),
        {"input_values": ("number", 16, 8)},
        config="ASTConfig",
    ),
    Architecture(
        "audio",
        "Speech2TextForConditionalGeneration",
        {
            **_SEQ2SEQ,
            "input_feat_per_channel": 8,
            "input_channels": 1,
            "conv_channels": 16,
            "num_conv_layers": 2,
            "max_source_positions": 32,
            "max_target_positions": 16,
        },
        {"input_features": ("number", 16, 8), "decoder_input_ids": ("token", 4)},
    ),
    Architecture(
        "audio",
        "EncodecModel",
        {
            "hidden_size": 16,
            "num_filters": 4,
            "codebook_size": 8,
            "codebook_dim": 16,
            "upsampling_ratios": [4, 2],
        },
        {"input_values": ("number", 1, 64)},
    ),
)

SEVERAL = (
    Architecture(
        "text and image",
        "CLIPModel",
        _TOWERS,
        {**TOKENS, **pixels(16)},
        call="get_text_features",
    ),
    Architecture(
        "text and image", "CLIPModel", _TOWERS, pixels(16), call="get_image_features"
    ),
    Architecture("text and image", "CLIPModel", _TOWERS, {**TOKENS, **pixels(16)}),
    Architecture(
        "text and image", "SiglipModel", _TOWERS, pixels(16), call="get_image_features"
    ),
    Architecture(
        "text and image",
        "SiglipModel",
        _TOWERS,
        {"input_ids": ("token", LENGTH), **pixels(16)},
    ),
    Architecture(
        "text and image",
        "BlipForQuestionAnswering",
        {"text_config": _text(encoder_hidden_size=32), "vision_config": _vision()},
        {**TOKENS, **pixels(16), "decoder_input_ids": ("token", 4)},
    ),
    Architecture(
        "text and image",
        "ViltModel",
        _sizes(image_size=16, patch_size=4, max_image_length=-1),
        {**TOKENS, **pixels(16)},
    ),
    Architecture(
        "text and image",
        "LxmertModel",
        _sizes(l_layers=1, x_layers=1, r_layers=1, visual_feat_dim=8),
        {**TOKENS, "visual_feats": ("number", 3, 8), "visual_pos": ("number", 3, 4)},
    ),
)

MIXING = (
    Architecture(
        "text and image",
        "GroupViTModel",
        {
            "text_config": _text(),
            "vision_config": {
                **_vision(),
                "depths": [1, 1, 1],
                "num_group_tokens": [4, 2, 0],
                "num_output_groups": [4, 2, 0],
            },
            "projection_dim": 16,
            "projection_intermediate_dim": 32,
        },
        {**TOKENS, **pixels(16)},
    ),
    Architecture(
        "text and image",
        "AltCLIPModel",
        {
            "text_config": {**_text(type_vocab_size=1), "project_dim": 32},
            "vision_config": _vision(),
            "projection_dim": 32,
        },
        {**TOKENS, **pixels(16)},
    ),
    Architecture("text and image", "Owlv2Model", _TOWERS, {**TOKENS, **pixels(16)}),
    Architecture(
        "text and image",
        "BlipModel",
        {
            "text_config": _text(encoder_hidden_size=32),
            "vision_config": _vision(),
            "projection_dim": 16,
        },
        {**TOKENS, **pixels(16)},
    ),
)

SERIES = (
    Architecture(
        "time series",
        "PatchTSTModel",
        {
            **_SERIES,
            "d_model": 16,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "ffn_dim": 24,
        },
        {"past_values": ("number", 16, 3)},
        config="PatchTSTConfig",
    ),
    Architecture(
        "time series",
        "PatchTSMixerModel",
        {**_SERIES, "d_model": 16, "num_layers": 2},
        {"past_values": ("number", 16, 3)},
        config="PatchTSMixerConfig",
    ),
    Architecture(
        "other",
        "DecisionTransformerModel",
        {
            "state_dim": 5,
            "act_dim": 2,
            "hidden_size": 32,
            "n_layer": 2,
            "n_head": 4,
            "max_ep_len": 32,
        },
        {
            "states": ("number", LENGTH, 5),
            "actions": ("number", LENGTH, 2),
            "rewards": ("number", LENGTH, 1),
            "returns_to_go": ("number", LENGTH, 1),
            "timesteps": ("token", LENGTH),
            "attention_mask": ("mask", LENGTH),
        },
    ),
    Architecture(
        "other",
        "PerceiverModel",
        {
            "d_model": 16,
            "d_latents": 32,
            "num_latents": 4,
            "num_self_attends_per_block": 1,
            "num_self_attention_heads": 4,
            "num_cross_attention_heads": 4,
        },
        {"inputs": ("number", LENGTH, 16)},
    ),
)

ARCHITECTURES = (
    *LLAMA_LIKE,
    *DECODERS,
    *EXPERTS,
    *STATE,
    *ENCODERS,
    *PAIRED,
    *VISION,
    *AUDIO,
    *SEVERAL,
    *MIXING,
    *SERIES,
)
