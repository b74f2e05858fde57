"""Shares of saved models are those of the same models cut in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen3MoeForCausalLM

from dynaflow_dsl.models import expert_parallel, tensor_parallel
from dynaflow_dsl.models.checkpoint import saved_model
from dynaflow_dsl.models.decoder import random_model
from dynaflow_dsl.models.llama import LLAMA
from dynaflow_dsl.models.qwen3_moe import QWEN3_MOE
from dynaflow_dsl.models.ranks import rank_here
from dynaflow_dsl.runtime.groups import (
    bind_group,
    group_rank,
    players,
    release_group,
    stand_in_group,
)


def llama(folder: Path, *, tied: bool = False, **saving: Any) -> Path:
    config = LLAMA.configuration({"layers": 2}, 64)
    config.tie_word_embeddings = tied
    random_model(LlamaForCausalLM, config).save_pretrained(folder, **saving)
    return folder


def same(one: PreTrainedModel, other: PreTrainedModel) -> bool:
    for kind in ("named_parameters", "named_buffers"):
        found = dict(getattr(one, kind)(remove_duplicate=False))
        wanted = dict(getattr(other, kind)(remove_duplicate=False))
        if found.keys() != wanted.keys():
            return False
        if not all(torch.equal(found[name], wanted[name]) for name in found):
            return False
    return True


@pytest.mark.parametrize("tied", [False, True])
def test_a_share_is_that_of_the_whole_model(tmp_path: Path, *, tied: bool) -> None:
    folder = llama(tmp_path, tied=tied, max_shard_size="50KB")
    assert (folder / "model.safetensors.index.json").is_file()
    spec = tensor_parallel.pretrained(path=str(folder), ways=2, rank=1)
    whole = LlamaForCausalLM.from_pretrained(folder)
    assert same(spec.model, tensor_parallel.shard(whole, 2, 1))
    assert spec.facts["tp_rank"] == 1
    model: Any = spec.model
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied


def test_no_weight_of_a_share_lies_in_the_file(tmp_path: Path) -> None:
    """The file may be replaced while the model is in use."""
    folder = llama(tmp_path)
    spec = tensor_parallel.pretrained(path=str(folder), ways=2, rank=0)
    before = [parameter.clone() for parameter in spec.model.parameters()]
    file = folder / "model.safetensors"
    with file.open("r+b") as opened:
        opened.write(b"\0" * file.stat().st_size)
    after = spec.model.parameters()
    assert all(map(torch.equal, after, before))


def test_experts_that_are_saved_one_by_one(tmp_path: Path) -> None:
    config = QWEN3_MOE.configuration({"layers": 1}, 64)
    random_model(Qwen3MoeForCausalLM, config).save_pretrained(tmp_path)
    spec = expert_parallel.pretrained(path=str(tmp_path), ways=2, rank=1)
    whole = Qwen3MoeForCausalLM.from_pretrained(tmp_path)
    assert same(spec.model, expert_parallel.shard(whole, 2, 1))


def test_a_dtype_is_that_of_all_weights(tmp_path: Path) -> None:
    path = str(llama(tmp_path))
    spec = tensor_parallel.pretrained(path=path, ways=2, rank=0, dtype="bfloat16")
    assert {p.dtype for p in spec.model.parameters()} == {torch.bfloat16}
    model: Any = spec.model
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    with pytest.raises(ValueError, match="dtype is 'float3'"):
        tensor_parallel.pretrained(path=path, ways=2, rank=0, dtype="float3")


def test_what_is_no_saved_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no config\.json"):
        saved_model(str(tmp_path))
    folder = llama(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="save the model with save_pretrained"):
        saved_model(str(folder))
    text = (folder / "config.json").read_text("utf-8")
    (folder / "config.json").write_text(text.replace("LlamaForCausalLM", "LlamaForNo"))
    with pytest.raises(ValueError, match="transformers has no class LlamaForNo"):
        saved_model(str(folder))


@pytest.fixture
def two_processes() -> Iterator[None]:
    """As if this were the second process of two."""
    release_group("tp")
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    yield
    release_group("tp")
    dist.destroy_process_group()


def test_all_processes_play_a_role_that_nobody_does(two_processes: None) -> None:
    assert rank_here("tp", 1) == 0
    with pytest.raises(ValueError, match="for 4 ranks, and 2 processes run"):
        rank_here("tp", 4)
    assert rank_here("tp", 2) == 1
    assert group_rank("tp") == 1
    with pytest.raises(ValueError, match=r"4 ranks, and 2 play the role 'tp'"):
        rank_here("tp", 4)
    assert rank_here("tp", 2, 0) == 0


def test_a_group_that_is_destroyed_plays_no_role(two_processes: None) -> None:
    assert rank_here("tp", 2) == 1
    dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    assert rank_here("tp", 2) == 0
    assert players()["tp"] is dist.group.WORLD


def test_one_process_is_the_first_rank() -> None:
    bind_group("tp", stand_in_group(2, 1))
    assert rank_here("tp", 4) == 0
    assert rank_here("tp", 4, 3) == 3
    release_group("tp")
