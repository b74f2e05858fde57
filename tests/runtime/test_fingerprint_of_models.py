import torch
from transformers import LlamaConfig, LlamaForCausalLM

from dynaflow_dsl.models.decoder import random_model
from dynaflow_dsl.runtime.fingerprint import fingerprint
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
