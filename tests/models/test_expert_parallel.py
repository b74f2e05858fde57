import copy

import pytest
import torch
from transformers import GptOssConfig, GptOssForCausalLM

from dynaflow_dsl.models.decoder import random_model
from dynaflow_dsl.models.exchange import combine, dispatch
from dynaflow_dsl.models.expert_parallel import shard
from tests.models.lockstep import on_ranks
from tests.models.test_tensor_parallel import model_of

FAMILIES = ("deepseek_v2", "deepseek_v3", "mixtral", "qwen3_moe")
LOCAL, RANKS, ROOM = 2, 3, 20


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ways", [2, 4])
def test_ranks_with_batches_of_their_own_compute_what_the_whole_model_does(
    family: str, ways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = model_of(family)
    torch.manual_seed(5)
    batches = [torch.randint(1, 97, (rows, 6)) for rows in (1, 5, 3, 2)[:ways]]
    models = [shard(copy.deepcopy(whole), ways, rank, room=200) for rank in range(ways)]
    found = on_ranks(
        monkeypatch,
        ways,
        lambda rank: models[rank](input_ids=batches[rank], use_cache=False).logits,
    )
    for logits, batch in zip(found, batches, strict=True):
        expected = whole(input_ids=batch, use_cache=False).logits
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_experts_with_biases_and_transposed_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = GptOssConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=8,
        num_experts_per_tok=3,
        pad_token_id=0,
    )
    whole = random_model(GptOssForCausalLM, config)
    for name, tensor in whole.named_parameters():
        if name.endswith("bias"):
            tensor.normal_()
    batches = [torch.randint(1, 97, (rows, 6)) for rows in (1, 4)]
    models = [shard(copy.deepcopy(whole), 2, rank, room=200) for rank in range(2)]
    found = on_ranks(
        monkeypatch,
        2,
        lambda rank: models[rank](input_ids=batches[rank], use_cache=False).logits,
    )
    for logits, batch in zip(found, batches, strict=True):
        expected = whole(input_ids=batch, use_cache=False).logits
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def exchanged(rank: int, experts: list[torch.Tensor], room: int = ROOM) -> torch.Tensor:
    """Every token, a one, times one more than the number of its expert, summed."""
    mine = experts[rank]
    tokens = torch.ones(mine.shape[0], 4)
    rows, ends, arrived = dispatch(tokens, mine, room, LOCAL, RANKS, "ep")
    number = torch.searchsorted(ends, torch.arange(room), right=True)
    made = rows * (1 + rank * LOCAL + number[:, None])
    weights = torch.ones(mine.shape)
    return combine(made, mine, weights, arrived, LOCAL, RANKS, "ep")


@pytest.mark.parametrize(
    "experts",
    [
        pytest.param([[[0, 3], [5, 1]], [[2, 4]], [[4, 5]]], id="uneven counts"),
        pytest.param([[[0, 1]], [[1, 0], [0, 1]], [[1, 0]]], id="idle ranks"),
        pytest.param([[[0, 2]], [], [[4, 0]]], id="a rank without tokens"),
        pytest.param([[], [], []], id="no tokens at all"),
    ],
)
def test_each_token_comes_back_from_all_its_experts(
    experts: list[list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [torch.tensor(rows, dtype=torch.int64).view(-1, 2) for rows in experts]
    found = on_ranks(monkeypatch, RANKS, lambda rank: exchanged(rank, given))
    for result, mine in zip(found, given, strict=True):
        expected = (mine + 1).sum(1, keepdim=True).float().expand(-1, 4)
        torch.testing.assert_close(result, expected)


def test_too_little_room_stops_every_rank_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = [torch.zeros(3, 1, dtype=torch.int64) for _ in range(RANKS)]
    messages: list[str] = []

    def refused(rank: int) -> None:
        with pytest.raises(RuntimeError) as caught:
            exchanged(rank, given, room=8)
        messages.append(str(caught.value))

    on_ranks(monkeypatch, RANKS, refused)
    assert messages == RANKS * [
        "rank 0 would receive 9 tokens for its experts and has room for 8: give the "
        "target a larger 'room'"
    ]
    on_ranks(monkeypatch, RANKS, lambda rank: exchanged(rank, given, room=9))
