"""The intrinsic dimension of a point cloud, from the representation gap, from two neighbours, or from many."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import betainc
from torch import Tensor

from lib import validation
from lib.neighbours import Neighbours, nearest, self_neighbours
from lib.statistics import fit_rate

Splits = Literal["disjoint", "random"]

TABLE_LIMIT = 4096
"""Up to so many points, random splits share one table of all distances (134 MB) instead of searching again."""


@dataclass(frozen=True, eq=False)
class Dimension:
    """An estimated dimension.

    Attributes:
        value: the estimate.
        standard_error: of the value, for clouds drawn anew; what it leaves out is said by the method's docstring.
        method: ``"gap"``, ``"twonn"`` or ``"mle"``.
        sizes: the codebook sizes, for ``"gap"``.
        slopes: ``[repeats]``, one exponent of the gap per repeat, for ``"gap"``; each gives a dimension ``-2 / slope``.
        curvature: the coefficient of the squared logarithm of ``n`` in the mean log gap, for ``"gap"``: 0 if the power
            law holds over the whole range, positive where the gap falls ever more slowly.
    """

    value: float
    standard_error: float
    method: str
    sizes: tuple[int, ...] | None = None
    slopes: Tensor | None = None
    curvature: float | None = None

    def _repr_html_(self) -> str:
        return f"<span>dimension {self.value:.3f} ± {self.standard_error:.3f} ({self.method})</span>"


def intrinsic_dimension(
    points: Float[Tensor, "n d"], *, method: Literal["gap", "twonn", "mle"] = "gap", **options: Any
) -> Dimension:
    r"""Estimate the intrinsic dimension of a cloud by one of three methods.

    .. math::
        \mathcal R_n\propto n^{-2/d}\;(\text{gap}),\qquad
        \Pr(r_2/r_1>\mu)=\mu^{-d}\;(\text{twonn}),\qquad
        \mathbb E\ln(r_k/r_j)=\tfrac1d\sum_{i=j}^{k-1}\tfrac1i\;(\text{mle}).

    Args:
        points: the cloud, shape ``[n, d]``, any unit.
        method: ``"gap"`` is :func:`gap_dimension`, ``"twonn"`` is :func:`twonn`, ``"mle"`` is :func:`mle`.
        options: the keyword arguments of that function.

    Returns:
        The estimate with its standard error. All three take the density for constant over the distances that they
        use, and all three are biased low in high dimension.

    Cost: that of the method.

    Raises:
        TypeError: as the method, or an option that the method does not have.
        ValueError: as the method.

    Source: see the three functions.

    >>> angle = 7 * torch.rand(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> helix = torch.stack([angle.cos(), angle.sin(), angle], 1)
    >>> found = intrinsic_dimension(helix, method="mle", k=10)
    >>> assert abs(found.value - 1) < 3 * found.standard_error
    """
    validation.choice("method", method, ("gap", "twonn", "mle"))
    if method == "gap":
        return gap_dimension(points, **options)
    return twonn(points, **options) if method == "twonn" else mle(points, **options)


def gap_curve(
    points: Float[Tensor, "n d"],
    *,
    generator: torch.Generator,
    sizes: Sequence[int] | None = None,
    repeats: int = 5,
    splits: Splits = "disjoint",
    chunk_size: int | None = None,
) -> tuple[tuple[int, ...], Float[Tensor, "repeats k"]]:
    r"""Measure the representation gap of random subsets of growing size on held-out points.

    .. math:: \mathcal R_n=\frac1m\sum_{j=1}^m\min_{i\le n}|y_j-x_i|^2,\qquad n=n_1<\dots<n_k.

    Within a repeat the subsets are nested, and one pass over the distances serves all sizes: the minimum over
    :math:`x_1,\dots,x_{n_2}` is the smaller of the minima over :math:`x_1,\dots,x_{n_1}` and over the new points.

    Args:
        points: the cloud, shape ``[n, d]``, any unit; the gaps are in its square.
        generator: draws the order of the points, on the CPU.
        sizes: codebook sizes, at least 3, strictly ascending. Omitted: up to six sizes, each half of the next (rounded
            down), from at least 8 to half of the points of a repeat.
        repeats: number of repeats, at least 2.
        splits: ``"disjoint"`` deals the cloud into ``repeats`` parts of ``n // repeats`` points, one for each repeat,
            so that the repeats are independent if the points are. ``"random"`` shuffles the whole cloud anew for
            each repeat, which allows larger codebooks, but the repeats share points. Either way the points of a
            repeat beyond its largest codebook are its test points.
        chunk_size: the memory knob of :func:`lib.neighbours.nearest`.

    Returns:
        The sizes, and the gaps, shape ``[repeats, k]`` in float64, exact for the drawn subsets (for random splits of up
        to 4096 points to a relative 1e-6, as their distances come from one table; gaps that are too small for it,
        below 1e-8 of the squared radius of the cloud, are searched again).

    Cost: the time of one nearest-neighbour search of all test points in the largest codebook, per repeat; for random
    splits of up to 4096 points one table of :math:`n^2` distances, and a look-up per repeat.

    Raises:
        TypeError: ``points`` no real floating-point tensor, ``generator`` no generator, ``sizes`` no integers.
        ValueError: too few points for the sizes, sizes that do not ascend, fewer than 2 repeats.

    Source: the gap is that of *The Representation Gap* (arXiv 2605.21692), with data in the place of model outputs.

    >>> grid = torch.arange(640, dtype=torch.float64)[:, None]
    >>> sizes, gaps = gap_curve(grid, generator=torch.Generator().manual_seed(0))
    >>> sizes
    (8, 16, 32, 64)
    >>> assert bool((gaps.diff(dim=1) <= 0).all())  # a larger codebook is never farther away
    """
    points = validation.points("points", points).detach()
    validation.generator("generator", generator)
    validation.count("repeats", repeats, minimum=2)
    validation.choice("splits", splits, ("disjoint", "random"))
    share = len(points) // repeats if splits == "disjoint" else len(points)
    chosen = _sizes(sizes, share, f"{splits} splits of {len(points)} points in {repeats} repeats")
    gaps = torch.empty(repeats, len(chosen), dtype=torch.float64)
    order = torch.randperm(len(points), generator=generator)
    tabled = splits == "random" and len(points) <= TABLE_LIMIT and points.device.type != "mps"  # MPS has no float64
    table, radius = _table(points) if tabled else (None, 0.0)
    for r in range(repeats):
        if splits == "random":
            part = order if r == 0 else torch.randperm(len(points), generator=generator)
        else:
            part = order[r * share : (r + 1) * share]
        part = part.to(points.device)
        gaps[r] = _nested(points, part, chosen, table, chunk_size)
        if table is not None and float(gaps[r].min()) < 1e-8 * radius:
            gaps[r] = _nested(points.double(), part, chosen, None, chunk_size)
    return chosen, gaps


def _nested(
    points: Tensor, part: Tensor, chosen: tuple[int, ...], table: Tensor | None, chunk_size: int | None
) -> Tensor:
    """The gaps of one repeat, from the table of squared distances or by search."""
    test, start, least, gaps = part[chosen[-1] :], 0, None, []
    for n in chosen:
        if table is None:
            found = nearest(points[part[start:n]], points[test], chunk_size=chunk_size).distances[:, 0]
            found = found.double().square()
        else:
            # Whole rows of the table lie together in memory: faster than to pick the test points first.
            found = table[part[start:n]].amin(0)[test]
        least = found if least is None else torch.minimum(least, found)
        gaps.append(least.mean().cpu())
        start = n
    return torch.stack(gaps)


def _table(points: Tensor) -> tuple[Tensor, float]:
    """All squared distances in float64, and the squared radius of the cloud.

    The cloud is centred, so that the expanded square loses only rounding of the radius.
    """
    wide = points.double() - points.double().mean(0)
    norms = wide.square().sum(1)
    return torch.addmm(norms[:, None] + norms, wide, wide.T, alpha=-2.0).clamp_(min=0), float(norms.max())


def _sizes(sizes: Sequence[int] | None, share: int, source: str) -> tuple[int, ...]:
    if sizes is None:
        chosen = tuple(n for n in (share // 2 >> j for j in range(5, -1, -1)) if n >= 8)
        if len(chosen) < 3:
            raise ValueError(f"points must leave at least 64 to each repeat for the default sizes, got {source}")
        return chosen
    if not isinstance(sizes, Sequence) or isinstance(sizes, str):
        raise TypeError(f"sizes must be a sequence of integers, got {type(sizes).__name__}")
    chosen = tuple(validation.count(f"sizes[{i}]", n) for i, n in enumerate(sizes))
    if len(chosen) < 3 or any(a >= b for a, b in itertools.pairwise(chosen)):
        raise ValueError(f"sizes must be at least 3 strictly ascending integers, got {chosen}")
    if chosen[-1] >= share:
        raise ValueError(f"sizes must stay below the {share} points of a repeat, got {chosen[-1]} with {source}")
    return chosen


def gap_dimension(
    points: Float[Tensor, "n d"],
    *,
    generator: torch.Generator,
    sizes: Sequence[int] | None = None,
    repeats: int = 5,
    splits: Splits = "disjoint",
    chunk_size: int | None = None,
) -> Dimension:
    r"""Estimate the dimension from the rate at which the representation gap falls with the size of the codebook.

    .. math:: \hat d=-\frac2{\hat\beta},\qquad\hat\beta=\text{slope of }\ln\mathcal R_n\text{ on }\ln n.

    The slope is that of the range of sizes, not of the limit: on a sphere of dimension 14 the sizes 10 to 250 give
    11.0. :func:`calibrated_dimension` removes this bias for spheres, and ``curvature`` shows it for any cloud.

    Args:
        points: the cloud, shape ``[n, d]``, any unit.
        generator: as in :func:`gap_curve`.
        sizes: as in :func:`gap_curve`.
        repeats: as in :func:`gap_curve`.
        splits: as in :func:`gap_curve`.
        chunk_size: as in :func:`gap_curve`.

    Returns:
        :math:`\hat d` from the mean slope. Its standard error is :math:`\hat d^2/2` times that of the mean slope,
        which is the spread of the repeats divided by the root of their number. With ``"disjoint"`` splits it is
        valid as it stands; with ``"random"`` ones it knows only the splitting, not the drawing of the cloud, and is too
        small (by 15 % with 10 splits of 600 points; by any factor as the splits multiply).

    Cost: that of :func:`gap_curve`.

    Raises:
        TypeError: as :func:`gap_curve`.
        ValueError: as :func:`gap_curve`, or a gap that is zero, or does not fall with the size.

    Source: *The Representation Gap* (arXiv 2605.21692), its random-codebook variant; the standard error derived here.

    >>> square = torch.rand(8000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> found = gap_dimension(square, generator=torch.Generator().manual_seed(1))
    >>> assert abs(found.value - 2) < 0.2 and found.standard_error < 0.1
    """
    chosen, gaps = gap_curve(
        points, generator=generator, sizes=sizes, repeats=repeats, splits=splits, chunk_size=chunk_size
    )
    if float(gaps.min()) == 0:
        raise ValueError("points must be mostly distinct: every test point has a duplicate in a codebook")
    rate = fit_rate(chosen, gaps)
    if rate.slope >= 0:
        raise ValueError(f"points must have a gap that falls with the codebook's size, got slope {rate.slope:.3g}")
    value = -2 / rate.slope
    powers = np.polyfit(np.log(chosen), gaps.log().mean(0).numpy(), 2)
    return Dimension(value, value**2 / 2 * rate.standard_error, "gap", chosen, rate.slopes, float(powers[0]))


def expected_estimate(d: float | int, sizes: Sequence[int]) -> float:
    r"""The estimate of :func:`gap_dimension` on the sphere of dimension ``d``, without noise.

    .. math::
        -\frac2{\hat d}=\text{slope of }\ln\mathbb E\mathcal R_n,\qquad
        \mathbb E\mathcal R_n=4\int_0^1\bigl(1-I_s(\tfrac d2,\tfrac d2)\bigr)^n\,ds,

    where :math:`I_s(d/2,d/2)` is the mass of the ball of squared chord :math:`4s` on :math:`S^d` (derived here: the law
    of :math:`(1-\langle y,x\rangle)/2` is Beta). The radius of the sphere cancels.

    Args:
        d: the dimension, from 0.5 to 1000; it need not be whole.
        sizes: at least 2 different codebook sizes.

    Returns:
        The estimate, exact for the logarithm of the *expected* gap; quadrature error below 1e-10, by the
        trapezoid rule in :math:`\ln(s/(1-s))`, which converges geometrically here.

    Cost: time and memory :math:`O(k d)` for ``k`` sizes, with some 2,000 nodes per unit of ``d``.

    Raises:
        TypeError: ``d`` no number, ``sizes`` no integers.
        ValueError: ``d`` out of range, fewer than 2 different sizes.

    Source: derived here.

    >>> slope = math.log((4 / 101) / (4 / 11)) / math.log(10)  # on the 2-sphere the gap is exactly 4 / (n + 1)
    >>> assert abs(expected_estimate(2, [10, 100]) - -2 / slope) < 1e-9
    """
    d = validation.number("d", d, at_least=0.5, below=1000.0 + 1e-9)
    n = np.array([validation.count(f"sizes[{i}]", size) for i, size in enumerate(sizes)], dtype=float)
    if len(set(n)) < 2:
        raise ValueError(f"sizes must hold at least 2 different integers, got {tuple(sizes)}")
    # Left of ln s = -2 ln(n) / d nothing is within reach and s itself decays; 40 units further the rest is 1e-17.
    low, step = -40 - 2 * math.log(n.max()) / d, min(0.05, 0.25 / d)
    y = np.arange(low, 40, step)
    s, rest = 1 / (1 + np.exp(-y)), 1 / (1 + np.exp(y))
    with np.errstate(divide="ignore"):  # the far end of the sphere has mass zero
        logs = np.log(betainc(d / 2, d / 2, rest))
    expected = [4 * step * float(np.sum(s * rest * np.exp(size * logs))) for size in n]
    return -2 / float(np.polyfit(np.log(n), np.log(expected), 1)[0])


def calibrated_dimension(estimate: float | int, sizes: Sequence[int]) -> float:
    r"""The dimension of the sphere on which :func:`gap_dimension` would be expected to give ``estimate``.

    .. math:: \text{the } d \text{ with } \hat d(d)=\hat d,

    :math:`\hat d(\cdot)` being :func:`expected_estimate`, which increases with ``d`` (Brent's method). It removes
    the bias that a sphere of this dimension has; that by boundary, density or another curvature stays.

    Args:
        estimate: a value of :func:`gap_dimension`, positive; to calibrate a standard error, calibrate each repeat.
        sizes: the codebook sizes that gave it.

    Returns:
        The dimension, to 1e-9.

    Cost: about 20 calls of :func:`expected_estimate`.

    Raises:
        TypeError: as :func:`expected_estimate`.
        ValueError: as :func:`expected_estimate`, or no dimension from 0.5 to 1000 gives this estimate.

    Source: derived here.

    >>> sizes = [10, 50, 100, 250]
    >>> assert abs(calibrated_dimension(expected_estimate(7, sizes), sizes) - 7) < 1e-8
    """
    validation.number("estimate", estimate, above=0.0)
    low, high = 0.5, 2.0
    least = expected_estimate(low, sizes)
    while high < 1000 and expected_estimate(high, sizes) < estimate:
        low, high = high, min(2 * high, 1000.0)
    if estimate < least or expected_estimate(high, sizes) < estimate:
        raise ValueError(
            f"estimate must lie between {least:.4g} and {expected_estimate(1000.0, sizes):.4g}, those of the spheres "
            f"of dimension 0.5 and 1000 with these sizes; got {estimate}"
        )
    return float(brentq(lambda d: expected_estimate(d, sizes) - estimate, low, high, xtol=1e-10))


def twonn(
    points: Float[Tensor, "n d"],
    *,
    estimator: Literal["mle", "fit"] = "mle",
    discard: float = 0.1,
    chunk_size: int | None = None,
) -> Dimension:
    r"""Estimate the dimension from the ratio of the distances to the first two neighbours.

    .. math:: \hat d=\frac{n-1}{\sum_i\ln\mu_i},\qquad\mu_i=\frac{r_2(x_i)}{r_1(x_i)},

    or, with ``estimator="fit"``, the slope through the origin of :math:`-\ln(1-i/n)` on the ascending
    :math:`\ln\mu_{(i)}`, without the largest ratios. In a flat space of constant density :math:`\ln\mu_i` is
    exponential of rate ``d``.

    Args:
        points: the cloud, shape ``[n, d]``, any unit, without duplicates.
        estimator: ``"mle"`` is the maximum likelihood with the factor ``n - 1`` that makes it unbiased for independent
            ratios; ``"fit"`` is the line of the article, 0.5 to 1 % off the other and less sensitive to outliers.
        discard: share of the largest ratios that ``"fit"`` leaves out, in [0, 1); at 0 it still leaves out the last,
            for which the logarithm is infinite. ``"mle"`` uses all.
        chunk_size: the memory knob of :func:`lib.neighbours.self_neighbours`.

    Returns:
        The estimate. Its standard error is :math:`\hat d/\sqrt n` for ``"mle"``, and by linearization for ``"fit"``
        (derived here), times the root of the factor by which neighbours that share points widen the variance
        of a mean: :math:`\sum_{i\sim j}c_ic_j/\sum_ic_i^2` with :math:`c` the deviations of :math:`\ln\mu` and
        :math:`i\sim j` if one is among the two neighbours of the other or :math:`i=j`; at least 1, and about
        1.5 in practice, so that the usual :math:`\hat d/\sqrt n` is a fifth too small. Bias by curvature, boundary
        and density is not in it.

    Cost: that of :func:`lib.neighbours.self_neighbours` with ``k = 2``, and :math:`O(n\log n)`.

    Raises:
        TypeError: ``points`` no real floating-point tensor.
        ValueError: fewer than 4 points, duplicates (drop them by ``torch.unique(points, dim=0)``), a lattice, on
            which the ratios are 1, or a ``discard`` that leaves fewer than 2 ratios.

    Source: Facco, d'Errico, Rodriguez and Laio (2017), eqs. (2)-(5); maximum likelihood: Denti et al. (2022).

    >>> flat = torch.rand(4000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> found = twonn(flat)
    >>> assert abs(found.value - 2) < 3 * found.standard_error
    """
    validation.points("points", points, min_rows=4)
    validation.choice("estimator", estimator, ("mle", "fit"))
    validation.number("discard", discard, at_least=0.0, below=1.0)
    found, logs = _log_ratios(points, 2, chunk_size)
    x = logs[:, 0]
    n = len(x)
    lattice = "points must not form a lattice: both neighbours of {} point are at the same distance"
    if float(x.sum()) == 0:
        raise ValueError(lattice.format("every"))
    if estimator == "mle":
        value = (n - 1) / float(x.sum())
        relative = 1 / math.sqrt(n)
    else:
        kept = min(math.floor(n * (1 - discard) + 1e-9), n - 1)
        if kept < 2:
            raise ValueError(f"discard must leave at least 2 of {n} ratios, got {discard}")
        rank = torch.arange(1, kept + 1, dtype=x.dtype, device=x.device)
        height = -torch.log1p(-rank / n)
        small = x.sort().values[:kept]
        if float(small.sum()) == 0:
            raise ValueError(lattice.format("every kept"))
        value = float(height @ small / small.square().sum())
        # x_(i) is a sum of independent exponentials Z_j / (n - j + 1), j <= i (Renyi); the fit is linearized in them.
        weights = height.flip(0).cumsum(0).flip(0) / (n - rank + 1)
        relative = float(weights.square().sum().sqrt() / height.square().sum())
    return Dimension(value, value * relative * math.sqrt(_shared(x, found)), "twonn")


def mle(points: Float[Tensor, "n d"], *, k: int = 20, chunk_size: int | None = None) -> Dimension:
    r"""Estimate the dimension from the distances to ``k`` neighbours, averaging inverses over the points.

    .. math:: \frac1{\hat d}=\frac1{n(k-1)}\sum_i\sum_{j<k}\ln\frac{r_k(x_i)}{r_j(x_i)}.

    In a flat space of constant density the inner sum has mean :math:`(k-1)/d`, so that the inverse is unbiased.
    Dividing by :math:`k-2` belongs to the average of the *estimates*; together with averaged inverses, as in the public
    code of Pope et al. (2021), it makes the result too small by the factor :math:`(k-2)/(k-1)`.

    Args:
        points: the cloud, shape ``[n, d]``, any unit, without duplicates.
        k: number of neighbours, at least 2; with 2 this is ``twonn`` up to the factor ``n / (n - 1)``. The default is
            that of the article's tables; larger ``k`` means less noise and more bias by curvature and boundary.
        chunk_size: the memory knob of :func:`lib.neighbours.self_neighbours`.

    Returns:
        The estimate. Its standard error is :math:`\hat d/\sqrt{n(k-1)}` times the root of the factor explained
        in :func:`twonn`, for ``k`` neighbours; about 10 % too small at ``k = 20`` and ``n = 1000``, as points that are
        not neighbours can still share some. Bias by curvature, boundary and density is not in it.

    Cost: that of :func:`lib.neighbours.self_neighbours`, and :math:`O(nk\log(nk))`.

    Raises:
        TypeError: ``points`` no real floating-point tensor, ``k`` no integer.
        ValueError: ``k`` out of range, duplicates (drop them by ``torch.unique(points, dim=0)``) or a lattice.

    Source: Levina and Bickel (2004), eq. (8); averaging inverses: MacKay and Ghahramani (2005).

    >>> flat = torch.rand(4000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> found = mle(flat, k=5)
    >>> assert abs(found.value - 1) < 3 * found.standard_error
    """
    validation.points("points", points, min_rows=4)
    validation.count("k", k, minimum=2)
    found, logs = _log_ratios(points, k, chunk_size)
    inverse = logs.mean(1)
    if float(inverse.sum()) == 0:
        raise ValueError("points must not form a lattice: all neighbours of every point are at the same distance")
    value = 1 / float(inverse.mean())
    naive = value / math.sqrt(len(points) * (k - 1))
    return Dimension(value, naive * math.sqrt(_shared(inverse, found)), "mle")


def _log_ratios(points: Tensor, k: int, chunk_size: int | None) -> tuple[Neighbours, Tensor]:
    """The logarithms of the ``k``-th distance over the closer ones, ``[n, k - 1]``."""
    cloud = points if points.device.type == "mps" else points.double()
    found = self_neighbours(cloud, k=k, chunk_size=chunk_size)
    twins = int((found.distances[:, 0] == 0).sum())
    if twins:
        raise ValueError(f"points must be distinct, got {twins} with a duplicate; torch.unique(points, dim=0) helps")
    return found, (found.distances[:, -1:] / found.distances[:, :-1]).log()


def _shared(values: Tensor, found: Neighbours) -> float:
    """The factor, at least 1, by which correlations between neighbours widen the variance of the mean of ``values``."""
    n = len(values)
    deviation = (values - values.mean()).cpu()
    first = torch.arange(n)[:, None].expand(found.indices.shape)
    second = found.indices.cpu()
    # A pair counts once, also when each is a neighbour of the other.
    pairs = torch.unique(torch.minimum(first, second) * n + torch.maximum(first, second))
    joint = 2 * float(deviation[pairs // n] @ deviation[pairs % n])
    own = float(deviation.square().sum())
    return max(1.0, 1 + joint / own) if own > 0 else 1.0
