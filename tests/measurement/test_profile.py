"""Profiles of a device, with a stand-in for it, and of the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from dynaflow_dsl.measurement import profile as room
from dynaflow_dsl.measurement.profile import profile_step
from dynaflow_dsl.measurement.rounds import Tell, alone
from dynaflow_dsl.measurement.trace_file import OUTSIDE, Shown, assigned, trace_document
from tests.runtime.conftest import halves, toy
from tests.runtime.fake_clock import FakeDevice, fake_cuda
from tests.runtime.toy_model import Toy, make_arguments

__all__ = ["halves", "toy"]


def load(module: ModuleType, model: Toy, device: str = "cpu") -> Any:
    def made(streams: Any) -> Any:
        step = module.load(model, compile=False, streams=streams)
        step.device = torch.device(device)
        return step

    return made


def on_fake(
    module: ModuleType,
    model: Toy,
    monkeypatch: pytest.MonkeyPatch,
    *,
    captures: bool,
    tell: Tell = alone,
) -> tuple[room.Profile, FakeDevice]:
    fake_cuda(monkeypatch, captures=captures)
    device = FakeDevice()

    def recorded(run: Callable[[], object], runs: int, *, cuda: bool) -> Any:
        assert cuda
        captured = list(device.events)
        device.events.clear()
        for _ in range(runs):
            run()
        # Replays show what was captured.
        return room.Recorded(device.events or captured[-3 * steps_of(captured) :])

    def steps_of(events: list[Any]) -> int:
        return max(event["args"]["grid"][0] for event in events) // 2

    monkeypatch.setattr(room, "DeviceClock", device.clock)
    monkeypatch.setattr(room, "_recorded", recorded)
    made = profile_step(
        load(module, model, "cuda:0"), make_arguments(4), runs=1, tell=tell
    )
    return made, device


@pytest.mark.parametrize("captures", [True, False])
def test_kernels_of_a_device_belong_to_steps(
    captures: bool, halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile, _ = on_fake(halves, toy, monkeypatch, captures=captures)
    assert profile.device == "cuda:0 (Fake)"
    assert profile.replayed is captures
    assert ("not permitted" in profile.refused) is not captures
    assert assigned([profile]) == (len(profile.timeline.steps),) * 2
    for number, one in enumerate(profile.timeline.steps):
        assert [work.name for work in one.work] == [f"kernel of {number}"]
    assert profile.streams == ("main", "side")


def test_ranks_replay_where_all_of_them_can(
    halves: ModuleType, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that issues its steps anew would not meet those that replay a graph."""
    words: list[Any] = []

    def tell(word: Any) -> list[Any]:
        words.append(word)
        return [word, None if word is None else "RuntimeError: out of memory"]

    profile, _ = on_fake(halves, toy, monkeypatch, captures=True, tell=tell)
    assert not profile.replayed
    assert profile.refused == "RuntimeError: out of memory"
    # That it could be captured here, and then the beginning of each run.
    assert words == ["", None]


def test_a_trace_names_processes_and_tracks(
    halves: ModuleType, toy: Toy, tmp_path: Path
) -> None:
    profile = profile_step(load(halves, toy), make_arguments(4), runs=2)
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps(trace_document([Shown("a", profile), Shown("b", profile)]))
    )
    events = json.loads(path.read_text())["traceEvents"]
    processes = {
        event["pid"]: event["args"]["name"]
        for event in events
        if event["name"] == "process_name"
    }
    assert processes == {1: "a on CPU", 2: "b on CPU"}
    tracks = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    assert [tracks[1, k] for k in (1, 2)] == ["main", "side"]
    assert set(tracks.values()) <= {"main", "side", OUTSIDE}
    shown = [event for event in events if event["ph"] == "X"]
    assert all((event["pid"], event["tid"]) in tracks for event in shown)
    assert min(event["ts"] for event in shown) == 0.0
    attn = [event for event in shown if event["name"] == "attn[0] layer 2"]
    assert {tracks[event["pid"], event["tid"]] for event in attn} == {"side"}
    assert {event["args"]["run"] for event in attn} == {0, 1}
