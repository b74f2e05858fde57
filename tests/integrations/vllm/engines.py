"""Engines in processes of their own: servers, and scripts that run one and end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]

BACKEND = "dynaflow_dsl.integrations.vllm.backend"

# Seconds in which an engine starts, also on a busy machine of two cores.
START = 400


def environment(folder: Path, **more: str) -> dict[str, str]:
    """What engines of a test are started with: nothing outside of its folder."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        **more,
    }


def scheduled(schedule: str, folder: Path, **options: Any) -> dict[str, Any]:
    """The configuration with which a schedule is adopted."""
    given = {"schedule": schedule, "module": str(folder / "executors"), **options}
    return {
        "compilation_config": {"mode": 2, "backend": BACKEND},
        "additional_config": {"dynaflow": given},
    }


def written(home: Path, family: str) -> Path:
    """A folder with a tiny model of a family, as transformers calls it."""
    folder = home / family
    script = "tests.integrations.vllm.tiny_model"
    done = subprocess.run(
        [sys.executable, "-m", script, str(folder), family],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@dataclass(frozen=True, slots=True)
class Server:
    """A server on this machine, and where its log is."""

    port: int
    model: str
    log: Path

    def send_load(self, count: int, load: str) -> list[dict[str, Any]]:
        """What the requests of a load of `send_load` gave."""
        script = "tests.integrations.vllm.send_load"
        given = (str(self.port), self.model, str(count), load)
        done = subprocess.run(
            [sys.executable, "-m", script, *given],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=START,
        )
        assert done.returncode == 0, done.stderr
        answers: list[dict[str, Any]] = json.loads(done.stdout)
        return answers

    def metric(self, name: str) -> float:
        """The sum of one of the engine's counters."""
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = [line.split() for line in lines if line.startswith(f"{name}{{")]
        assert found, name
        return sum(float(value) for *_, value in found)

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the server answers."""
        end = time.monotonic() + START
        while time.monotonic() < end:
            assert process.poll() is None, self.log.read_text()[-4000:]
            try:
                with urllib.request.urlopen(f"{self._url}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.5)
        raise AssertionError(f"no server after {START} s\n{self.log.read_text()}")


@contextmanager
def serve(
    model: Path, folder: Path, config: Mapping[str, Any], *flags: str
) -> Iterator[Server]:
    """A server that ends with the block."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = [
        item
        for name, value in config.items()
        for item in (f"--{name.replace('_', '-')}", json.dumps(value))
    ]
    # `vllm serve` is the same, but asks for the version of a package named vllm.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(model), "--dtype", "float32"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--gpu-memory-utilization", "0.2", *given, *flags]
    server = Server(port, str(model), folder / "server.log")
    with server.log.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(folder),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            server.wait(process)
            yield server
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and the processes that it started, and no others."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(60)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def generate(
    model: Path,
    folder: Path,
    config: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """Run an engine inside one process on some prompts; stdout ends in their tokens."""
    folder.mkdir(exist_ok=True)
    script = "tests.integrations.vllm.generate"
    engine = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", **more}
    return subprocess.run(
        [sys.executable, "-m", script, str(model), json.dumps(config)],
        input=json.dumps(prompts),
        cwd=folder,
        env=environment(folder, **engine),
        capture_output=True,
        text=True,
        check=False,
        timeout=START,
    )


def tokens(done: subprocess.CompletedProcess[str]) -> list[list[int]]:
    """What `generate` printed."""
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found


def ran_in_pieces(log: str) -> bool:
    """Whether an engine says that it cut steps of requests."""
    said = r"steps run in pieces, the first one with tokens 0:\d+, \d+:"
    return re.search(said, log) is not None
