"""What a class says of captured sizes and of its streams."""

from __future__ import annotations

import pytest

from dynaflow_dsl import pipeline
from dynaflow_dsl.models import llama
from dynaflow_dsl.source import Source
from dynaflow_dsl.trace import trace
from tests.emit.formatting import formatted

TEXT = """dfs 1

schedule captured:
    stream side{stream}
    split batch into 2 as half
    {capture}

    each layer in .model.layers.*:
        part attn on side = .input_layernorm + .self_attn
        part mlp = rest
        stagger half by 1:
            attn
            mlp
"""


def module(capture: str = "", stream: str = "") -> str:
    text = TEXT.format(stream=stream, capture=capture)
    file = pipeline.understand(Source("test.dfs", text)).unwrap()
    traced = trace(llama.decode(layers=2), "tests:target", {}).unwrap()
    return pipeline.compile_schedules(file, traced).unwrap().text


def test_nothing_is_said_where_nothing_is_captured() -> None:
    text = module()
    assert "capture =" not in text
    assert "stream_options" not in text
    assert "import Executor, Into, Part, Split, TensorSpec, loader" in text


def test_captured_sizes_with_all_that_a_replay_has_to_know() -> None:
    text = module("capture batch at [4, 8]")
    sizes, places = '{"batch": (4, 8)}', '("keys", "values")'
    arguments = f'{sizes}, in_place={places}, padding={{"batch": (0,)}}'
    assert f"    capture = Capture(\n        {arguments}\n    )\n" in text
    assert "    Capture,\n    Executor,\n    Into,\n    Part,\n    Split,\n" in text


@pytest.mark.parametrize("stream", ["", " (priority = high, gemm_sms = 16)"])
@pytest.mark.parametrize(
    "capture",
    [
        "",
        "capture batch at [4] (static = true, pieces = true)",
        f"capture batch at [{', '.join(map(str, range(1, 60)))}]",
    ],
)
def test_the_format_is_kept(capture: str, stream: str) -> None:
    text = module(capture, stream)
    assert formatted(text) == text
    assert ("static=True" in text) is ("static" in capture)
    expected = 'stream_options = {"side": StreamOptions(priority="high", gemm_sms=16)}'
    assert (expected in text) is bool(stream)
