r"""Quantization: :math:`n` points that stand for a whole distribution with the least mean squared distance.

A codebook :math:`c_1,\dots,c_n` has the distortion :math:`R=\mathbb E\min_i d(X,c_i)^2`. For a finite cloud
:func:`lib.lloyd.lloyd` (imported here too) improves a codebook step by step; on the manifolds of the book the best
codebook is known, or nearly so.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import LinAlgError, solveh_banded
from scipy.spatial import cKDTree
from torch import Tensor

from lib import validation
from lib.lloyd import Codebook, lloyd
from lib.manifolds import Circle, CircleDensity, Cube, FlatTorus, Interval, Manifold, OneDimensional, Sphere

__all__ = ["Codebook", "fibonacci_sphere", "lloyd", "optimal_codebook"]

# For one cell of a one-dimensional codebook: exact to rounding for the smooth densities of the book.
_NODES, _WEIGHTS = (torch.from_numpy(values) for values in np.polynomial.legendre.leggauss(32))


def fibonacci_sphere(n: int, *, radius: float = 1.0) -> Float[Tensor, "n 3"]:
    r"""Spread ``n`` points evenly over a sphere in space: the Fibonacci lattice with half offset.

    .. math:: z_i = 1 - \frac{2i+1}{n}, \qquad \varphi_i = \frac{2\pi i}{\Phi}, \qquad \Phi = \frac{1+\sqrt5}2.

    Args:
        n: number of points, at least 1.
        radius: radius of the sphere, positive.

    Returns:
        Points, float64 ``[n, 3]``. As a codebook it is near-optimal, not optimal: for 64 points and more
        :math:`n R/r^2` is 2.07 to 2.10 (measured here), against the limit :math:`10\pi/(9\sqrt3)=2.0153` of the best.

    Source: Swinbank and Purser (2006), *Fibonacci grids: a novel approach to global modelling*.

    >>> points = fibonacci_sphere(1000)
    >>> assert torch.allclose(points.square().sum(1), torch.ones(1000).double())
    >>> assert float(points.mean(0).norm()) < 1e-3
    """
    validation.count("n", n)
    validation.number("radius", radius, above=0.0)
    i = torch.arange(n, dtype=torch.float64)
    z = 1 - (2 * i + 1) / n
    ring = torch.sqrt((1 - z) * (1 + z))
    azimuth = 2 * math.pi * torch.remainder(i * (math.sqrt(5) - 1) / 2, 1)
    return radius * torch.stack((ring * torch.cos(azimuth), ring * torch.sin(azimuth), z), 1)


def optimal_codebook(manifold: Manifold, n: int, *, group: str | None = None) -> Codebook:
    r"""Return the best known codebook of ``n`` points for a manifold's own law, geodesic distance.

    In one dimension a best codebook solves the centroid condition of Lloyd and Max,

    .. math:: \int_{e_{i}}^{e_{i+1}} (x - c_i)\,p(x)\,dx = 0, \qquad e_i = \tfrac12 (c_{i-1} + c_i).

    ==============================================  ==========================================================
    manifold                                        codebook; what is known of it
    ==============================================  ==========================================================
    ``Circle``, ``Interval`` with a uniform law     equal cells; optimal, exact
    ``Interval`` with a sine power                  Newton's method on the centroid condition; optimal, because the
                                                    density is log-concave and the solution then unique
    ``CircleDensity``                               the better of the two solutions that are symmetric about the mode;
                                                    satisfies the condition, best among symmetric ones
    ``Sphere(2)``                                   :func:`fibonacci_sphere`; near-optimal (about 4 % above)
    ``FlatTorus(d)``, ``Cube(d)``, n = k^d          the grid of k^d cell centres; near-optimal for d >= 2 (for d = 2
                                                    the hexagonal lattice is 3.9 % better), optimal for d = 1
    ==============================================  ==========================================================

    Args:
        manifold: the manifold with its law.
        n: number of points, at least 1.
        group: a symmetry; the codebook is then that of the quotient, in the quotient's coordinates.

    Returns:
        The codebook, float64 on the CPU. Its ``method`` says "optimal" or "near-optimal". The distortion is a closed
        form for equal cells and grids, exact to about 1e-13 relative by Gauss-Legendre quadrature in one dimension,
        and for the sphere a mean over a lattice of 200 n (at least 200,000) other points, relative error below 1e-3.

    Raises:
        ValueError: no codebook is known here for this manifold, or not for this ``n``, or the group does not act.

    Source: Lloyd (1982) and Max (1960); uniqueness: Fleischer (1964). Newton's method and the symmetric reduction of
    the circle: derived here.

    >>> from lib.manifolds import Circle, Sphere
    >>> assert optimal_codebook(Circle(2.0), 5).distortion == 2.0**2 / (12 * 5**2)
    >>> latitudes = optimal_codebook(Sphere(2), 64, group="axis")
    >>> assert abs(64**2 * latitudes.distortion - 0.7153) < 1e-4
    """
    validation.count("n", n)
    if not isinstance(manifold, Manifold):
        raise TypeError(f"manifold must be a lib.manifolds.Manifold, got {type(manifold).__name__}")
    target = manifold if group is None else manifold.quotient(group).manifold
    if isinstance(target, Circle | CircleDensity | Interval):
        if target.uniform:
            points = (torch.arange(n, dtype=torch.float64) + 0.5) * (target.volume / n)
            return Codebook(points[:, None], target.volume**2 / (12 * n**2), "optimal: equal cells")
        if isinstance(target, CircleDensity):
            return _symmetric(target, n)
        points, distortion = _lloyd_max(target, target.volume, n, (False, False))
        return Codebook(points[:, None], distortion, "optimal: Lloyd-Max, unique solution")
    if type(target) is Sphere and target.dim == 2:
        points = fibonacci_sphere(n, radius=target.radius)
        return Codebook(points, _sphere_distortion(points, target.radius), "near-optimal: Fibonacci lattice")
    if isinstance(target, Cube | FlatTorus):
        return _grid(target.dim, n)
    raise ValueError(
        f"manifold must be (or have as quotient) a Circle, CircleDensity, Interval, Sphere(2), FlatTorus or Cube; "
        f"got {target.name}"
    )


def _grid(dim: int, n: int) -> Codebook:
    k = round(n ** (1 / dim))
    if k**dim != n:
        raise ValueError(f"n must be a power k^{dim} for a grid in dimension {dim}, got {n}")
    axis = (torch.arange(k, dtype=torch.float64) + 0.5) / k
    points = torch.cartesian_prod(*[axis] * dim).reshape(n, dim)
    return Codebook(points, dim / (12 * k**2), "optimal: equal cells" if dim == 1 else "near-optimal: grid")


def _sphere_distortion(points: Tensor, radius: float) -> float:
    # The axes are exchanged, so that the test lattice has no symmetry in common with the codebook.
    test = fibonacci_sphere(max(200 * len(points), 200_000)).roll(1, dims=1)
    chord = cKDTree((points / radius).numpy()).query(test.numpy())[0]
    return float(radius**2 * np.square(2 * np.arcsin(chord / 2)).mean())


def _symmetric(circle: CircleDensity, n: int) -> Codebook:
    """The two codebooks that are symmetric about the mode: each is one for half the circle, mirrored."""
    # A centre or a border of two cells may lie on each of the two mirror points: both alike for even n.
    options = [(False, False), (True, True)] if n % 2 == 0 else [(True, False), (False, True)]
    results = [(_lloyd_max(circle, circle.volume / 2, (n + sum(ends)) // 2, ends), ends) for ends in options]
    (half, distortion), ends = min(results, key=lambda result: result[0][1])
    mirrored = circle.volume - half[int(ends[0]) : len(half) - int(ends[1])]
    points = torch.cat([half, mirrored.flip(0)])
    return Codebook(points[:, None], 2 * distortion, "near-optimal: Lloyd-Max, best of the symmetric solutions")


def _lloyd_max(law: OneDimensional, high: float, m: int, ends: tuple[bool, bool]) -> tuple[Tensor, float]:
    """Solve the centroid condition for ``m`` centres on ``[0, high]``; ``ends`` fixes the first, the last at an end.

    Newton's method with steps that keep the order and reduce the residual, and a step of Lloyd's where it has none.
    """
    free = slice(int(ends[0]), m - int(ends[1]))
    centres = _companding(law, high, m, ends)
    residual, step, distortion = _newton(law, centres, high, free)
    for _ in range(200):
        size = float(residual.abs().max()) if len(residual) else 0.0
        if size <= 4e-16 * high:
            break
        for scale in (1.0, 0.5, 0.25, 0.125, 0.0):
            trial = centres.clone()
            trial[free] += scale * step if scale else residual
            if not bool((trial.diff() > 0).all()):
                continue
            outcome = _newton(law, trial, high, free)
            if scale == 0 or float(outcome[0].abs().max()) < size:
                break
        if size <= 1e-12 * high and float(outcome[0].abs().max()) >= size:
            break  # rounding is all that is left
        centres, (residual, step, distortion) = trial, outcome
    else:
        raise RuntimeError(
            f"the centroid condition for {law.name} was not met: {size / high:.1e} of the length is left"
        )
    return centres, distortion


def _newton(law: OneDimensional, centres: Tensor, high: float, free: slice) -> tuple[Tensor, Tensor, float]:
    """Centroid minus centre, the Newton step (both for the centres that are free), and the distortion."""
    edges = torch.cat([centres.new_zeros(1), (centres[1:] + centres[:-1]) / 2, centres.new_full((1,), high)])
    half = edges.diff()[:, None] / 2
    x = edges[:-1, None] + half * (1 + _NODES)
    mass, offset = half * _WEIGHTS * law.pdf(x), x - centres[:, None]
    moment, cell = (mass * offset).sum(1), mass.sum(1)
    distortion = float((mass * offset.square()).sum())
    residual = (moment / cell)[free]
    # Moving the border between two cells moves their moments alike: the matrix is symmetric and tridiagonal.
    coupling = law.pdf(edges[1:-1]) * centres.diff() / 4
    diagonal = cell.clone()
    diagonal[:-1] -= coupling
    diagonal[1:] -= coupling
    if len(residual) < 2:  # scipy's solver wants two unknowns
        return residual, (moment / diagonal)[free], distortion
    bands = torch.stack([diagonal, torch.cat([-coupling, coupling.new_zeros(1)])])[:, free]
    try:
        step = torch.from_numpy(solveh_banded(bands.numpy(), moment[free].numpy(), lower=True))
    except LinAlgError:  # not positive definite: far from a minimum
        step = residual
    return residual, step, distortion


def _companding(law: OneDimensional, high: float, m: int, ends: tuple[bool, bool]) -> Tensor:
    """The asymptotic solution (Bennett 1948): centres with density proportional to the cube root of the law's."""
    grid = torch.linspace(0, high, max(1 << 14, 32 * m) + 1, dtype=torch.float64)
    density = law.pdf(grid).clamp_min(0).pow(1 / 3)
    share = torch.cat([grid.new_zeros(1), torch.cumulative_trapezoid(density, grid)])
    intervals = m - sum(ends) / 2
    rank = torch.arange(m, dtype=torch.float64) + (0.0 if ends[0] else 0.5)
    wanted = share[-1] * rank / max(intervals, 0.5)
    centres = torch.from_numpy(np.interp(wanted.numpy(), share.numpy(), grid.numpy()))
    if ends[0]:
        centres[0] = 0.0
    if ends[1]:
        centres[-1] = high
    return centres
