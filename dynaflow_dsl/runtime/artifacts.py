"""Compiled parts on disk: one file each, found by what it was made from."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

# Rises when what an artifact file holds changes.
ARTIFACT_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled function as bytes, and the conditions on sizes that it holds under."""

    content: bytes
    conditions: tuple[str, ...]


def cache_folder(given: str | os.PathLike[str] | None) -> Path:
    """Where artifacts are: as given, else `DFSC_CACHE_DIR`, else the user's cache."""
    if given is not None:
        return Path(given)
    if named := os.environ.get("DFSC_CACHE_DIR"):
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dynaflow-dsl"


def artifact_key(*parts: str) -> str:
    """The name of an artifact that is made from `parts`."""
    digest = hashlib.sha256()
    for part in (str(ARTIFACT_FORMAT), *parts):
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()[:32]


def read_artifact(folder: Path, key: str) -> Artifact | None:
    """The artifact of `key`; None when there is none or it is damaged."""
    try:
        header, _, content = (folder / f"{key}.part").read_bytes().partition(b"\n")
        fields = json.loads(header)
        if hashlib.sha256(content).hexdigest() != fields["sha256"]:
            return None
        return Artifact(content, tuple(str(one) for one in fields["conditions"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_artifact(folder: Path, key: str, artifact: Artifact) -> None:
    """Keep an artifact; readers in other processes see all of it or nothing.

    A folder that cannot be written to only costs compiling again next time.
    """
    header = json.dumps(
        {
            "sha256": hashlib.sha256(artifact.content).hexdigest(),
            "conditions": artifact.conditions,
        }
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{key}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(header.encode() + b"\n" + artifact.content)
            Path(name).replace(folder / f"{key}.part")
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError:
        return
