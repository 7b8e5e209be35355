r"""The expected representation gap of ``n`` independent points, at every ``n``, to quadrature precision.

For independent data :math:`z_1,\dots,z_n` and a test point :math:`y`, all from one law,

.. math::
    \mathbb E\,\mathcal R_n=\mathbb E_y\int_0^\infty 2r\,\bigl(1-m(y,r)\bigr)^n\,dr,

where :math:`m(y,r)` is the probability of the ball of radius :math:`r` around :math:`y`: the squared distance to the
nearest point exceeds :math:`r^2` exactly if all points miss the ball. What is left is one integral where the mass is
the same around every point, two on a line with a density, and three on the unit square.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, overload

import torch
from scipy.special import roots_legendre
from torch import Tensor

from lib import validation
from lib.manifolds import CircleDensity, Cube, FlatTorus, Interval, Manifold, OneDimensional, Sphere
from lib.one_dimensional import expect_manifold

# Beyond the ball of mass 45 / n the integrand is below exp(-45) = 3e-20 of its start.
_TAIL = 45.0


@overload
def expected_gap(
    manifold: Manifold, n: int, *, group: str | None = None, distance: Literal["geodesic", "chordal"] = "geodesic"
) -> float: ...
@overload
def expected_gap(
    manifold: Manifold,
    n: Sequence[int],
    *,
    group: str | None = None,
    distance: Literal["geodesic", "chordal"] = "geodesic",
) -> Tensor: ...
def expected_gap(
    manifold: Manifold,
    n: int | Sequence[int],
    *,
    group: str | None = None,
    distance: Literal["geodesic", "chordal"] = "geodesic",
) -> float | Tensor:
    r"""Expected gap of ``n`` independent points of the manifold, or of their orbits under a group.

    .. math::
        \mathbb E\,\mathcal R_n=\mathbb E\min_{i\le n}d(y,z_i)^2,\qquad y,z_1,\dots,z_n\ \text{independent, one law}.

    Args:
        manifold: a sphere or projective space, a circle or an interval (with its density), the flat torus or the cube
            of dimension 1 or 2; or anything whose quotient by ``group`` is one of these.
        n: number of points, from 1; a sequence of numbers gives a vector.
        group: name of a symmetry group of the manifold; its orbits are compared in the quotient.
        distance: ``"geodesic"``, or ``"chordal"`` (the straight line in space; spheres and projective spaces).

    Returns:
        The expectation in squared units of length, a float, or float64 ``[k]`` for ``k`` sizes. No random numbers:
        Gauss-Legendre quadrature split where the integrand has kinks; relative error below 1e-10 for ``n`` up to
        10^6 (below 1e-8 on the unit square).

    Cost: at most some 10^5 evaluations of the mass per ``n``; milliseconds, and memory of a few MB.

    Raises:
        TypeError: ``n`` is no integer or sequence of integers, or ``manifold`` no manifold.
        ValueError: ``n`` below 1, an unknown group, or a case without a known ball mass.

    Source: derived here from the tail integral; closed forms in special cases, for example :math:`4/(n+1)` on the
    unit sphere with chords and :math:`(n+7)/(2(n+1)(n+2)(n+3))` on the unit interval.

    >>> assert abs(expected_gap(Sphere(2), 10, distance="chordal") - 4 / 11) < 1e-12
    """
    validation.choice("distance", distance, ("geodesic", "chordal"))
    expect_manifold(manifold)
    if not isinstance(n, int):
        if not isinstance(n, Sequence) or isinstance(n, str) or not n:
            raise TypeError(f"n must be an integer or a non-empty sequence of integers, got {n!r}")
        values = [expected_gap(manifold, k, group=group, distance=distance) for k in n]
        return torch.tensor(values, dtype=torch.float64)
    validation.count("n", n)
    space = manifold if group is None else manifold.quotient(group).manifold
    if distance == "chordal" and not isinstance(space, Sphere):
        raise ValueError(f"distance must be 'geodesic' on {space.name}; got 'chordal'")
    if isinstance(space, Cube) and space.dim == 1:
        return _on_a_line(Interval(1.0), n)
    if isinstance(space, Cube) and space.dim == 2:
        return _unit_square(n)
    if isinstance(space, Interval | CircleDensity):
        return _on_a_line(space, n)
    if isinstance(space, Sphere | OneDimensional) or (isinstance(space, FlatTorus) and space.dim <= 2):
        return _homogeneous(space, n, chordal=distance == "chordal")
    raise ValueError(f"manifold: the expected gap on {space.name} is not known in closed form or by quadrature here")


@cache
def gauss_legendre(k: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss-Legendre quadrature on [0, 1], exact for polynomials of degree below ``2 k``."""
    x, w = roots_legendre(k)
    return torch.from_numpy((1 + x) / 2), torch.from_numpy(w / 2)


def _between(low: Tensor, high: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [low, high], on a new last axis.

    The map 3 s^2 - 2 s^3 makes the powers 3/2 smooth that ball masses have where the ball meets a boundary.
    """
    s, w = gauss_legendre(k)
    width = (high - low).unsqueeze(-1)
    return low.unsqueeze(-1) + width * s**2 * (3 - 2 * s), width * w * 6 * s * (1 - s)


def _reach(mass: Callable[[Tensor], Tensor], farthest: Tensor, n: int, points: float = _TAIL) -> Tensor:
    """A radius whose ball has mass ``points / n``, or the one that holds everything, by bisection."""
    target = min(1.0, points / n)
    low, high = torch.zeros_like(farthest), farthest.clone()
    for _ in range(50):
        middle = (low + high) / 2
        short = mass(middle) < target
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return high


def _miss(mass: Tensor, n: int) -> Tensor:
    """Probability that ``n`` points miss a set of the given mass."""
    return torch.exp(n * torch.log1p(-mass.clamp(0, 1)))


def _homogeneous(space: Manifold, n: int, *, chordal: bool) -> float:
    def mass(r: Tensor) -> Tensor:
        return space.ball_mass(r, chordal=chordal)

    # In high dimension the mass rises from nothing to everything within a small part of the diameter: panels by mass.
    farthest = torch.tensor(space.diameter, dtype=torch.float64)
    radii = [_reach(mass, farthest, n, points) for points in (1e-9, 1e-3, 0.1, 1.0, 5.0, _TAIL)]
    reach = radii[-1]
    # On the flat torus the ball touches itself at half the period.
    kink = reach.clamp(max=0.5) if isinstance(space, FlatTorus) else reach / 2
    edges = torch.stack((0 * reach, kink, *radii)).sort().values
    r, w = _between(edges[:-1], edges[1:], 48)
    return float((w * 2 * r * _miss(mass(r), n)).sum())


def _on_a_line(space: Interval | CircleDensity, n: int) -> float:
    """The double integral over the test point and the radius; by symmetry over half of the line."""
    length, closed = space.length, space.period is not None
    if isinstance(space, CircleDensity):
        # Trapezoidal: the error falls like exp(-nodes * arcosh(1 / amplitude)).
        nodes = 32 + int(40 / math.acosh(1 / max(abs(space.amplitude), 1e-3)))
        y = length * torch.arange(nodes, dtype=torch.float64) / nodes
        weight = torch.full_like(y, length / nodes)
    else:
        # Panels that double from the end, where the density vanishes: the scale there is n^(-1 / (k + 1)).
        scale = 0.2 * n ** (-1 / (space.sine_power + 1))
        halvings = torch.arange(math.ceil(-math.log2(scale)), -1, -1, dtype=torch.float64)
        y, weight = _panels(torch.cat((halvings.new_zeros(1), length / 2 * 2**-halvings)), 20)
        weight = 2 * weight

    def mass(r: Tensor) -> Tensor:
        centre = y.reshape(-1, *(1,) * (r.ndim - 1))
        if closed:
            return space.cdf(centre + r) - space.cdf(centre - r)
        return space.cdf((centre + r).clamp(max=length)) - space.cdf((centre - r).clamp(min=0))

    reach = _reach(mass, torch.full_like(y, length / 2) if closed else length - y, n)
    kink = reach / 2 if closed else torch.minimum(reach, y)
    r, w = _between(torch.stack((0 * kink, kink), 1), torch.stack((kink, reach), 1), 40)
    inner = (w * 2 * r * _miss(mass(r), n)).sum((1, 2))
    return float((weight * space.pdf(y) * inner).sum())


def _panels(edges: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes and weights on consecutive panels."""
    s, w = gauss_legendre(k)
    width = edges.diff().unsqueeze(1)
    return (edges[:-1, None] + width * s).flatten(), (width * w).flatten()


def _unit_square(n: int) -> float:
    r"""Radii below 1/2, where the disc meets at most one corner, and the rest, where the whole square is near.

    For :math:`r\le\frac12` the area is :math:`\pi r^2` in the middle, :math:`r^2a_1(u)` at distance :math:`ru` from one
    edge and :math:`r^2a_2(u,v)` at distances :math:`ru, rv` from two; the tables of :math:`a` do not depend on r or n.
    """
    reach = torch.tensor(min(0.5, math.sqrt(_TAIL / n / (math.pi / 4))), dtype=torch.float64)
    r, w = _between(reach * 0, reach, 64)
    edge, edge_weight, corner, corner_weight = _near_one_corner()
    middle = (1 - 2 * r) ** 2 * _miss(math.pi * r**2, n)
    sides = 4 * r * (1 - 2 * r) * (_miss(r[:, None] ** 2 * edge, n) @ edge_weight)
    corners = 4 * r**2 * (_miss(r[:, None] ** 2 * corner, n) @ corner_weight)
    total = float((w * 2 * r * (middle + sides + corners)).sum())
    if n < 250:  # a disc of radius 1/2 has mass pi/16 at least, so that 250 points miss it with probability 1e-24
        area, weight = _large_discs()
        total += float((weight * _miss(area, n)).sum())
    return total


def _segment(distance: Tensor) -> Tensor:
    """Area that a line at this distance from its centre cuts off the unit disc; 0 from distance 1 on."""
    t = distance.clamp(max=1)
    return torch.acos(t) - t * torch.sqrt(1 - t**2)


@cache
def _near_one_corner() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Areas of the unit disc inside a half plane and inside a quadrant, with weights for distances in [0, 1]."""
    s, w = gauss_legendre(24)
    alpha = s * math.pi / 2  # distances are cosines of angles, in which the segments are smooth
    edge, edge_weight = math.pi - _segment(torch.cos(alpha)), w * math.pi / 2 * torch.sin(alpha)
    first, share = torch.meshgrid(alpha, s, indexing="ij")
    areas, weights = [], []
    for inside in (False, True):  # the corner lies inside the disc exactly if the two angles exceed a right angle
        width = first if inside else math.pi / 2 - first
        beta = math.pi / 2 - width * share if inside else width * share
        u, v = torch.cos(first), torch.cos(beta)
        cut = _segment(u) + _segment(v)
        areas.append(3 * math.pi / 4 - cut / 2 + u * v if inside else math.pi - cut)
        weights.append(torch.outer(w, w) * math.pi / 2 * width * torch.sin(first) * torch.sin(beta))
    return edge, edge_weight, torch.stack(areas).flatten(), torch.stack(weights).flatten()


@cache
def _large_discs() -> tuple[Tensor, Tensor]:
    """Areas inside the unit square of discs of radius at least 1/2, with weights for 2 r dr and a uniform centre."""
    s, w = gauss_legendre(24)
    x, y = (s / 2).repeat_interleave(24), (s / 2).repeat(24)
    sides = torch.stack((x, 1 - x)), torch.stack((y, 1 - y))
    corners = torch.stack([torch.hypot(a, b) for a in sides[0] for b in sides[1]])
    # Kinks of the area in r: the disc reaches an edge or a corner.
    breaks = (
        torch.cat((torch.full((1, len(x)), 0.5, dtype=torch.float64), *sides, corners)).clamp(min=0.5).sort(0).values.T
    )
    r, weight = _between(breaks[:, :-1], breaks[:, 1:], 12)
    area = torch.zeros_like(r)
    for a in sides[0][:, :, None, None]:
        for b in sides[1][:, :, None, None]:
            quadrant = r**2 * (math.pi / 4 - (_segment(a / r) + _segment(b / r)) / 2)
            area += torch.where(a**2 + b**2 <= r**2, a * b, quadrant)
    return area.flatten(), (weight * 2 * r * torch.outer(w, w).reshape(-1, 1, 1)).flatten()
