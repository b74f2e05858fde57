from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    CLIPConfig,
    CLIPModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from dynaflow_dsl.models.decoder import random_model
from dynaflow_dsl.runtime.fingerprint import fingerprint, first_difference
from tests.trace.specs import module

SHAPE = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def of_llama(**options: object) -> dict[str, str]:
    config = LlamaConfig(**SHAPE, **options)
    return dict(fingerprint(random_model(LlamaForCausalLM, config, meta=True)))


def test_versions_have_no_local_part() -> None:
    found = dict(fingerprint(module(lambda self, x: x)))
    assert found["torch"] == torch.__version__.partition("+")[0]
    assert found["class"] == "Model"
    plain = {name for name in found if not name.startswith("code ")}
    assert plain == {"torch", "class", "classes", "state", "tensors", "values"}


def test_the_configuration_counts_and_where_it_comes_from_does_not() -> None:
    plain = of_llama()
    assert {name for name in plain if not name.startswith("code ")} == {
        "class",
        "classes",
        "config",
        "state",
        "tensors",
        "torch",
        "transformers",
        "values",
    }
    assert of_llama(eos_token_id=7, initializer_range=0.5) == plain
    other = of_llama(rms_norm_eps=0.1)
    assert other["config"] != plain["config"]
    code = {name for name in plain if name.startswith("code ")}
    assert {
        "code modeling_llama.LlamaAttention",
        "code modeling_llama.rotate_half",
    } <= code
    assert all(other[name] == plain[name] for name in code)


def test_objects_in_a_configuration_do_not_show_their_address() -> None:
    class Config:
        def to_dict(self) -> dict[str, object]:
            return {"object": object(), "dtype": torch.float32, "list": [1, None]}

    first, second = (module(lambda self, x: x, config=Config()) for _ in range(2))
    assert fingerprint(first) == fingerprint(second)


def test_a_model_on_meta_is_the_same_model_before_and_after_it_ran() -> None:
    config = LlamaConfig(**SHAPE)
    model = random_model(LlamaForCausalLM, config)
    before = fingerprint(model)
    assert before == of_llama()
    tokens = torch.ones(1, 3, dtype=torch.int64)
    model.generate(tokens, max_new_tokens=2, do_sample=False)
    assert fingerprint(model) == before


def test_tied_weights_of_a_decoder_count() -> None:
    assert of_llama(tie_word_embeddings=True)["tensors"] != of_llama()["tensors"]


def of_llama_itself() -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()


def test_a_model_that_was_asked_for_hidden_states_is_the_same() -> None:
    model = of_llama_itself()
    before = fingerprint(model)
    model(torch.ones(1, 3, dtype=torch.int64), output_hidden_states=True)
    assert any(module._forward_hooks for module in model.modules())
    assert fingerprint(model) == before


def test_a_model_whose_checkpointing_was_on_is_the_same() -> None:
    model = of_llama_itself()
    before = fingerprint(model)
    model.gradient_checkpointing_enable()
    model.gradient_checkpointing_disable()
    assert fingerprint(model) == before


def test_a_hook_of_the_users_with_such_a_name_counts() -> None:
    model = of_llama_itself()
    before = fingerprint(model)

    def output_capturing_hook(*_: object) -> None:
        pass

    model.model.register_forward_hook(output_capturing_hook)
    assert "hooks" in str(first_difference(before, model))


def test_a_hook_around_one_that_transformers_left_counts() -> None:
    model = of_llama_itself()
    before = fingerprint(model)
    model(torch.ones(1, 3, dtype=torch.int64), output_hidden_states=True)
    layer = model.model.layers[0]
    (key, hook), *_ = layer._forward_hooks.items()

    @wraps(hook)
    def doubled(*arguments: Any) -> Any:
        hook(*arguments)
        return arguments[-1] * 2

    layer._forward_hooks[key] = doubled
    assert "hooks" in str(first_difference(before, model))


def test_a_model_with_its_weights_is_the_one_that_was_made_of_its_configuration(
    tmp_path: Path,
) -> None:
    model = of_llama_itself()
    model.save_pretrained(tmp_path)
    saved = LlamaForCausalLM.from_pretrained(tmp_path).eval()
    assert saved.config.dtype != model.config.dtype
    assert first_difference(fingerprint(model), saved) is None
    assert first_difference(fingerprint(saved), model) is None
    saved.config.rms_norm_eps = 0.5
    assert "its configuration differs" in str(
        first_difference(fingerprint(model), saved)
    )


@pytest.mark.parametrize("named", [{}, {"dtype": "float32"}])
def test_configurations_inside_of_one_may_name_the_dtype_or_not(
    tmp_path: Path, named: dict[str, str]
) -> None:
    tower = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = CLIPConfig(text_config=tower, vision_config=tower, **named)
    model = CLIPModel(config).eval()
    before = fingerprint(model)
    model.save_pretrained(tmp_path)
    saved = CLIPModel.from_pretrained(tmp_path).eval()
    assert first_difference(before, saved) is None


def test_a_configuration_with_the_dtype_of_no_tensor_is_another() -> None:
    model = of_llama_itself()
    before = fingerprint(model)
    model.config.dtype = torch.float16
    assert "its configuration differs" in str(first_difference(before, model))
