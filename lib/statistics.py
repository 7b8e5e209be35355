"""Rates: the exponent of a power law with its standard error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lib import validation


@dataclass(frozen=True)
class Rate:
    """A fitted power law ``gap = exp(intercept) * n**slope``.

    Attributes:
        slope: the exponent; with repeats the mean of their exponents.
        standard_error: of the slope; from the spread of the repeats if there are any, else the regression's own.
        intercept: the logarithm of the constant.
        slopes: ``[r]``, one exponent per repeat; ``None`` without repeats.
    """

    slope: float
    standard_error: float
    intercept: float
    slopes: Tensor | None = None

    def _repr_html_(self) -> str:
        how = "regression" if self.slopes is None else f"{len(self.slopes)} repeats"
        return f"<span>slope {self.slope:.4f} ± {self.standard_error:.4f} ({how})</span>"


def fit_rate(n: Sequence[int] | Sequence[float] | Tensor, gaps: Float[Tensor, "*repeats k"]) -> Rate:
    r"""Fit a power law by least squares of :math:`\ln` gap on :math:`\ln n`.

    .. math::
        \hat\beta=\frac{\sum_i(u_i-\bar u)(v_i-\bar v)}{\sum_i(u_i-\bar u)^2},\qquad u=\ln n,\quad v=\ln\text{gap}.

    Args:
        n: ``k`` sample sizes, all positive and not all equal; integers are allowed.
        gaps: positive values at these sizes, ``[k]``, or ``[r, k]`` from ``r >= 2`` independent repeats.

    Returns:
        The slope, its standard error and the intercept. With repeats every row is fitted and the error is
        :math:`s_{\hat\beta}/\sqrt r`, valid however the errors vary with ``n``. Without them it is the
        regression's own, which takes all errors of :math:`v` for independent and of equal variance and any curvature
        for noise: **its interval covers too seldom**. Use it for a glance, not for a verdict.

    Cost: :math:`O(rk)` time and memory.

    Raises:
        TypeError: ``gaps`` is no floating-point tensor, or ``n`` is neither a sequence of numbers nor a tensor.
        ValueError: a size or a gap is not positive and finite, the lengths differ, fewer than 3 sizes without
            repeats (2 with), or a single repeat.

    Source: ordinary least squares (Gauss 1823); the text-book standard error of a slope.

    >>> n = [10, 100, 1000]
    >>> rate = fit_rate(n, 3 / torch.tensor(n, dtype=torch.float64))
    >>> assert abs(rate.slope + 1) < 1e-12 and abs(rate.intercept - math.log(3)) < 1e-12
    """
    validation.finite("gaps", gaps)
    if gaps.ndim not in (1, 2):
        raise ValueError(f"gaps must have shape [k] or [r, k], got {tuple(gaps.shape)}")
    if gaps.ndim == 2 and gaps.shape[0] < 2:
        raise ValueError("gaps must have at least 2 repeats as rows; pass a single one as gaps[0]")
    sizes = _sizes(n, gaps)
    if bool((gaps <= 0).any()):
        raise ValueError(f"gaps must be positive to have a logarithm, got {float(gaps.min())}")
    u, v = sizes.log(), gaps.double().log()
    centred = u - u.mean()
    spread = centred.square().sum()
    slopes = (v * centred).sum(-1) / spread
    intercept = float((v.mean(-1) - slopes * u.mean()).mean())
    if gaps.ndim == 2:
        error = float(slopes.std() / math.sqrt(len(slopes)))
        return Rate(float(slopes.mean()), error, intercept, slopes.to(gaps.dtype))
    residual = v - intercept - slopes * u
    error = float((residual.square().sum() / (len(u) - 2) / spread).sqrt())
    return Rate(float(slopes), error, intercept)


def _sizes(n: Sequence[int] | Sequence[float] | Tensor, gaps: Tensor) -> Tensor:
    """The sample sizes as a float64 vector that fits the gaps."""
    if not isinstance(n, Sequence | Tensor) or isinstance(n, str):
        raise TypeError(f"n must be a sequence of numbers or a tensor, got {type(n).__name__}")
    if not isinstance(n, Tensor):
        # One by one: torch would store a list of floats in single precision.
        n = torch.tensor([validation.number(f"n[{i}]", size) for i, size in enumerate(n)], dtype=torch.float64)
    sizes = n.to(gaps.device)
    if sizes.is_complex() or sizes.dtype == torch.bool:
        raise TypeError(f"n must hold real numbers, got {sizes.dtype}")
    sizes = validation.finite("n", sizes.double(), ndim=1)
    if len(sizes) != gaps.shape[-1]:
        raise ValueError(f"n must have as many entries as gaps has columns ({gaps.shape[-1]}), got {len(sizes)}")
    if bool((sizes <= 0).any()) or float(sizes.min()) == float(sizes.max()):
        raise ValueError(f"n must be positive with at least two different values, got {sizes.tolist()}")
    if gaps.ndim == 1 and len(sizes) < 3:
        raise ValueError(f"n must have at least 3 entries for a standard error without repeats, got {len(sizes)}")
    return sizes
