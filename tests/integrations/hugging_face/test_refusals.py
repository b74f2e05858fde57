"""What cannot be scheduled in place, and what is said of it."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    GraniteForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

import dynaflow_dsl
from dynaflow_dsl.diagnostics import DiagnosticError
from dynaflow_dsl.integrations.errors import ScheduleError
from dynaflow_dsl.integrations.making import steps_of
from dynaflow_dsl.integrations.transformers import (
    report,
    schedule,
    scheduled,
    unschedule,
)
from dynaflow_dsl.trace import TraceSpec
from tests.end_to_end.building import build
from tests.integrations.hugging_face.decoders import (
    CAPACITY,
    FAMILIES,
    file_of,
    generate,
    model_of,
    module_of,
    prompts,
    text_of,
)


def refusal(model: Any, what: Any = None, **options: Any) -> str:
    what = module_of() if what is None else what
    with pytest.raises(ScheduleError) as caught:
        schedule(model, what, compile=False, **options)
    assert caught.value.code == "DFS830"
    assert "forward" not in vars(model) if isinstance(model, PreTrainedModel) else True
    return caught.value.message


def test_models_that_are_no_decoders() -> None:
    assert refusal(torch.nn.Linear(1, 1)) == "a Linear is no model of transformers."
    spec = TraceSpec(model=model_of(), entries={})
    assert refusal(spec) == (
        "a TraceSpec is no model of transformers. Its model is `spec.model`."
    )
    small: dict[str, Any] = {"num_hidden_layers": 1, "hidden_size": 8}
    bert = BertModel(BertConfig(**small, num_attention_heads=2, vocab_size=8)).eval()
    assert "BertModel is no causal language model" in refusal(bert)
    t5 = T5ForConditionalGeneration(
        T5Config(d_model=8, d_kv=4, num_heads=2, num_layers=1, d_ff=8, vocab_size=8)
    ).eval()
    assert "T5ForConditionalGeneration is no causal" in refusal(t5)


def test_models_that_are_not_ready(tmp_path: Path) -> None:
    assert "call `model.eval()` first" in refusal(model_of().train())
    assert "is on `meta`" in refusal(model_of().to("meta"))
    flash = model_of()
    flash.config._attn_implementation = "flash_attention_2"
    assert 'load it with attn_implementation="sdpa"' in refusal(
        flash, file_of(tmp_path)
    )


def test_a_file_that_is_none(tmp_path: Path) -> None:
    model = model_of()
    with pytest.raises(DiagnosticError, match=r"DFS113.*none.dfs cannot be read"):
        schedule(model, tmp_path / "none.dfs")
    empty = tmp_path / "parts.dfs"
    empty.write_text("dfs 1\n\nparts layer:\n    part attn = .self_attn\n")
    with pytest.raises(DiagnosticError, match=r"DFS830.*parts.dfs has no schedule"):
        schedule(model, empty)


def test_a_schedule_that_does_not_fit_says_where(tmp_path: Path) -> None:
    path = tmp_path / "halves.dfs"
    path.write_text(text_of().replace(".self_attn", ".attention"))
    model = model_of()
    with pytest.raises(DiagnosticError) as caught:
        schedule(model, path)
    whole = str(caught.value)
    assert whole.startswith(
        "error[DFS201]: .attention matches no module below model.layers.0\n"
    )
    assert "halves.dfs:9:48" in whole
    assert "part attn on side = .input_layernorm + .attention" in whole
    assert "did you mean '.self_attn'?" in whole or ".self_attn" in whole
    assert "forward" not in vars(model)
    assert own_frames(caught.value) == ["called"]


def own_frames(error: BaseException) -> list[str]:
    """The functions of this package that a traceback shows."""
    assert error.__suppress_context__
    shown = traceback.extract_tb(error.__traceback__)
    package = Path(dynaflow_dsl.__file__).parent
    return [each.name for each in shown if package in Path(each.filename).parents]


def test_a_refusal_shows_no_frames_of_ours() -> None:
    for model in (model_of().train(), model_of().to("meta")):
        with pytest.raises(ScheduleError) as caught:
            schedule(model, module_of())
        assert own_frames(caught.value) == ["called"]
    scheduled_model = schedule(model_of(), module_of(), compile=False, strict=True)
    with pytest.raises(ScheduleError) as caught:
        scheduled_model(torch.ones(1, 2, dtype=torch.int64), output_attentions=True)
    assert own_frames(caught.value) == ["called"]


def test_twice() -> None:
    model = schedule(model_of(), module_of(), compile=False)
    with pytest.raises(ScheduleError, match="is scheduled already: call `unschedule`"):
        schedule(model, module_of())
    with (
        pytest.raises(ScheduleError, match="is scheduled already"),
        scheduled(model, module_of()),
    ):
        pass
    # It runs on as it did.
    generate(model, prompts())
    assert report(model).steps == {"prefill": 1, "decode": 11}
    unschedule(model)
    for function in (unschedule, report):
        with pytest.raises(ScheduleError, match="GraniteForCausalLM is not scheduled"):
            function(model)


def test_a_forward_that_somebody_replaced() -> None:
    model = model_of()
    model.forward = lambda *_, **__: None
    with pytest.raises(
        ScheduleError, match="something else has replaced the `forward`"
    ):
        schedule(model, module_of())
    assert model.forward() is None


def test_leaving_does_not_take_what_was_put_there_since() -> None:
    model = model_of()
    with scheduled(model, module_of(), compile=False):
        unschedule(model)
    assert "forward" not in vars(model)
    with (
        pytest.raises(ZeroDivisionError),
        scheduled(model, module_of(), compile=False),
    ):
        raise ZeroDivisionError
    assert "forward" not in vars(model)


def test_modules_of_other_steps(tmp_path: Path) -> None:
    model = model_of()
    assert (
        refusal(model, ModuleType("mine")) == "mine is no module that dfsc generated."
    )
    from dynaflow_dsl.models import bert

    text = (
        "dfs 1\n\nschedule whole:\n    part all = .encoder\n\n    order:\n        all\n"
    )
    made = build(bert.encode(layers=1), text, tmp_path)
    assert "whole.py has the entry `encode` with the inputs" in refusal(
        model, made.module
    )


def test_two_schedules_and_nothing_that_chooses(tmp_path: Path) -> None:
    path = file_of(tmp_path)
    again = text_of().removeprefix("dfs 1\n").replace("halves:", "others:")
    path.write_text(text_of() + again)
    with pytest.raises(DiagnosticError, match="DFS830") as caught:
        schedule(model_of(), path, folder=tmp_path)
    said = str(caught.value)
    assert "halves.dfs has 2 schedules, and nothing chooses between them" in said
    assert "schedule others:" in said
    assert "let a `select` choose between them" in said


class Other(GraniteForCausalLM):
    """Positions of its own, which go by the form of the mask."""

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        position_ids: Any = None,
        past_key_values: Any = None,
        **options: Any,
    ) -> Any:
        held = 0 if past_key_values is None else past_key_values.get_seq_length()
        place = torch.arange(input_ids.shape[1]) + held
        return super().forward(
            input_ids,
            attention_mask,
            place[None]
            * (1 + (attention_mask is not None and attention_mask.ndim > 2)),
            past_key_values,
            **options,
        )


@pytest.mark.parametrize("form", ["module", "file"])
def test_a_decoder_that_is_called_in_another_way(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its positions depend on the form of its mask; nothing is compiled for it."""
    _, config = FAMILIES["granite"]
    torch.manual_seed(0)
    model = Other(config).eval()
    model.config._attn_implementation = "sdpa"
    what = module_of() if form == "module" else file_of(tmp_path)

    def compiled(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("dynaflow_dsl.integrations.making.trace", compiled)
    message = refusal(model, what, check="none")
    assert message.startswith(
        "Other is called in another way than the adapter of decoders calls it: after a "
        "padded prompt its logits differ by"
    )


@pytest.mark.parametrize("kind", [ValueError, TypeError, RuntimeError])
def test_a_decoder_whose_code_fails_when_it_is_called_so(
    kind: type[Exception], tmp_path: Path
) -> None:
    """As Falcon's with alibi does, which takes masks of two dimensions alone."""

    class Flat(GraniteForCausalLM):
        def forward(
            self, attention_mask: Any = None, position_ids: Any = None, **options: Any
        ) -> Any:
            if attention_mask is not None and attention_mask.ndim > 2:
                raise kind("too many values to unpack (expected 2)\nand more")
            return super().forward(
                attention_mask=attention_mask, position_ids=position_ids, **options
            )

    _, config = FAMILIES["granite"]
    model = Flat(config).eval()
    model.config._attn_implementation = "sdpa"
    message = refusal(model, file_of(tmp_path))
    assert message.startswith(
        "Flat cannot be called as the adapter calls decoders: it raises "
        f"{kind.__name__}: too many values to unpack (expected 2) (at "
    )
    assert "tests/integrations/hugging_face/test_refusals.py:" in message


def test_strict_refuses_what_is_no_step() -> None:
    model, inputs = model_of(), prompts()
    schedule(model, module_of(), compile=False, strict=True)
    with pytest.raises(ScheduleError) as caught:
        generate(model, inputs, use_cache=False)
    assert caught.value.code == "DFS831"
    assert caught.value.message == (
        "this call of GraniteForCausalLM cannot run scheduled: `use_cache` is False."
    )
    with pytest.raises(ScheduleError, match=r"DFS831.*needs more than the 48 places"):
        generate(model, inputs, max_new_tokens=60, eos_token_id=None)
    assert report(model).own == {}


def test_options_are_checked() -> None:
    with pytest.raises(TypeError, match="capcity"):
        schedule(model_of(), module_of(), capcity=CAPACITY)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"capacity": "32"},
            "`capacity` is '32'; it must be a whole number of places, such as "
            "capacity=256.",
        ),
        (
            {"capacity": 0},
            "`capacity` is 0; it must be a whole number of places, such as "
            "capacity=256.",
        ),
        (
            {"sequence": True},
            "`sequence` is True; it must be a whole number of tokens, such as "
            "sequence=64.",
        ),
        (
            {"parameters": ["ways=3"]},
            "`parameters` is ['ways=3']; it must be a dictionary of numbers, texts and "
            'truth values, such as {"ways": 3}.',
        ),
        (
            {"facts": {"tp_size": [2]}},
            "`facts` is {'tp_size': [2]}; it must be a dictionary of numbers, texts "
            'and truth values, such as {"tp_size": 2}.',
        ),
        ({"folder": 3}, "`folder` is 3; it must be the path of a folder."),
        ({"write": 1}, "`write` is 1; it must be True or False."),
        ({"compile": None}, "`compile` is None; it must be True or False."),
        (
            {"check": "slow"},
            "`check` is 'slow'; it must be one of 'quick', 'full', 'none'.",
        ),
    ],
)
def test_arguments_of_another_kind(options: Any, said: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        schedule(model_of(), module_of(), **options)
    assert (caught.value.code, caught.value.message) == ("DFS830", said)
    with pytest.raises(ScheduleError, match=r"the path of a \.dfs file, or a gen"):
        schedule(model_of(), 3, **options)  # type: ignore[arg-type]


def test_parameters_are_values_or_their_texts(tmp_path: Path) -> None:
    text = text_of("granite").replace("halves:", "halves(ways = 2):", 1)
    file = tmp_path / "ways.dfs"
    file.write_text(text.replace("into 2", "into ways"))
    for ways in (3, "3"):
        model = model_of()
        options: Any = {"capacity": CAPACITY, "compile": False}
        with scheduled(model, file, parameters={"ways": ways}, **options):
            steps = vars(model)["forward"].steps
            assert steps["decode"].split.weights == (1, 1, 1)


def test_a_capacity_beyond_the_positions(tmp_path: Path) -> None:
    message = refusal(model_of(), file_of(tmp_path), capacity=65)
    assert "capacity is 65, but the model has positions for 64 tokens" in message


def test_other_caches_than_the_module_has() -> None:
    """A cache of another scheduled model, or one that has grown."""
    model, inputs = model_of(), prompts()
    options = {"return_dict_in_generate": True, "max_new_tokens": 2}
    with scheduled(model, module_of(capacity=32), compile=False):
        short = generate(model, inputs, **options)
    longer = {
        "input_ids": short.sequences,
        "attention_mask": torch.cat(
            [inputs["attention_mask"], torch.ones(5, 2, dtype=torch.int64)], 1
        ),
    }
    expected = generate(model, longer, max_new_tokens=4)
    cache = short.past_key_values
    with (
        scheduled(model, module_of(), compile=False),
        pytest.warns(RuntimeWarning, match="a cache of 32 places"),
    ):
        found = generate(model, longer, past_key_values=cache, max_new_tokens=4)
    assert torch.equal(found, expected)


def test_rows_that_come_and_go() -> None:
    model, inputs = model_of(), prompts(padded=False)
    with scheduled(model, module_of(), compile=False), torch.no_grad():
        first = model(**inputs, logits_to_keep=1)
        cache = first.past_key_values
        cache.batch_repeat_interleave(2)
        twice = model(
            first.logits.argmax(-1).repeat_interleave(2, 0), past_key_values=cache
        )
        torch.testing.assert_close(twice.logits[0], twice.logits[1])
        cache.batch_select_indices(torch.tensor([0, 2]))
        tokens = twice.logits.argmax(-1)[[0, 2]]
        chosen = model(tokens, past_key_values=cache)
        assert report(model).steps == {"prefill": 1, "decode": 2}
        cache.reset()
        again = model(
            input_ids=inputs["input_ids"][:2],
            past_key_values=cache,
            logits_to_keep=1,
        )
        torch.testing.assert_close(again.logits, first.logits[:2])
        with (
            pytest.warns(RuntimeWarning, match="the cache has 2 rows, and the call 5"),
            pytest.raises(RuntimeError),
        ):
            model(**inputs, past_key_values=cache, logits_to_keep=1)
    assert chosen.logits.shape[0] == 2


def test_a_module_with_two_steps_for_one_entry() -> None:
    loaded = SimpleNamespace(
        first=SimpleNamespace(entry="decode"), second=SimpleNamespace(entry="decode")
    )
    with pytest.raises(ScheduleError, match="several schedules for the entry `decode`"):
        steps_of(loaded, "two.py")
