"""Models of images, sound, several of them, and time series."""

from __future__ import annotations

from benchmarks.architecture_model import (
    LENGTH,
    SEQ2SEQ,
    SERIES_SIZES,
    SPEECH,
    TOKENS,
    TOWERS,
    UNMASKED,
    Architecture,
    pixels,
    sizes,
    sound,
    text,
    vision,
)

VISION = (
    Architecture("vision", "ViTModel", vision(), pixels(16)),
    Architecture("vision", "DeiTModel", vision(), pixels(16)),
    Architecture(
        "vision", "BeitModel", vision(use_relative_position_bias=True), pixels(16)
    ),
    Architecture("vision", "Dinov2Model", vision(), pixels(16)),
    Architecture(
        "vision", "DINOv3ViTModel", vision(), pixels(16), config="DINOv3ViTConfig"
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
            **vision(),
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
        vision(image_size_=0, num_detection_tokens=3, use_mid_position_embeddings=False)
        | {"image_size": [16, 16]},
        pixels(16),
    ),
    Architecture(
        "vision",
        "VideoMAEModel",
        vision(num_frames=4, tubelet_size=2),
        {"pixel_values": ("number", 4, 3, 16, 16)},
    ),
    Architecture(
        "vision",
        "TimesformerModel",
        vision(num_frames=4),
        {"pixel_values": ("number", 4, 3, 16, 16)},
    ),
    Architecture(
        "vision",
        "VivitModel",
        vision(num_frames=4, tubelet_size=[2, 4, 4]),
        {"pixel_values": ("number", 4, 3, 16, 16)},
    ),
    Architecture(
        "vision",
        "ImageGPTModel",
        sizes(n_embd=32, n_layer=2, n_head=4, n_positions=64),
        UNMASKED,
    ),
)

AUDIO = (
    Architecture(
        "audio",
        "WhisperForConditionalGeneration",
        {
            **SEQ2SEQ,
            "num_mel_bins": 8,
            "max_source_positions": 8,
            "max_target_positions": 16,
        },
        {"input_features": ("number", 8, 16), "decoder_input_ids": ("token", 4)},
    ),
    Architecture("audio", "Wav2Vec2Model", SPEECH, sound(60)),
    Architecture("audio", "HubertModel", SPEECH, sound(60)),
    Architecture(
        "audio",
        "WavLMModel",
        {**SPEECH, "num_buckets": 8, "max_bucket_distance": 16},
        sound(60),
    ),
    Architecture("audio", "SEWModel", {**SPEECH, "squeeze_factor": 2}, sound(60)),
    Architecture(
        "audio",
        "ASTModel",
        sizes(
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
            **SEQ2SEQ,
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
        TOWERS,
        {**TOKENS, **pixels(16)},
        call="get_text_features",
    ),
    Architecture(
        "text and image", "CLIPModel", TOWERS, pixels(16), call="get_image_features"
    ),
    Architecture("text and image", "CLIPModel", TOWERS, {**TOKENS, **pixels(16)}),
    Architecture(
        "text and image", "SiglipModel", TOWERS, pixels(16), call="get_image_features"
    ),
    Architecture(
        "text and image",
        "SiglipModel",
        TOWERS,
        {"input_ids": ("token", LENGTH), **pixels(16)},
    ),
    Architecture(
        "text and image",
        "BlipForQuestionAnswering",
        {"text_config": text(encoder_hidden_size=32), "vision_config": vision()},
        {**TOKENS, **pixels(16), "decoder_input_ids": ("token", 4)},
    ),
    Architecture(
        "text and image",
        "ViltModel",
        sizes(image_size=16, patch_size=4, max_image_length=-1),
        {**TOKENS, **pixels(16)},
    ),
    Architecture(
        "text and image",
        "LxmertModel",
        sizes(l_layers=1, x_layers=1, r_layers=1, visual_feat_dim=8),
        {**TOKENS, "visual_feats": ("number", 3, 8), "visual_pos": ("number", 3, 4)},
    ),
)

MIXING = (
    Architecture(
        "text and image",
        "GroupViTModel",
        {
            "text_config": text(),
            "vision_config": {
                **vision(),
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
            "text_config": {**text(type_vocab_size=1), "project_dim": 32},
            "vision_config": vision(),
            "projection_dim": 32,
        },
        {**TOKENS, **pixels(16)},
    ),
    Architecture("text and image", "Owlv2Model", TOWERS, {**TOKENS, **pixels(16)}),
    Architecture(
        "text and image",
        "BlipModel",
        {
            "text_config": text(encoder_hidden_size=32),
            "vision_config": vision(),
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
            **SERIES_SIZES,
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
        {**SERIES_SIZES, "d_model": 16, "num_layers": 2},
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
