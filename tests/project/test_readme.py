"""What the README shows is what the tool prints."""

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from dynaflow_dsl.cli.main import run
from tests.project.commands import ROOT

SCHEDULE = ROOT / "schedules" / "llama" / "halves.dfs"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_schedule_is_the_shipped_one() -> None:
    assert blocks("dfs")[0] == SCHEDULE.read_text(encoding="utf-8")


def test_the_chart_is_that_of_show(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "88")
    assert run(["show", "--gantt", str(SCHEDULE)]) == 0
    (chart,) = blocks("text")
    assert chart in capsys.readouterr().out


def test_the_excerpt_is_in_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["compile", str(SCHEDULE)]) == 0
    module = (tmp_path / "executors" / "llama_halves.py").read_text(encoding="utf-8")
    excerpt = blocks("python")[0]
    assert "side.wait(" in excerpt
    assert excerpt in module


def test_the_use_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    use = blocks("python")[1]
    quick = use.replace('device="cpu")', 'device="cpu", compile=False, check="none")')
    assert quick != use
    names: dict[str, Any] = {}
    exec(quick, names)
    assert names["logits"].shape[:2] == (4, 1)


def test_the_target_of_a_hugging_face_model_has_both_entries() -> None:
    names: dict[str, Any] = {}
    (target,) = (block for block in blocks("python") if "def qwen(" in block)
    exec(target, names)
    assert set(names["qwen"](layers=1).entries) == {"decode", "prefill"}


def test_a_model_of_your_own_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (target,) = (block for block in blocks("python") if "def stack(" in block)
    (tmp_path / "targets.py").write_text(target, encoding="utf-8")
    (tmp_path / "stack.dfs").write_text(blocks("dfs")[1], encoding="utf-8")
    (steps,) = [block for block in blocks("sh") if "dfsc trace" in block]
    for line in steps.splitlines():
        words = line.partition("#")[0].split()
        assert words[0] == "dfsc"
        slow = ["--text-only"] if words[1] == "verify" else []
        assert run([*words[1:], *slow]) == 0, capsys.readouterr().err
    assert (tmp_path / "executors" / "stack_halves.py").is_file()
    (tmp_path / "more.dfs").write_text(blocks("dfs")[2], encoding="utf-8")
    assert run(["fmt", "--check", "stack.dfs", "more.dfs"]) == 0
    assert run(["compile", "more.dfs", "-P", "large=128"]) == 0
    capsys.readouterr()
    assert run(["verify", "more.dfs", "--text-only", "--batch", "64"]) == 0
    shown = capsys.readouterr().out
    assert "batch = 128: pieces_ways_3, equal to the model" in shown


def rows(label: str) -> list[list[str]]:
    """The cells behind `label` in each table that has such a row."""
    lines = (one for one in README.splitlines() if one.startswith(f"| {label} |"))
    return [[cell.strip() for cell in line.split("|")[2:-1]] for line in lines]


def results(name: str) -> Any:
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    assert f"](benchmarks/results/{name}.json)" in README
    return json.loads(path.read_text(encoding="utf-8"))


def ratio(found: dict[str, dict[str, float]], other: str, digits: int) -> str:
    if other not in found:
        return ""
    one, low, high = (
        f"{found[other][k]:.{digits}f}" for k in ("median", "low", "high")
    )
    return f"{one} [{low}, {high}]"


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("eager", "eager"),
        ("`torch.compile`", "torch.compile"),
        ("`sequential`, the same parts unsplit", "sequential"),
        ("scheduled, two halves", "scheduled"),
    ],
)
def test_times_on_the_cpu_are_those_of_the_saved_run(label: str, name: str) -> None:
    saved = results("cpu_llama_halves")
    step = saved["steps"][name]
    starts = saved["starts"].get(name)
    first = f"{median(starts['empty caches']):.1f} s" if starts is not None else ""
    assert rows(label)[0] == [
        f"{median(step['milliseconds']):.2f} ms",
        ratio(step["relative to"], "torch.compile", 2),
        first,
    ]


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("eager", "eager"),
        ("`torch.compile`", "torch.compile"),
        ("`torch.compile`, `reduce-overhead`", "reduce-overhead"),
        ("`torch.compile`, captured by hand", "torch.compile, captured"),
        ("`sequential`, captured", "sequential"),
        ("scheduled, two halves, captured", "scheduled"),
    ],
)
def test_times_on_the_gpu_are_those_of_the_saved_run(label: str, name: str) -> None:
    found = results("h200_llama_decode")["contenders"][name]
    assert rows(label)[-1] == [
        f"{median(found['steady']) / 1e3:.2f} ms",
        ratio(found["steady_ratios"], "torch.compile, captured", 3),
        ratio(found["ratios"], "torch.compile, captured", 3),
        f"{sum(found['memory'].values()) / 1e6:.0f} MB",
    ]


def speed(contender: dict[str, Any], beside: str = "torch.compile, captured") -> str:
    found = contender["steady_ratios"][beside]
    one, high, low = (f"{1 / found[k]:.3f}" for k in ("median", "low", "high"))
    return f"{one} [{low}, {high}]"


@pytest.mark.parametrize(
    ("label", "name", "batch"),
    [
        (
            "Llama 3 8B, 8 layers, prefill of 4 times 512 tokens",
            "h200_llama_prefill",
            4,
        ),
        (
            "the same shape, 32 layers, decode, batch 128",
            "h200_llama_decode_32_layers",
            128,
        ),
        ("CLIP-L, text beside vision, batch 1", "h200_clip_branches_1", 1),
        ("the same, batch 4", "h200_clip_branches_4", 4),
        (
            "DeepSeek-V2-Lite, 4 layers, shared beside routed experts, decode, batch 1",
            "h200_deepseek_decode",
            1,
        ),
        ("batch 4", "h200_deepseek_decode", 4),
        ("batch 16", "h200_deepseek_decode", 16),
    ],
)
def test_gains_on_the_gpu_are_those_of_the_saved_runs(
    label: str, name: str, batch: int
) -> None:
    saved = results(name)
    listed = saved if isinstance(saved, list) else [saved]
    (found,) = [one for one in listed if one["sizes"] == {"batch": batch}]
    made = [speed(found["contenders"][one]) for one in ("sequential", "scheduled")]
    assert rows(label)[0][:2] == made


@pytest.mark.parametrize(
    ("label", "name", "beside"),
    [
        (
            "Qwen3-30B-A3B, experts on both, 16384 tokens a rank, two batches",
            "h200x2_moe_two_batch",
            "all-to-all, captured",
        ),
        ("the same", "h200x2_moe_two_batch", "all-gather, captured"),
        (
            "the same in one batch, exchange by copy engine",
            "h200x2_moe_one_batch",
            "all-gather, captured",
        ),
        (
            "4096 tokens a rank in one batch",
            "h200x2_moe_one_batch_4096",
            "all-gather, captured",
        ),
        (
            "Llama 3 8B, tensor parallel, 8192 tokens, sums by copy engine",
            "h200x2_llama_copied",
            "torch.compile, captured",
        ),
        (
            "the same by TokenWeave, `programs = 132`",
            "h200x2_llama_tokenweave",
            "torch.compile, captured",
        ),
        *(
            (label, f"h200x2_slow_links_{name}", "torch.compile, captured")
            for label, name in (
                ("Llama 3 8B, 8192 tokens", "llama_8b_8192"),
                ("Llama 3 8B, 2048 tokens", "llama_8b_2048"),
                ("Llama 3 70B, 8192 tokens", "llama_70b_8192"),
                ("Llama 3 70B, 512 tokens", "llama_70b_512"),
            )
        ),
    ],
)
def test_gains_on_two_gpus_are_those_of_the_saved_runs(
    label: str, name: str, beside: str
) -> None:
    found = results(name)
    assert found["ranks"] == 2
    assert rows(label)[0][-2] == speed(found["contenders"]["scheduled"], beside)


def test_what_the_readme_says_of_weights_and_backend_is_of_the_saved_runs() -> None:
    text = " ".join(README.split())
    weights = results("h200_host_weights")
    gain = ratio(weights, "in turn to ahead", 3)
    assert f"is {gain} times as fast as fetching in turn" in text
    assert f"bounds that at {weights['bound of in turn to ahead']}" in text
    backend = results("h200_backend")["ratios"]
    taken = ratio(backend["backend to loaded"], "steady", 3)
    assert f"takes {taken} of the time of the executor" in text
    unfit = ratio(backend["unfit to inductor"], "steady", 3)
    assert f"with `strict` off, takes {unfit} of the time of" in text
    starts = results("h200_load_times")["seconds"]["32"]
    own, other = (
        [f"{median(starts[name][state]):.1f} s" for state in ("empty", "filled")]
        for name in ("scheduled", "torch.compile")
    )
    assert f"{own[0]} with empty caches, where `torch.compile` takes {other[0]}" in text
    assert f"and {own[1]} beside {other[1]} with filled ones" in text
    assert f"`dfsc compile` took {starts['trace']:.1f} s beforehand" in text
    chosen = results("h200_select")["chosen to alone"]
    assert f"chooses takes {ratio(chosen, 'steady', 3)} of the time" in text
