"""A scheduled model stays the model that it was, and is watched."""

from __future__ import annotations

import copy
import inspect
import io
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import (
    DynamicCache,
    PreTrainedModel,
    StaticCache,
    pipeline,
)

from dynaflow_dsl.integrations.step_cache import StepLayer
from dynaflow_dsl.integrations.transformers import report, schedule, scheduled
from tests.integrations.hugging_face.decoders import (
    CAPACITY,
    generate,
    model_of,
    module_of,
    prompts,
    tokenizer,
)


@pytest.fixture
def model() -> PreTrainedModel:
    return schedule(model_of(), module_of(), compile=False)


@pytest.mark.parametrize("options", [{"do_sample": False}, {"do_sample": True}])
def test_a_pipeline(options: dict[str, Any]) -> None:
    model, texts = model_of(), ["w5 w6 w7", "w9", "w11 w12 w13 w14 w15"]

    def say() -> list[str]:
        speak = pipeline("text-generation", model=model, tokenizer=tokenizer())
        torch.manual_seed(5)
        answers = speak(texts, batch_size=3, max_new_tokens=8, **options)
        return [answer[0]["generated_text"] for answer in answers]

    expected = say()
    with scheduled(model, module_of(), compile=False, strict=True):
        assert say() == expected
        assert report(model).steps["prefill"] == 1


def test_the_signature_is_that_of_the_model(model: PreTrainedModel) -> None:
    own = inspect.signature(type(model).forward).parameters
    assert list(inspect.signature(model.forward).parameters) == list(own)[1:]
    ids = prompts(2, 4, padded=False)["input_ids"]
    with torch.no_grad():
        by_place = model(ids, logits_to_keep=1).logits
        by_name = model(input_ids=ids, logits_to_keep=1).logits
    assert torch.equal(by_place, by_name)
    assert report(model).steps == {"prefill": 2}
    with pytest.raises(TypeError, match="multiple values"):
        model(ids, input_ids=ids)


def test_copies_run_by_themselves(model: PreTrainedModel) -> None:
    inputs = prompts()
    expected = generate(model, inputs)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(generate(other, inputs), expected)
        with torch.no_grad():
            other.lm_head.weight.mul_(-1.0)
            other.model.embed_tokens.weight.mul_(-1.0)
        assert not torch.equal(generate(other, inputs), expected)
        # And can be scheduled like any other.
        with scheduled(other, module_of(), compile=False, strict=True):
            generate(other, inputs)
    assert torch.equal(generate(model, inputs), expected)


def test_numbers_written_into_weights_are_seen(model: PreTrainedModel) -> None:
    inputs = prompts()
    before = generate(model, inputs)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.mul_(3.0)
    by_itself = copy.deepcopy(model)
    after = generate(model, inputs)
    assert not torch.equal(after, before)
    assert torch.equal(after, generate(by_itself, inputs))
    assert report(model).own == {}


def other_weight(model: PreTrainedModel) -> None:
    projection = model.model.layers[1].mlp.down_proj
    projection.weight = torch.nn.Parameter(3 * projection.weight, requires_grad=False)


def other_data(model: PreTrainedModel) -> None:
    projection = model.model.layers[1].mlp.down_proj
    projection.weight.data = 3 * projection.weight.data


def other_module(model: PreTrainedModel) -> None:
    model.model.layers[1].mlp.act_fn = torch.nn.ReLU()


def hook(model: PreTrainedModel) -> None:
    model.model.layers[1].mlp.register_forward_hook(lambda _, __, output: 3 * output)


def other_forward(model: PreTrainedModel) -> None:
    mlp = model.model.layers[1].mlp
    own = mlp.forward
    mlp.forward = lambda hidden: 3 * own(hidden)


def other_attention(model: PreTrainedModel) -> None:
    model.set_attn_implementation("eager")


def other_number(model: PreTrainedModel) -> None:
    model.config.rope_parameters = {**model.config.rope_parameters, "rope_theta": 10.0}


CHANGES = {
    other_weight: "`model.layers.1.mlp.down_proj.weight` was moved or replaced",
    other_data: "`model.layers.1.mlp.down_proj.weight` was moved or replaced",
    other_module: "`model.layers.1.mlp.act_fn` is another module",
    hook: "`model.layers.1.mlp` has hooks",
    other_forward: "the `forward` of `model.layers.1.mlp` was replaced",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_steps_would_not_see_is_not_passed_over(
    change: Any, model: PreTrainedModel
) -> None:
    by_itself, inputs = model_of(), prompts()
    before = generate(model, inputs)
    change(model)
    change(by_itself)
    with pytest.warns(RuntimeWarning, match=CHANGES[change]):
        after = generate(model, inputs)
    assert torch.equal(after, generate(by_itself, inputs))
    assert not torch.equal(after, before)


@pytest.fixture
def own_configuration(model: PreTrainedModel) -> Iterator[None]:
    """The tests' models share one, which is left as it was."""
    before = dict(vars(model.config))
    yield
    vars(model.config).clear()
    vars(model.config).update(before)


@pytest.mark.usefixtures("own_configuration")
@pytest.mark.parametrize(
    ("change", "said"),
    [(other_attention, "attn_implementation"), (other_number, "rope_parameters")],
)
def test_another_configuration(change: Any, said: str, model: PreTrainedModel) -> None:
    """The model's own code would read it: nobody knows what becomes of it."""
    inputs, by_itself = prompts(), model_of()
    generate(model, inputs)
    change(model)
    warned = f"`{said}` of its configuration is another than when the model was sched"
    with pytest.warns(RuntimeWarning, match=warned):
        after = generate(model, inputs)
    assert torch.equal(after, generate(by_itself, inputs))


@pytest.mark.usefixtures("own_configuration")
def test_what_a_configuration_says_of_calls(model: PreTrainedModel) -> None:
    model.config.pad_token_id = 1
    model.config.output_attentions = False
    model.config.use_cache = True
    generate(model, prompts())
    assert report(model).own == {}


def test_hidden_states_come_from_the_model_itself(model: PreTrainedModel) -> None:
    options = {"return_dict_in_generate": True, "output_hidden_states": True}
    inputs = prompts()
    own = generate(model_of(), inputs, **options)
    with pytest.warns(RuntimeWarning, match="it is called with `output_hidden_states`"):
        found = generate(model, inputs, **options)
    assert torch.equal(found.sequences, own.sequences)
    torch.testing.assert_close(found.hidden_states, own.hidden_states)
    # What the library hooks into modules for it does not hinder later steps.
    assert torch.equal(generate(model, inputs), own.sequences)
    assert report(model).steps == {"prefill": 1, "decode": 11}


def test_gradients_and_losses_come_from_the_model_itself(
    model: PreTrainedModel,
) -> None:
    ids = prompts(padded=False)["input_ids"]
    model.requires_grad_(True)
    with pytest.warns(RuntimeWarning, match="gradients are wanted"):
        model(ids, labels=ids).loss.backward()
    assert model.model.embed_tokens.weight.grad is not None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"use_cache": False}, "`use_cache` is False"),
        ({"cache_implementation": "static"}, "its cache is a StaticCache"),
        ({"output_attentions": True, "return_dict_in_generate": True}, "output_att"),
    ],
)
def test_other_ways_of_the_library(
    options: dict[str, Any], reason: str, model: PreTrainedModel
) -> None:
    inputs, by_itself = prompts(), model_of()
    # What the test is about comes before the configuration, or leaves it as it is.
    if "output_attentions" in options:
        for each in (model, by_itself):
            each.set_attn_implementation("eager")
    with pytest.warns(RuntimeWarning, match=reason):
        found = generate(model, inputs, **options)
    own = generate(by_itself, inputs, **options)
    if not isinstance(own, torch.Tensor):
        found, own = found.sequences, own.sequences
    assert torch.equal(found, own)


def test_a_static_cache_of_the_caller(model: PreTrainedModel) -> None:
    inputs = prompts()

    def cache() -> StaticCache:
        return StaticCache(config=model.config, max_cache_len=CAPACITY)

    with pytest.warns(RuntimeWarning, match="its cache is a StaticCache"):
        found = generate(model, inputs, past_key_values=cache())
    assert torch.equal(found, generate(model_of(), inputs, past_key_values=cache()))


def test_all_logits_are_the_models_own(model: PreTrainedModel) -> None:
    inputs = prompts()
    with torch.no_grad(), pytest.warns(RuntimeWarning, match="more logits are wanted"):
        found = model(**inputs).logits
    with torch.no_grad():
        assert torch.equal(found, model_of()(**inputs).logits)


def test_padding_on_the_right(model: PreTrainedModel) -> None:
    inputs = prompts()
    inputs = {name: tensor.flip(1) for name, tensor in inputs.items()}
    with pytest.warns(RuntimeWarning, match="padded on the right"):
        found = generate(model, inputs)
    assert torch.equal(found, generate(model_of(), inputs))


def test_memory_is_used_again_when_its_cache_is_gone(model: PreTrainedModel) -> None:
    """Captured steps need the cache where it was."""

    def addresses(rows: int) -> tuple[list[int], DynamicCache]:
        inputs = prompts(rows)
        options = {"return_dict_in_generate": True}
        cache = generate(model, inputs, **options).past_key_values
        assert all(type(layer) is StepLayer for layer in cache.layers)
        return [layer.keys.data_ptr() for layer in cache.layers], cache

    first, cache = addresses(5)
    other, kept = addresses(5)
    assert set(first).isdisjoint(other)
    gone = weakref.ref(cache)
    del cache
    assert gone() is None
    assert addresses(5)[0] == first
    assert addresses(3)[0] == first
    assert kept.get_seq_length() == 20
    with torch.inference_mode():
        assert addresses(8)[0] != first
    addresses(8)


def test_a_number_that_is_not_finite_does_not_outlive_its_cache(
    model: PreTrainedModel,
) -> None:
    inputs = prompts()
    expected = generate(model, inputs)
    options = {"return_dict_in_generate": True}
    cache = generate(model, inputs, **options).past_key_values
    for layer in cache.layers:
        layer.keys.fill_(torch.nan)
        layer.values.fill_(torch.inf)
    del cache, layer
    assert torch.equal(generate(model, inputs), expected)
