"""Parts that run through kernels: what is matched, what is refused, what runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from dynaflow_dsl import pipeline
from dynaflow_dsl.cli.main import run
from dynaflow_dsl.diagnostics import Diagnostic, render
from dynaflow_dsl.runtime import LoadError, RuntimeFault
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace.kernels import KernelReader
from tests.emit.formatting import formatted
from tests.emit.models import llama_spec, llama_traced
from tests.end_to_end.building import Built, build, run_verify
from tests.runtime.fake_graphs import FakeGraphs

PLACE = "tests.end_to_end.norm_kernels"
SCHEDULE = """dfs 1

kernel joined = "{target}" {options}

schedule woven:
    stream side
    split batch into 2 as half
    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part join{on} via joined{arguments} = {selector}
        part mlp = rest
        {timeline}
"""
STAGGER = """stagger half by 1:
            attn
            join
            mlp"""
APART = """order:
            attn
            join
            mlp"""
ALONE = APART.replace("join", "join[0] after attn[1]\n            join[1]")


def text(
    name: str,
    arguments: str = "",
    *,
    selector: str = ".post_attention_layernorm",
    options: str = "",
    timeline: str = STAGGER,
    on: str = "",
) -> str:
    return SCHEDULE.format(
        target=name if ":" in name else f"{PLACE}:{name}",
        arguments=arguments,
        selector=selector,
        options=options,
        timeline=timeline,
        on=on,
    )


def findings(written: str) -> tuple[Diagnostic, ...]:
    file = pipeline.understand(Source("woven.dfs", written)).unwrap()
    reader = KernelReader("cpu", torch.float32)
    return pipeline.check_schedules(file, llama_traced()[1], None, reader).diagnostics


def only_message(written: str) -> str:
    found = dict.fromkeys(findings(written))
    assert len(found) == 1, render(found)
    return render(found)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("kernels")
    return build(llama_spec(2), text("fused", "(lanes = 4)"), folder)


def test_the_module_calls_the_kernel(built: Built) -> None:
    module = built.compiled.text.partition("class WovenPrefill")[2]
    assert f"from {PLACE} import fused as joined" in built.compiled.text
    assert "self.join_kernel(" in module.partition("def sequential")[0]
    assert "self.join_kernel(" not in module.partition("def sequential")[2]
    called = " ".join(module.partition("def woven_decode_join_kernel(")[2].split())
    assert (
        "return joined( residual=hidden, update=attn, "
        "weight=w.post_attention_layernorm, eps=1e-06, lanes=4, )"
    ) in called
    (kernel,) = json.loads(built.compiled.map)["kernels"].values()
    assert kernel["parts"] == ["join"]
    assert kernel["symmetric_memory"] is False
    assert formatted(built.compiled.text) == built.compiled.text


def test_results_agree_with_the_model(built: Built) -> None:
    for report in run_verify(built, batches=(1, 2, 5)):
        assert report.ok, str(report)
        (trial,) = report.kernels
        # Two layers and two pieces, in the two steps that are not sequential.
        assert trial.calls == 8
        assert 0 < trial.largest < 1e-5
        assert "through kernel joined: 8 calls equal" in str(report)


def test_a_kernel_of_which_only_the_reference_runs(tmp_path: Path) -> None:
    """That it equals the part's text says nothing of the kernel."""
    built = build(llama_spec(2), text("on_devices"), tmp_path)
    said = "through kernel joined: never ran here, so not compared: its reference did"
    for report in run_verify(built, batches=(4,)):
        assert report.ok, str(report)
        assert f"{said}, in all 4 calls" in str(report)


def test_a_kernel_that_runs_in_some_calls(tmp_path: Path) -> None:
    built = build(llama_spec(2), text("of_two_rows"), tmp_path)
    for report in run_verify(built, batches=(4, 6)):
        assert report.ok, str(report)
        (trial,) = report.kernels
        assert (trial.calls, trial.by_reference) == (8, 4)
        assert "joined: 4 calls equal to its text within tolerance" in str(report)
        assert "; 4 more ran its reference" in str(report)


def test_other_orders_match(tmp_path: Path) -> None:
    built = build(llama_spec(2), text("turned"), tmp_path)
    assert "result_0, result_1 = joined(" in built.compiled.text
    assert "return result_1, result_0" in built.compiled.text
    assert all(report.ok for report in run_verify(built, batches=(4,)))


@pytest.mark.parametrize("name", ["wrong", "aliasing"])
def test_numbers_and_memory_show_a_wrong_kernel(name: str, tmp_path: Path) -> None:
    built = build(llama_spec(2), text(name), tmp_path)
    reports = run_verify(built, batches=(4,))
    assert not any(report.ok for report in reports)
    problem = {
        "wrong": "result 1 differs by",
        "aliasing": "result 0 shares memory with an argument",
    }[name]
    assert all(problem in str(report) for report in reports)


@pytest.mark.slow
def test_other_parts_are_compiled(built: Built, tmp_path: Path) -> None:
    (report, _) = run_verify(built, batches=(4,), compiled=True, cache=tmp_path)
    assert report.ok, str(report)


def test_a_changed_kernel_is_refused_when_it_is_loaded(built: Built) -> None:
    path = built.folder / f"{built.compiled.name}.map.json"
    document = json.loads(built.compiled.map)
    document["kernels"]["joined"]["digest"] = "0" * 12
    path.write_text(json.dumps(document))
    try:
        with pytest.raises(LoadError, match="source of the kernel `joined`"):
            built.module.load(built.spec.model, compile=False)
        built.module.load(built.spec.model, compile=False, check="none")
    finally:
        path.write_text(built.compiled.map)


def test_a_kernel_without_effects_runs_alone(tmp_path: Path) -> None:
    for written in (text("undeclared"), text("undeclared", timeline=APART)):
        message = only_message(written)
        assert "error[DFS404]: kernel 'joined' declares no effects" in message
        assert "and attn[1] may run beside it" in message
    built = build(llama_spec(2), text("undeclared", timeline=ALONE), tmp_path)
    assert all(report.ok for report in run_verify(built, batches=(4,)))


def test_another_reference_is_refused_with_the_first_difference() -> None:
    message = only_message(text("other_variance"))
    assert "error[DFS401]: part join is not what kernel 'joined' stands for" in message
    assert "note: the part runs aten.pow.Tensor_Scalar" in message
    assert "note: the reference runs aten.abs.default" in message


def test_a_part_with_more_than_the_kernel_is_refused() -> None:
    message = only_message(
        text(
            "fused", "(lanes = 4)", selector=".post_attention_layernorm + .mlp.up_proj"
        )
    )
    assert "note: the part reads 4 tensors from outside" in message
    assert "note: the reference takes 3 tensors" in message


@pytest.mark.parametrize(
    ("name", "arguments", "code", "said"),
    [
        ("missing", "", "DFS402", f"'{PLACE}' has no 'missing'"),
        ("plain", "", "DFS402", "is a function, without a reference"),
        ("no.such.place:fused", "", "DFS402", "importing 'no.such.place' raised"),
        ("no_eps", "", "DFS401", "has no parameter 'eps', which its reference has"),
        ("fused", "(lane = 4)", "DFS401", "has no option 'lane'"),
        ("fused", "(weight = 4)", "DFS401", "has no option 'weight'"),
        ("fused", '(eps = "x")', "DFS401", "is of type float, and this is a text"),
        ("fused", "(eps = 0.5)", "DFS401", "is not what kernel 'joined' stands for"),
        ("says_it_writes", "", "DFS401", "writes 'residual', and its reference"),
        (
            "names_nothing",
            "",
            "DFS401",
            "'mutates' of kernel 'joined' names no 'resid'",
        ),
        ("reference_writes", "", "DFS401", "the reference does so 1 times"),
    ],
)
def test_what_is_refused(name: str, arguments: str, code: str, said: str) -> None:
    found = findings(text(name, arguments))
    assert {each.code for each in found} == {code}
    assert said in render(dict.fromkeys(found))


def test_a_given_constant_is_bound_first(tmp_path: Path) -> None:
    build(llama_spec(2), text("turned", "(eps = 0.000001)"), tmp_path)
    assert findings(text("turned", "(eps = 0.5)"))


def test_symmetric_memory_is_kept_and_refused_where_it_would_act() -> None:
    from dynaflow_dsl.bind.via import unmet_needs

    written = text("turned", options="(symmetric_memory = true)")
    assert findings(written) == ()
    file = pipeline.understand(Source("woven.dfs", written)).unwrap()
    via = file.schedules[0].parts[1].via
    assert via is not None
    assert via.kernel.symmetric_memory
    (refused,) = unmet_needs(via, "cuda")
    assert refused.code == "DFS403"
    assert list(unmet_needs(via, "cpu")) == []


def test_checking_imports_no_kernel() -> None:
    file = pipeline.understand(Source("woven.dfs", text("no.such.place:x"))).unwrap()
    assert pipeline.check_schedules(file, llama_traced()[1]).ok


TRUSTED = "(trusted = true)"


def test_a_trusted_kernel_binds_by_name(tmp_path: Path) -> None:
    written = text("by_name", "(eps = 0.000001)", options=TRUSTED)
    built = build(llama_spec(2), written, tmp_path)
    module = built.compiled.text
    assert "Trusted: tensors are bound by name." in module
    assert "trusted=True" in module
    assert "post_attention_layernorm=w.post_attention_layernorm" in module
    for report in run_verify(built, batches=(4,)):
        assert report.ok, str(report)
        assert report.kernels[0].ok


def test_a_trusted_kernel_may_have_the_name_of_a_tensor(tmp_path: Path) -> None:
    written = text("by_name", options=TRUSTED).replace("joined", "hidden")
    built = build(llama_spec(2), written, tmp_path)
    assert "join(w, hidden, attn):" in built.compiled.text
    assert "hidden=hidden_2" in built.compiled.text
    for report in run_verify(built, batches=(4,)):
        assert report.ok, str(report)


def test_a_trusted_kernel_is_compared_in_the_first_step(tmp_path: Path) -> None:
    built = build(llama_spec(2), text("by_name_wrong", options=TRUSTED), tmp_path)
    step = built.module.load(built.spec.model, compile=False).decode
    given = built.spec.entries["decode"].arguments({"batch": 4})
    with pytest.raises(
        RuntimeFault, match="DFS806: the trusted kernel `joined`"
    ) as say:
        step(*given)
    assert any("join[0]" in note for note in say.value.__notes__)


@pytest.mark.parametrize("how", [("--stress", "1"), ()])
def test_commands_say_where_a_trusted_kernel_differs(
    how: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = '\nmodel "dynaflow_dsl.models.llama:decode" (layers = 2)\n\nkernel joined'
    written = text("by_name_wrong", options=TRUSTED).replace("\nkernel joined", model)
    (tmp_path / "woven.dfs").write_text(written, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run(["verify", "woven.dfs", "--text-only", "--batch", "4", *how]) == (
        2 if how else 1
    )
    captured = capsys.readouterr()
    said = captured.out + captured.err
    assert ("DFS806" in said) == bool(how)
    assert re.search(r"in join\[0\], layer 0 .+woven\.dfs:\d+:\d+", said)


def test_verify_finds_the_step_of_a_wrong_trusted_kernel(tmp_path: Path) -> None:
    for name, options in (("by_name_wrong", TRUSTED), ("wrong", "")):
        folder = tmp_path / name
        folder.mkdir()
        built = build(llama_spec(2), text(name, options=options), folder)
        for report in run_verify(built, batches=(4,)):
            assert not report.ok
            (trial,) = report.kernels
            assert trial.calls == 4
            place = r"join\[0\], layer 0 \(test\.dfs:\d+:\d+\)"
            assert trial.place is not None
            assert re.fullmatch(place, trial.place), trial.place
            assert re.search(f"NOT equal to its text in {place}: result", str(report))
            # The step went on, and shows what the kernel did to it.
            assert report.failures == ()
            assert any(not one.ok for one in report.comparisons)
            assert report.recordings


@pytest.mark.slow
def test_parts_beside_a_kernel_are_compiled_for_captured_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = "split batch into 2 as half"
    static = text("by_name", options=TRUSTED).replace(
        split, f"{split}\n    capture batch at [4] (static = true)"
    )
    built = build(llama_spec(2), static, tmp_path)
    backend = FakeGraphs()
    monkeypatch.setattr("dynaflow_dsl.runtime.load.make_graphs", lambda *_: backend)
    step = built.module.load(built.spec.model, cache=tmp_path).decode
    plain = built.module.load(built.spec.model, compile=False, capture=False).decode
    results = []
    for each in (step, plain):
        torch.manual_seed(0)
        results.append(each(*built.spec.entries["decode"].arguments({"batch": 4})))
    torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)


def test_a_step_that_compares_a_kernel_is_captured_when_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = "split batch into 2 as half"
    captured = text("by_name", options=TRUSTED).replace(
        split, f"{split}\n    capture batch at [4]"
    )
    built = build(llama_spec(2), captured, tmp_path)
    # A comparison makes the host wait.
    backend = FakeGraphs(blocking=frozenset({"aten._local_scalar_dense.default"}))
    monkeypatch.setattr("dynaflow_dsl.runtime.load.make_graphs", lambda *_: backend)
    step = built.module.load(built.spec.model, compile=False).decode
    given = built.spec.entries["decode"].arguments({"batch": 4})
    recorded = []
    for _ in range(3):
        step(*given)
        recorded.append(len(backend.graphs))
    assert recorded == [0, 1, 1]
    assert backend.replays == [0]


def test_names_and_writes_of_a_trusted_kernel_are_checked() -> None:
    def refused(name: str) -> str:
        found = findings(text(name, options=TRUSTED))
        assert {each.code for each in found} == {"DFS401"}
        return render(found)

    message = refused("by_other_name")
    assert "does not take the tensors of part join" in message
    assert "note: the kernel takes: hidden, attention, weight" in message
    assert "note: the part has: hidden, attn, post_attention_layernorm" in message
    assert "writes 'hidden', and part join does not" in refused("by_name_writing")
    assert "has no reference" in render(findings(text("by_name")))
