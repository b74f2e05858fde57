"""Models that have no target here, traced by hand as a user would, in three pieces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from dynaflow_dsl.trace import Entry, TraceSpec
from tests.end_to_end.building import build, run_verify

SCHEDULE = """dfs 1

schedule pieces:
    stream side

    split batch into [3, 2, 2] as piece

    each layer in {layers}:
        part first on side = {first}
        part second = {second}

        stagger piece by 1:
            first
            second
"""

TEXT = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}


@dataclass(frozen=True)
class Case:
    """A model of the library: its class, configuration, and one cut of its layers."""

    model: str
    config: dict[str, Any]
    layers: str
    first: str
    second: str = "rest"


POSITIONS = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
TEXTS = (
    Case(
        "FalconForCausalLM",
        {"alibi": True},
        ".transformer.h.*",
        ".input_layernorm + .self_attention",
    ),
    Case(
        "BloomForCausalLM",
        {"n_layer": 2, "n_head": 4},
        ".transformer.h.*",
        ".input_layernorm + .self_attention",
    ),
    Case(
        "OPTForCausalLM",
        {"ffn_dim": 48, "word_embed_proj_dim": 32},
        ".model.decoder.layers.*",
        ".self_attn_layer_norm + .self_attn",
    ),
    Case(
        "GPTNeoForCausalLM",
        {
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 5,
        },
        ".transformer.h.*",
        ".ln_1 + .attn",
    ),
    Case(
        "MptForCausalLM",
        {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
        ".transformer.blocks.*",
        ".norm_1 + .attn",
    ),
    # Attention and MLP read one norm.
    Case(
        "PhiForCausalLM",
        {},
        ".model.layers.*",
        ".input_layernorm + .self_attn",
        ".mlp",
    ),
    Case(
        "DistilBertModel",
        {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
        ".transformer.layer.*",
        ".attention + .sa_layer_norm",
    ),
    Case("ElectraModel", {"embedding_size": 16}, ".encoder.layer.*", ".attention"),
    Case("DebertaModel", POSITIONS, ".encoder.layer.*", ".attention"),
    Case("DebertaV2Model", POSITIONS, ".encoder.layer.*", ".attention"),
    Case(
        "ModernBertModel",
        {"local_attention": 4, "global_attn_every_n_layers": 2},
        ".layers.*",
        ".attn_norm + .attn",
    ),
)
IMAGES = (
    Case(
        "Dinov2Model",
        {**IMAGE, "mlp_ratio": 2},
        ".encoder.layer.*",
        ".norm1 + .attention + .layer_scale1",
    ),
    Case("SiglipVisionModel", IMAGE, ".encoder.layers.*", ".layer_norm1 + .self_attn"),
    Case("BeitModel", IMAGE, ".layers.*", ".layernorm_before + .attention"),
    # Windows of the image are folded into the batch, and out again.
    Case(
        "SwinModel",
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        ".encoder.layers.*",
        ".blocks.0",
    ),
    Case(
        "ResNetModel",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16],
            "depths": [2, 2],
            "layer_type": "basic",
        },
        ".encoder.stages.*.layers.*",
        ".layer.0",
    ),
)


class Texts(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.options = (
            {"use_cache": False} if "CausalLM" in type(model).__name__ else {}
        )

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        result: torch.Tensor = self.model(
            input_ids=input_ids, attention_mask=attention_mask, **self.options
        )[0]
        return result


class Images(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(pixel_values=pixel_values)[0]
        return result


def text_arguments(rows: int) -> tuple[torch.Tensor, ...]:
    lengths = torch.randint(1, 10, (rows, 1))
    return torch.randint(3, 96, (rows, 9)), (torch.arange(9)[None] < lengths).long()


def image_arguments(rows: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(rows, 3, 32, 32),)


def spec_of(case: Case) -> TraceSpec:
    model_class = getattr(transformers, case.model)
    texts = case in TEXTS
    sizes = {**TEXT, **case.config} if texts else case.config
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**sizes)).eval()
    arguments = text_arguments if texts else image_arguments
    dims: dict[str, tuple[str | None, ...]] = (
        {"input_ids": ("batch", None), "attention_mask": ("batch", None)}
        if texts
        else {"pixel_values": ("batch", None, None, None)}
    )
    return TraceSpec(
        model=model,
        adapter=Texts if texts else Images,
        root="model",
        entries={"forward": Entry(lambda sizes: arguments(sizes["batch"]))},
        dims=dims,
        dimensions={"batch": (1, None)},
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", [*TEXTS, *IMAGES], ids=lambda case: case.model)
def test_three_pieces_of_a_model_that_nobody_prepared(
    case: Case, tmp_path: Path
) -> None:
    text = SCHEDULE.format(layers=case.layers, first=case.first, second=case.second)
    made = build(spec_of(case), text, tmp_path)
    for report in run_verify(made, batches=(1, 5, 7)):
        assert report.ok, str(report)
