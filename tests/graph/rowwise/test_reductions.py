import pytest
import torch
from torch.nn import functional

from tests.graph.rowwise.cases import Case, accepted, check_case, refused
from tests.graph.rowwise.tracing import Function, rows

ALONG: list[tuple[str, Function]] = [
    ("sum", lambda a, dim: a.sum(dim)),
    ("sum, kept", lambda a, dim: a.sum(dim, keepdim=True)),
    ("mean", lambda a, dim: a.mean(dim)),
    ("mean, kept", lambda a, dim: a.mean(dim, keepdim=True)),
    ("amax", lambda a, dim: a.amax(dim)),
    ("amin, kept", lambda a, dim: a.amin(dim, keepdim=True)),
    ("max", lambda a, dim: a.max(dim).values),
    ("min, kept", lambda a, dim: a.min(dim, keepdim=True).indices),
    ("argmax", lambda a, dim: a.argmax(dim)),
    ("argmin, kept", lambda a, dim: a.argmin(dim, keepdim=True)),
    ("any", lambda a, dim: (a > 0).any(dim)),
    ("all, kept", lambda a, dim: (a > 0).all(dim, keepdim=True)),
    ("prod", lambda a, dim: a.prod(dim)),
    ("var", lambda a, dim: a.var(dim, correction=0)),
    ("std, kept", lambda a, dim: a.std(dim, correction=0, keepdim=True)),
    ("var, kept", lambda a, dim: a.var(dim, False, True)),
    ("var_mean", lambda a, dim: torch.var_mean(a, dim, correction=0)[1]),
    ("logsumexp", lambda a, dim: a.logsumexp(dim)),
    ("vector norm", lambda a, dim: torch.linalg.vector_norm(a, dim=dim)),
    ("norm, kept", lambda a, dim: torch.linalg.vector_norm(a, 1, dim, True)),
    ("count", lambda a, dim: (a > 0).count_nonzero(dim)),
    ("median", lambda a, dim: a.median(dim).values),
    ("kthvalue", lambda a, dim: a.kthvalue(1, dim).values),
    ("softmax", lambda a, dim: a.softmax(dim)),
    ("log_softmax", lambda a, dim: a.log_softmax(dim)),
    ("cumsum", lambda a, dim: a.cumsum(dim)),
    ("cumprod", lambda a, dim: a.cumprod(dim)),
    ("cummax", lambda a, dim: a.cummax(dim).values),
    ("logcumsumexp", lambda a, dim: a.logcumsumexp(dim)),
    ("sort", lambda a, dim: a.sort(dim).values),
    ("sort, stable", lambda a, dim: a.sort(dim=dim, stable=True).indices),
    ("argsort", lambda a, dim: a.argsort(dim)),
    ("topk", lambda a, dim: a.topk(1, dim).values),
    ("normalize", lambda a, dim: functional.normalize(a, dim=dim)),
]


def along(function: Function, axis: int) -> Function:
    return lambda a: function(a, axis)


CASES = [
    *(accepted(f"{name} of 1", along(f, 1), rows(4, 3)) for name, f in ALONG),
    *(accepted(f"{name} of -1", along(f, -1), rows(4, 3)) for name, f in ALONG),
    *(
        accepted(
            f"{name} in front of rows",
            along(lambda a, dim, f=f: f(a.transpose(0, 1), dim), 0),
            rows(4, 3),
        )
        for name, f in ALONG
    ),
    *(
        refused(f"{name} of 0", "over the split dimension", along(f, 0), rows(4, 3))
        for name, f in ALONG
    ),
    *(
        refused(f"{name} of -3", "over the split dimension", along(f, -3), rows(4, 3))
        for name, f in ALONG
    ),
    accepted("sum of two axes", lambda a: a.sum((1, -1)), rows(4, 3)),
    accepted("glu", lambda a: functional.glu(a), rows(4)),
    accepted("diff", lambda a: a.diff(), rows(4)),
    refused(
        "sum of two axes, rows among them",
        "over the split",
        lambda a: a.sum((0, 1)),
        rows(4, 3),
    ),
    refused("sum of everything", "over all axes", lambda a: a / a.sum(), rows(4)),
    refused("mean of everything", "over all axes", lambda a: a - a.mean(), rows(4)),
    refused("max of everything", "over all axes", lambda a: a - a.max(), rows(4)),
    refused("amax of everything", "over all axes", lambda a: a - a.amax(), rows(4)),
    refused("argmax of everything", "over all axes", lambda a: a - a.argmax(), rows(4)),
    refused("std of everything", "over all axes", lambda a: a / a.std(), rows(4)),
    refused("norm of everything", "over all axes", lambda a: a / a.norm(), rows(4)),
    refused(
        "centred", "mean over the split", lambda a: a - a.mean(0, keepdim=True), rows(4)
    ),
    refused(
        "softmax over merged rows",
        "softmax over the split",
        lambda a: (a + 1).view(-1).softmax(0).view(-1, 4),
        rows(4),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reductions(case: Case) -> None:
    check_case(case)
