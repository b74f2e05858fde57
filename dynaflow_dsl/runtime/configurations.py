"""What the configuration of a model says of what it computes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any

import torch

# Where a configuration came from and how text is made of it, not what is computed.
NOT_THE_MODEL = frozenset(
    {
        "_commit_hash",
        "_name_or_path",
        "architectures",
        "bos_token_id",
        "eos_token_id",
        "id2label",
        "initializer_range",
        "label2id",
        "pad_token_id",
        "problem_type",
        "transformers_version",
        "use_cache",
    }
)


def configuration_text(model: torch.nn.Module) -> str:
    """The configuration of a model as text; empty without one."""
    found = _configured(model)
    return "" if found is None else json.dumps(_plain(found), sort_keys=True)


def texts_with_dtypes(
    model: torch.nn.Module, kind: torch.dtype | None
) -> Iterator[str]:
    """The same where it names the dtype `kind` of the tensors, or names none.

    A configuration that was read with its weights names it, and one that was just made
    often does not; each of those inside of it may or may not.
    """
    found = _plain(_configured(model))
    whole = str(kind)
    short = whole.removeprefix("torch.")
    for outer, inner in product((None, short, whole), repeat=2):
        said = _renamed(found, {None, short, whole}, outer, inner)
        yield json.dumps(said, sort_keys=True)


def _renamed(
    value: object, same: Set[str | None], outer: str | None, inner: str | None
) -> object:
    match value:
        case dict():
            return {
                key: outer
                if key in ("dtype", "torch_dtype")
                and isinstance(each, str | None)
                and each in same
                else _renamed(each, same, inner, inner)
                for key, each in value.items()
            }
        case list():
            return [_renamed(each, same, inner, inner) for each in value]
    return value


def _configured(model: torch.nn.Module) -> Mapping[Any, Any] | None:
    """What the configuration of a model says; None without one."""
    config = getattr(model, "config", None)
    to_dict = getattr(config, "to_dict", None)
    if callable(to_dict):
        found: Mapping[Any, Any] = to_dict()
        return found
    if is_dataclass(config) and not isinstance(config, type):
        return {each.name: getattr(config, each.name) for each in fields(config)}
    if isinstance(config, SimpleNamespace):
        return vars(config)
    if isinstance(config, Mapping):
        # Those of libraries say of which class and version they are.
        return {k: v for k, v in config.items() if not str(k).startswith("_")}
    return None


def _plain(value: object) -> object:
    match value:
        case Mapping():
            return {
                str(key): _plain(element)
                for key, element in value.items()
                if key not in NOT_THE_MODEL
            }
        case list() | tuple():
            return [_plain(element) for element in value]
        case None | bool() | int() | float() | str():
            return value
        case torch.dtype():
            return str(value)
    return type(value).__name__
