"""Schedules for models on several ranks, and one rank of two that runs them."""

from __future__ import annotations

import copy
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.testing import assert_close
from transformers import PreTrainedModel

from dynaflow_dsl.models import expert_parallel, tensor_parallel
from dynaflow_dsl.models.cache import CachedDecoder, cache_shapes, make_caches
from dynaflow_dsl.models.decoder import greedy_inputs
from dynaflow_dsl.models.exchange import combine, dispatch
from dynaflow_dsl.runtime import bind_group
from dynaflow_dsl.trace import TraceSpec
from tests.end_to_end.building import build
from tests.models.test_tensor_parallel import model_of

TWO_BATCH = """dfs 1

schedule two_batch(ways = 2, tile = 1):
    require tp_size >= 2
    require model in ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"]

    stream comm

    split batch into ways as mb (align = tile)

    each layer in .model.layers.*:
        part attn_reduce on comm = all_reduce in .self_attn
        part mlp_reduce  on comm = all_reduce in .mlp
        part attn = .input_layernorm + .self_attn - attn_reduce
        part mlp  = rest

        stagger mb by 1:
            attn
            attn_reduce
            mlp
            mlp_reduce
"""

NANOFLOW = """dfs 1

schedule nanoflow:
    require tp_size >= 4 and arch == "sm90"

    stream memory
    stream network

    split batch into [0.4, 0.3, 0.3] as nb (align = 16)

    each layer in .model.layers.*:
        part o_reduce   on network = all_reduce in .self_attn
        part ffn_reduce on network = all_reduce in .mlp
        part qkv = .input_layernorm + .self_attn.q_proj + .self_attn.k_proj + .self_attn.v_proj
        part o   = .self_attn.o_proj - o_reduce
        part attn on memory = .self_attn - qkv - o - o_reduce
        part ffn = .post_attention_layernorm + .mlp - ffn_reduce

        order:
            qkv[0]           | prev.ffn_reduce[1]
            qkv[1] | attn[0] | prev.ffn_reduce[2]
            qkv[2] | attn[1]
            o[0]   | attn[2]
            o[1]   | o_reduce[0]
            o[2]   | o_reduce[1]
            ffn[0] | o_reduce[2]
            ffn[1] | ffn_reduce[0]
            ffn[2]
"""  # noqa: E501 - as it stands in the example

SHARED_EXPERT = """dfs 1

schedule shared_expert:
    require ep_size >= 2

    stream comm
    stream side

    each layer in .model.layers.* having .mlp.experts:
        part dispatch on comm = "*dispatch*" in .mlp.experts
        part combine  on comm = "*combine*" in .mlp.experts
        part shared   on side = .mlp.shared_experts
        part router   = .mlp.gate
        part experts  = .mlp.experts - dispatch - combine
        part attn     = .input_layernorm + .self_attn + .post_attention_layernorm
        part merge    = rest

        order:
            attn, router
            dispatch | shared
            experts after shared
            combine
            merge
"""
# Qwen3-MoE has no shared expert.
EXCHANGE = """dfs 1

schedule exchange:
    require ep_size >= 2

    stream comm

    each layer in .model.layers.*:
        part dispatch on comm = "*dispatch*" in .mlp.experts
        part combine  on comm = "*combine*" in .mlp.experts
        part experts  = .mlp.experts - dispatch - combine
        part attn     = .input_layernorm + .self_attn + .post_attention_layernorm + .mlp.gate

        order:
            attn
            dispatch
            experts
            combine
"""  # noqa: E501

# What a rank receives has no rows of its own: the three parts keep them only together.
EXCHANGE_HALVES = """dfs 1

select pick:
    equal batch
    when batch >= 2: exchange_halves
    else: sequential

schedule exchange_halves:
    require ep_size >= 2

    stream comm

    split batch into 2 as half

    each layer in .model.layers.*:
        part dispatch (rowwise = true) on comm = "*dispatch*" in .mlp.experts
        part combine  (rowwise = true) on comm = "*combine*" in .mlp.experts
        part experts  (rowwise = true) = .mlp.experts - dispatch - combine
        part attn = .input_layernorm + .self_attn + .post_attention_layernorm + .mlp.gate

        stagger half by 1:
            attn
            dispatch
            experts
            combine
"""  # noqa: E501

RANKS, CAPACITY, SEQUENCE = 2, 16, 6
LENGTHS = [5, 2, 6, 1, 3]


def run_rank(rank: int, folder: str, job: str, family: str) -> None:
    """One of two processes: a share of the model, scheduled steps, a comparison."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=120),
    )
    try:
        with torch.no_grad():
            _JOBS[job](rank, Path(folder) / f"rank{rank}", family)
    finally:
        dist.destroy_process_group()


def _tensor_parallel(rank: int, folder: Path, family: str) -> None:
    group = dist.group.WORLD
    assert group is not None
    bind_group("tp", group)
    whole = model_of(family)
    spec = tensor_parallel.sharded_spec(
        copy.deepcopy(whole), RANKS, rank, capacity=CAPACITY, sequence=SEQUENCE
    )
    _compare(spec, TWO_BATCH, whole, slice(0, 5), folder)


def _expert_parallel(rank: int, folder: Path, family: str) -> None:
    group = dist.group.WORLD
    assert group is not None
    bind_group("ep", group)
    _exchange_with_an_idle_and_an_empty_rank(rank)
    whole = model_of(family)
    # One rank has four rows, the other one: together no more than 5 * SEQUENCE tokens.
    spec = expert_parallel.sharded_spec(
        copy.deepcopy(whole),
        RANKS,
        rank,
        capacity=CAPACITY,
        sequence=SEQUENCE,
        room=5 * SEQUENCE * 2,
    )
    text = SHARED_EXPERT if family.startswith("deepseek") else EXCHANGE
    _compare(spec, text, whole, slice(0, 4) if rank == 0 else slice(4, 5), folder)


def _expert_parallel_halves(rank: int, folder: Path, family: str) -> None:
    """Both ranks cut their rows in two: pieces of all ranks are exchanged together."""
    group = dist.group.WORLD
    assert group is not None
    bind_group("ep", group)
    whole = model_of(family)
    spec = expert_parallel.sharded_spec(
        copy.deepcopy(whole),
        RANKS,
        rank,
        capacity=CAPACITY,
        sequence=SEQUENCE,
        room=5 * SEQUENCE * 2,
    )
    rows = slice(0, 2) if rank == 0 else slice(2, 4)
    _compare(spec, EXCHANGE_HALVES, whole, rows, folder)


def _exchange_with_an_idle_and_an_empty_rank(rank: int) -> None:
    """All tokens are rank 1's and go to experts 0 and 1, which rank 0 holds."""
    picked = torch.tensor([[0, 1], [1, 0]] if rank == 1 else [], dtype=torch.int64)
    picked = picked.view(-1, 2)
    tokens = torch.arange(float(picked.shape[0]))[:, None].expand(-1, 3).clone()
    rows, ends, arrived = dispatch(tokens, picked, 4, 3, RANKS, "ep")
    nothing = [0, 0, 0]
    assert arrived.tolist() == [nothing, [2, 2, 0] if rank == 0 else nothing]
    assert ends.tolist() == ([2, 4, 4] if rank == 0 else nothing)
    weights = torch.ones(picked.shape)
    number = torch.searchsorted(ends, torch.arange(4), right=True)
    back = combine(rows + number[:, None], picked, weights, arrived, 3, RANKS, "ep")
    assert_close(back, 2 * tokens + 1)


def _compare(
    spec: TraceSpec, text: str, whole: PreTrainedModel, rows: slice, folder: Path
) -> None:
    """Prefill and three decode steps of scheduled rows, and of the whole model."""
    folder.mkdir()
    built = build(spec, text, folder)
    executor = built.module.load(built.spec.model, compile=False)
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(1, 97, (5, SEQUENCE), generator=generator)
    lengths = LENGTHS[rows]
    expected = CachedDecoder(whole)
    found_caches, expected_caches = (
        make_caches(cache_shapes(model), len(lengths), CAPACITY, "cpu")
        for model in (built.spec.model, whole)
    )
    tokens = ids[rows]
    position, mask, slot = greedy_inputs(lengths, SEQUENCE, CAPACITY)
    step = executor.prefill
    for place in range(SEQUENCE, SEQUENCE + 4):
        found = step(tokens, position, mask, slot, *found_caches)
        wanted = expected(tokens, position, mask, slot, *expected_caches)
        assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        step, tokens = executor.decode, wanted[:, -1].argmax(-1)[:, None]
        position, slot = position[:, -1:] + 1, torch.tensor([place])
        mask = mask.clone()
        mask[:, place] = True


_JOBS = {
    "tensor": _tensor_parallel,
    "expert": _expert_parallel,
    "expert halves": _expert_parallel_halves,
}
