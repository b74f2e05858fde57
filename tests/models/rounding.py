"""Whether two ways to compute something differ by rounding alone."""

from __future__ import annotations

import torch

# A step rounds in other places than the whole model does, and so does another machine.
TIMES = 10


def assert_only_rounded(
    given: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor
) -> None:
    """`given` is about as far from `exact` as `expected` is.

    `expected` is what the untouched model makes in its own precision, `exact` the same
    in double precision. A fixed tolerance would not do: T5 does not scale its
    attention, and with random weights its own error is up to 5e-4, which depends on the
    machine and on the number of threads.
    """
    own = (expected - exact).abs().max()
    apart = (given - exact).abs().max()
    assert apart <= TIMES * own, f"{apart:.1e} apart, rounding is {own:.1e}"
