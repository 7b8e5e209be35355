r"""The representation gap of a generative model: how far the data's law is from what the model can output.

For the set :math:`\Omega_f` of points that a trained model can output and a law :math:`p` on the data manifold
:math:`\Omega`,

.. math::
    \mathcal R(\Omega,\Omega_f)=\int_\Omega\inf_{z\in\Omega_f}d(y,z)^2\,p(y)\,dy .

An ideal diffusion model outputs its training set, an equivariant one the orbits of its training set; then
:math:`\Omega_f` is known, the gap is a quantization error, and it falls like :math:`n^{-2/d}`. This module measures it;
the exact expectations are in :mod:`lib.expectations`, the limits in :mod:`lib.asymptotics`. All that the chapter needs
is imported here.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lib import validation
from lib.asymptotics import (
    asymptotic_gap,
    axis_rotation_law,
    boundary_constant,
    effective_sample_size,
    iid_constant,
    quantization_constant,
)
from lib.diffusion import ideal_denoiser, noise_levels, sample
from lib.expectations import expected_gap, gauss_legendre
from lib.manifolds import (
    Circle,
    CircleDensity,
    Cube,
    FlatTorus,
    Interval,
    Manifold,
    OneDimensional,
    RealProjective,
    Sphere,
    TorusOfRevolution,
)
from lib.neighbours import nearest
from lib.one_dimensional import expect_manifold
from lib.quantization import lloyd, optimal_codebook
from lib.statistics import fit_rate

__all__ = [
    "Circle",
    "CircleDensity",
    "Cube",
    "FlatTorus",
    "Interval",
    "Manifold",
    "RealProjective",
    "Sphere",
    "TorusOfRevolution",
    "asymptotic_gap",
    "axis_rotation_law",
    "boundary_constant",
    "effective_sample_size",
    "exact_gap",
    "expected_gap",
    "fit_rate",
    "gap",
    "gap_curves",
    "ideal_denoiser",
    "iid_constant",
    "lloyd",
    "noise_levels",
    "optimal_codebook",
    "quantization_constant",
    "sample",
    "squared_distances",
]


def gap(
    data: Float[Tensor, "n ambient"],
    points: Float[Tensor, "m ambient"],
    *,
    manifold: Manifold | None = None,
    group: str | None = None,
    chunk_size: int | None = None,
) -> Float[Tensor, ""]:
    r"""Estimate the representation gap from test points.

    .. math::
        \hat{\mathcal R}=\frac1m\sum_{j=1}^m\min_{i\le n}d(y_j,z_i)^2 .

    Args:
        data: ``[n, ambient]``, the points :math:`z_i` that the model can output.
        points: ``[m, ambient]``, independent test points :math:`y_j` from the data's law.
        manifold: the geodesic distance is used, and both clouds must lie on it; the Euclidean distance if omitted,
            which is the one to use for outputs off the manifold.
        group: name of a symmetry group of the manifold: the model outputs the whole orbits of ``data``, and distances
            are measured between orbits, exactly, in the quotient.
        chunk_size: rows per block of the neighbour search.

    Returns:
        The mean of :func:`squared_distances`, in squared units of the coordinates. The minima are exact; the mean is an
        unbiased estimate for this ``data``, with the standard error of a mean of ``m`` values. Two sources of chance
        are left: the test points, and ``data`` itself.

    Cost: one search for ``m`` nearest neighbours among ``n`` points (:func:`lib.neighbours.nearest`).

    Raises:
        TypeError: not two tensors of one real floating dtype, or no manifold.
        ValueError: different widths, points off the manifold, an unknown group, or a group without a manifold.

    Source: Perera et al. (2026, arXiv 2605.21692), Definition 1.

    >>> north, equator = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    >>> assert abs(float(gap(north, equator)) - 2) < 1e-6
    >>> assert abs(float(gap(north, equator, manifold=Sphere(2))) - (torch.pi / 2) ** 2) < 1e-6
    >>> assert float(gap(north, -north, manifold=Sphere(2), group="antipodal")) < 1e-12
    """
    return squared_distances(data, points, manifold=manifold, group=group, chunk_size=chunk_size).mean()


def squared_distances(
    data: Float[Tensor, "n ambient"],
    points: Float[Tensor, "m ambient"],
    *,
    manifold: Manifold | None = None,
    group: str | None = None,
    chunk_size: int | None = None,
) -> Float[Tensor, " m"]:
    r"""Squared distance of each test point to the nearest output.

    .. math::
        \delta_j=\min_{i\le n}d(y_j,z_i)^2,\qquad \hat{\mathcal R}=\frac1m\sum_j\delta_j .

    Arguments, cost and errors are those of :func:`gap`. Given ``data``, the values are independent, so that their
    spread gives the standard error of the gap.

    Args:
        data: ``[n, ambient]``, the points that the model can output.
        points: ``[m, ambient]``, the test points.
        manifold: as in :func:`gap`.
        group: as in :func:`gap`.
        chunk_size: as in :func:`gap`.

    Returns:
        ``[m]`` squared distances, exact up to rounding.

    Source: Perera et al. (2026, arXiv 2605.21692), Definition 1; the reduction to the quotient is derived here.

    >>> values = squared_distances(torch.tensor([[0.1], [0.5]]), torch.tensor([[0.9]]), manifold=Circle(1.0))
    >>> assert abs(float(values[0]) - 0.04) < 1e-7  # around the circle
    """
    validation.points("data", data)
    validation.points("points", points)
    validation.matching("data", data, "points", points)
    if manifold is None:
        if group is not None:
            raise ValueError(f"group must be None without a manifold for it to act on; got {group!r}")
        return nearest(data, points, chunk_size=chunk_size).distances[:, 0].square()
    space, project = _orbit_space(manifold, group)
    data, points = data.detach(), points.detach()
    data, points = project(manifold.check("data", data)), project(manifold.check("points", points))
    found = nearest(space.embed(data), space.embed(points), period=space.period, chunk_size=chunk_size)
    # The embedding orders distances only; the distance itself is the manifold's.
    return space.distance(points, data[found.indices[:, 0]]).square()


def gap_curves(
    manifold: Manifold,
    sizes: Sequence[int],
    *,
    generator: torch.Generator,
    group: str | None = None,
    repeats: int = 20,
    data_sets: int = 4,
    test_points: int = 1000,
) -> Float[Tensor, "repeats k"]:
    r"""Measure the gap of independent data at several sizes, in independent repeats of the whole experiment.

    .. math::
        g_{rk}=\frac1K\sum_{j=1}^K\hat{\mathcal R}\bigl(\Omega,\mathbb D^{(r,j)}_{n_k}\bigr).

    Args:
        manifold: where data and test points are drawn from.
        sizes: the numbers of data points :math:`n_k`, each from 1.
        generator: CPU generator of all data sets and test points.
        group: name of a symmetry group of the manifold; the outputs are then the orbits of the data.
        repeats: rows of the result; a verdict's interval comes from their spread.
        data_sets: number :math:`K` of fresh data sets that each entry averages.
        test_points: fresh test points per data set. On one-dimensional manifolds and quotients there are none: there
            the data are drawn from the law of the quotient and :func:`exact_gap` integrates.

    Returns:
        ``[repeats, k]`` in float64; every entry is an unbiased estimate of the expected gap at its size, and all
        entries are independent.

    Cost: ``repeats * data_sets`` neighbour searches, or one sort of all data, per size.

    Raises:
        TypeError: a number that is no integer, ``sizes`` no sequence, or another argument of the wrong type.
        ValueError: an empty list of sizes, a number below 1, an unknown group.

    Source: derived here.

    >>> curves = gap_curves(Circle(), [4, 8], generator=torch.Generator().manual_seed(0), repeats=2, data_sets=4000)
    >>> expected = torch.tensor([1 / 60, 1 / 180], dtype=torch.float64)  # L^2 / (2 (n+1) (n+2))
    >>> assert bool(((curves / expected - 1).abs() < 0.05).all())
    """
    if not isinstance(sizes, Sequence) or isinstance(sizes, str):
        raise TypeError(f"sizes must be a sequence of integers, got {type(sizes).__name__}")
    if not sizes:
        raise ValueError("sizes must not be empty")
    validation.generator("generator", generator)
    many = validation.count("repeats", repeats) * validation.count("data_sets", data_sets)
    validation.count("test_points", test_points)
    space, _ = _orbit_space(manifold, group)
    columns = []
    for i, size in enumerate(sizes):
        n = validation.count(f"sizes[{i}]", size)
        if isinstance(space, OneDimensional):
            # The projected points have the quotient's law: to draw them there is cheaper than to project them.
            gaps = exact_gap(space.sample(many * n, generator=generator).reshape(many, n, 1), manifold=space)
        else:
            data = manifold.sample(many * n, generator=generator).reshape(many, n, manifold.ambient_dim)
            tests = manifold.sample(many * test_points, generator=generator).reshape(many, test_points, -1)
            pairs = zip(data, tests, strict=True)
            gaps = torch.stack([gap(points, test, manifold=manifold, group=group) for points, test in pairs])
        columns.append(gaps.reshape(repeats, data_sets).mean(1))
    return torch.stack(columns, 1)


def _orbit_space(manifold: Manifold, group: str | None) -> tuple[Manifold, Callable[[Tensor], Tensor]]:
    """The quotient and the map to it; without a group the manifold itself."""
    expect_manifold(manifold)
    if group is None:
        return manifold, lambda x: x
    quotient = manifold.quotient(group)
    return quotient.manifold, quotient.project


def exact_gap(
    data: Float[Tensor, "*repeats n ambient"], *, manifold: Manifold, group: str | None = None
) -> Float[Tensor, "*repeats"]:
    r"""The gap with the integral over the test law done exactly, on one-dimensional manifolds and quotients.

    Between two neighbours at distance :math:`g` each one is nearest on its half,

    .. math::
        \mathcal R=\sum_i\int_0^{g_i/2}t^2\,\bigl[p(z_{(i)}+t)+p(z_{(i+1)}-t)\bigr]\,dt,

    with whole pieces outside the outermost points of an interval. On a uniform circle of length :math:`L` it is
    :math:`\sum_ig_i^3/(12L)`.

    Args:
        data: ``[n, ambient]`` points, or ``[..., n, ambient]`` for independent repeats.
        manifold: a :class:`~lib.one_dimensional.Circle`, :class:`~lib.one_dimensional.CircleDensity` or
            :class:`~lib.one_dimensional.Interval`, or a manifold with such a quotient.
        group: name of the group that leads to the quotient.

    Returns:
        One gap per repeat, without sampling error. Gauss-Legendre quadrature on each half gap, with 6 nodes, or 16
        plus twice the power of the sine where it is longer than a fiftieth of the length. The error is below 1e-12 of
        the squared length (checked for powers of the sine up to 200).

    Cost: a sort, and 12 or 32 (and more for powers of the sine) evaluations of the density per point; on a
    uniform circle none. Memory of a few copies
    of the data.

    Raises:
        TypeError: ``data`` is no floating-point tensor, or ``manifold`` no manifold.
        ValueError: fewer than two axes, points off the manifold, an unknown group, or a space of another dimension.

    Source: derived here.

    >>> data = torch.tensor([[0.0], [0.5]], dtype=torch.float64)
    >>> assert abs(float(exact_gap(data, manifold=Circle(1.0))) - 1 / 48) < 1e-15
    """
    validation.finite("data", data)
    space, project = _orbit_space(manifold, group)
    if data.ndim < 2:
        raise ValueError(f"data must have shape [..., n, {manifold.ambient_dim}], got {tuple(data.shape)}")
    data = project(manifold.check("data", data))
    if not isinstance(space, OneDimensional):
        raise ValueError(f"manifold must be a circle or an interval, or have such a quotient; got {space.name}")
    length = space.volume
    x = data[..., 0] if space.period is None else torch.remainder(data[..., 0], length)
    x = x.sort(-1).values
    first, last = x[..., :1], x[..., -1:]
    if space.period is None:
        # Half gaps, seen from the point on their left and from the one on their right, and the two outer pieces.
        half = x.diff(dim=-1) / 2
        rightward, leftward = torch.cat((half, length - last), -1), torch.cat((first, half), -1)
    else:
        rightward = torch.cat((x, first + length), -1).diff(dim=-1) / 2
        leftward = rightward.roll(1, -1)
    if space.period is not None and space.uniform:
        return 2 / (3 * length) * (rightward**3).sum(-1)
    # Towards the left the density is read backwards; a batch of pieces is one list of starts, lengths and directions.
    starts, pieces = torch.cat((x, x), -1), torch.cat((rightward, -leftward), -1)
    short = pieces.abs() < length / 50
    total = torch.empty_like(pieces)
    for chosen, nodes in ((short, 6), (~short, 16 + 2 * getattr(space, "sine_power", 0))):
        # Blocks that stay in the cache: the work is a few operations on each of many numbers.
        blocks = zip(torch.split(starts[chosen], 1 << 15), torch.split(pieces[chosen], 1 << 15), strict=True)
        total[chosen] = torch.cat([_second_moment(space, *block, nodes=nodes) for block in blocks] or [x.new_empty(0)])
    return total.sum(-1)


def _second_moment(space: OneDimensional, start: Tensor, piece: Tensor, *, nodes: int) -> Tensor:
    """The integral of t^2 p over each piece, t the distance from its start; a negative length goes to the left."""
    total = torch.zeros_like(piece)
    for s, w in zip(*(part.tolist() for part in gauss_legendre(nodes)), strict=True):
        step = s * piece
        total += w * step**2 * space.pdf(start + step)
    return total * piece.abs()
