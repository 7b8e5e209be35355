r"""Constants and leading laws of the representation gap: random data, optimal data, and where the boundary decides.

All constants are for the *total* squared error, not for the error per dimension; :math:`V_d` is the volume of the unit
ball. The laws for vanishing densities are derived here: the general theorem does not cover them.
"""

import math
from collections.abc import Sequence
from typing import Literal, overload

import torch
from scipy.integrate import quad
from scipy.special import beta
from torch import Tensor

from lib import validation
from lib.manifolds import Interval, Manifold
from lib.one_dimensional import expect_manifold

# Best known constants: exact for d = 1 (equal cells) and d = 2 (hexagons, Fejes Toth), lattices otherwise.
_BEST = {
    1: 1 / 12,
    2: 5 / (18 * math.sqrt(3)),
    3: 19 / (64 * 2 ** (1 / 3)),
    4: 13 / (30 * math.sqrt(2)),
    8: 929 / 1620,
}


def _log_ball(d: int) -> float:
    """Logarithm of the volume of the unit ball."""
    return d / 2 * math.log(math.pi) - math.lgamma(1 + d / 2)


def iid_constant(d: int) -> float:
    r"""Constant of the gap of independent data.

    .. math::
        C_d=\Gamma(1+\tfrac2d)\,V_d^{-2/d},\qquad n^{2/d}\,\mathbb E\,\mathcal R_n\to C_d\int p^{1-2/d}.

    Args:
        d: intrinsic dimension, from 1.

    Returns:
        The constant, exact to rounding. The limit holds where the integral converges (see :func:`asymptotic_gap`).

    Raises:
        TypeError: ``d`` is no integer.
        ValueError: ``d`` is below 1.

    Source: Yukich (2008), *Limit theorems for multi-dimensional random quantizers*; Biau and Devroye (2015).

    >>> assert abs(iid_constant(2) - 1 / math.pi) < 1e-15
    """
    validation.count("d", d)
    return math.exp(math.lgamma(1 + 2 / d) - 2 / d * _log_ball(d))


def quantization_constant(d: int, *, bound: Literal["best", "lower", "upper"] = "best") -> float:
    r"""Zador's constant of optimal data.

    .. math::
        n^{2/d}\,\mathcal R_n^\star\to J_d\Bigl(\int p^{d/(d+2)}\Bigr)^{(d+2)/d},\qquad
        \frac d{d+2}\,V_d^{-2/d}\ \le\ J_d\ \le\ C_d .

    Args:
        d: intrinsic dimension, from 1.
        bound: ``"lower"`` (cells replaced by balls) or ``"upper"`` (random data) for every ``d``; ``"best"`` for
            d = 1, 2 (exact) and d = 3, 4, 8.

    Returns:
        The constant or bound. ``"best"`` for d = 3 (body-centred cubic), 4 and 8 (the lattices D4, E8) is the value of
        the best known lattice, that is an upper bound; that no other point set is better is Gersho's conjecture.

    Raises:
        TypeError: ``d`` is no integer.
        ValueError: ``d`` is below 1, ``bound`` is another word, or ``"best"`` for another ``d``.

    Source: Zador (1982); Fejes Toth (1959) for d = 2; Barnes and Sloane (1983) for d = 3; Conway and Sloane (1982).

    >>> assert quantization_constant(1) == 1 / 12
    >>> assert abs(quantization_constant(1, bound="lower") - 1 / 12) < 1e-15
    """
    validation.count("d", d)
    validation.choice("bound", bound, ("best", "lower", "upper"))
    low, high = d / (d + 2) * math.exp(-2 / d * _log_ball(d)), iid_constant(d)
    if bound != "best":
        return low if bound == "lower" else high
    if d not in _BEST:
        known = ", ".join(map(str, _BEST))
        raise ValueError(f"d must be one of {known} for bound='best'; for d={d} use the bounds {low:.6g} to {high:.6g}")
    return _BEST[d]


def effective_sample_size(
    d: int, n: int | float = 1.0, *, manifold: Manifold | None = None, bound: Literal["best", "lower", "upper"] = "best"
) -> float:
    r"""Number of optimal points whose asymptotic gap is that of ``n`` independent ones.

    .. math::
        \frac{n_{\mathrm{eff}}}n=\Bigl(\frac{J_d\,(\int p^{d/(d+2)})^{(d+2)/d}}{C_d\int p^{1-2/d}}\Bigr)^{d/2}.

    Args:
        d: intrinsic dimension, from 1.
        n: number of independent points, positive; the default gives the ratio.
        manifold: its density is used, and its dimension must be ``d``; any uniform law if omitted.
        bound: as in :func:`quantization_constant`.

    Returns:
        The effective size; with ``bound="lower"`` a lower bound on it. It is 0 where the integral of the independent
        data diverges: their gap then falls more slowly than that of optimal data, and no rescaling repairs it.

    Raises:
        TypeError: ``d`` is no integer, ``n`` no number, or ``manifold`` no manifold.
        ValueError: as :func:`quantization_constant`; ``n`` is not positive; the manifold has another dimension.

    Source: Perera et al. (2026, arXiv 2605.21692) for the idea; the ratio with the density is derived here.

    >>> assert abs(effective_sample_size(1) - 6**-0.5) < 1e-15
    """
    constant = quantization_constant(d, bound=bound)
    validation.number("n", n, above=0.0)
    if manifold is not None and expect_manifold(manifold).dim != d:
        raise ValueError(f"manifold must have dimension d = {d}; {manifold.name} has {manifold.dim}")
    ratio = constant / iid_constant(d)
    if manifold is not None:
        ratio *= _zador(manifold) / manifold.density_integral(1 - 2 / d)
    return float(n * ratio ** (d / 2))


def _zador(space: Manifold) -> float:
    """The density's factor in the law of optimal data."""
    d = space.dim
    return float(space.density_integral(d / (d + 2)) ** ((d + 2) / d))


@overload
def asymptotic_gap(
    manifold: Manifold,
    n: int | float,
    *,
    group: str | None = None,
    data: Literal["iid", "optimal"] = "iid",
    bound: Literal["best", "lower", "upper"] = "best",
) -> float: ...
@overload
def asymptotic_gap(
    manifold: Manifold,
    n: Sequence[int | float],
    *,
    group: str | None = None,
    data: Literal["iid", "optimal"] = "iid",
    bound: Literal["best", "lower", "upper"] = "best",
) -> Tensor: ...
def asymptotic_gap(
    manifold: Manifold,
    n: int | float | Sequence[int | float],
    *,
    group: str | None = None,
    data: Literal["iid", "optimal"] = "iid",
    bound: Literal["best", "lower", "upper"] = "best",
) -> float | Tensor:
    r"""Leading term of the gap for ``n`` points of a manifold, or for their orbits under a group.

    .. math::
        \mathcal R_n\simeq C_d\,n^{-2/d}\int p^{1-2/d}\ \ (\text{independent}),\qquad
        \mathcal R_n^\star\simeq J_d\,n^{-2/d}\Bigl(\int p^{d/(d+2)}\Bigr)^{(d+2)/d}\ \ (\text{optimal}),

    with the dimension and the density of the quotient if there is a group. Where the density vanishes like
    :math:`\sin^k` at the ends of an interval the first integral diverges; then the law of independent data is
    :func:`axis_rotation_law` for :math:`k=1` and :func:`boundary_constant` times :math:`n^{-(k+3)/(k+1)}` for
    :math:`k\ge2`.

    Args:
        manifold: any manifold of the book.
        n: number of points, positive (and above 1 where the logarithmic law holds); a sequence of numbers gives a
            float64 vector.
        group: name of one of the manifold's symmetry groups.
        data: ``"iid"`` or ``"optimal"``.
        bound: which constant to use for optimal data, as in :func:`quantization_constant`.

    Returns:
        The leading term in squared units of length; exact in the limit. The relative error is of order 1/n on
        homogeneous spaces, :math:`n^{-1/d}` with a boundary, and falls slowly for vanishing densities.

    Raises:
        TypeError: ``n`` is no number or sequence of numbers, or ``manifold`` no manifold.
        ValueError: unknown group, word or constant, or ``n`` empty or not positive.

    Source: as :func:`iid_constant` and :func:`quantization_constant`; vanishing densities and quotients derived here.

    >>> from lib.manifolds import Sphere
    >>> assert abs(asymptotic_gap(Sphere(2), 100.0) - 4 / 100) < 1e-15
    """
    validation.choice("data", data, ("iid", "optimal"))
    expect_manifold(manifold)
    if isinstance(n, Sequence) and not isinstance(n, str):
        if not n:
            raise ValueError("n must not be empty")
        values = [asymptotic_gap(manifold, size, group=group, data=data, bound=bound) for size in n]
        return torch.tensor(values, dtype=torch.float64)
    size = validation.number("n", n, above=0.0)
    space = manifold if group is None else manifold.quotient(group).manifold
    d = space.dim
    if data == "optimal":
        return float(quantization_constant(d, bound=bound) * _zador(space) * size ** (-2 / d))
    if isinstance(space, Interval) and space.sine_power >= 1:
        k, scale = space.sine_power, (space.length / math.pi) ** 2
        law = axis_rotation_law(size) if k == 1 else boundary_constant(k) * size ** (-(k + 3) / (k + 1))
        return float(scale * law)
    return float(iid_constant(d) * space.density_integral(1 - 2 / d) * size ** (-2 / d))


def axis_rotation_law(n: int | float) -> float:
    r"""Gap of independent uniform points on the unit 2-sphere, up to rotations about an axis.

    .. math::
        \mathcal R_n=\frac{\ln n+2\ln2+\gamma+\frac13+o(1)}{n^2}.

    The poles are fixed points: there the density :math:`\frac12\sin\theta` of the colatitude vanishes, and
    :math:`\int1/p` diverges logarithmically. The local slope is :math:`-2+1/(\ln n+2.2968)`, so that the exponent -2
    is approached too slowly to be seen.

    Args:
        n: number of points, above 1.

    Returns:
        The law without its o(1), which is below 1 % of the bracket from n = 256 on.

    Raises:
        ValueError: ``n`` is not above 1.

    Source: derived here.

    >>> from lib.expectations import expected_gap
    >>> from lib.manifolds import Sphere
    >>> exact = expected_gap(Sphere(2), 65536, group="axis")
    >>> assert abs(axis_rotation_law(65536.0) / exact - 1) < 1e-4
    """
    validation.number("n", n, above=1.0)
    return float(math.log(n) + 2 * math.log(2) + _EULER + 1 / 3) / n**2


_EULER = 0.57721566490153286


def boundary_constant(k: int) -> float:
    r"""Constant of independent data whose density vanishes like the k-th power at both ends, ``k >= 2``.

    For the density :math:`\sin^k\theta/B` on :math:`[0,\pi]`, that is the unit sphere :math:`S^{k+1}` up to rotations
    about an axis, the points within :math:`n^{-1/(k+1)}` of the ends carry the gap:

    .. math::
        n^{\frac{k+3}{k+1}}\,\mathbb E\,\mathcal R_n\to
        4\,\bigl((k+1)B\bigr)^{\frac2{k+1}}\,\Gamma\Bigl(\frac{k+3}{k+1}\Bigr)
        \int_0^\infty t\,Q(t)^{-\frac{k+3}{k+1}}\,dt,\qquad Q(t)=(1+t)^{k+1}-(1-t)_+^{k+1}.

    Args:
        k: power of the sine, from 2.

    Returns:
        The limit, by quadrature of the part below t = 1 (relative error below 1e-9); the part above is elementary.

    Raises:
        TypeError: ``k`` is no integer.
        ValueError: ``k`` is below 2, where the interior decides and the integral diverges.

    Source: derived here: near an end the data are a Poisson process of intensity :math:`s^k/B` in the scaled
    coordinate; in :math:`\int\frac{s^k}B\int2\rho\,e^{-\mu(s,\rho)}\,d\rho\,ds`, with :math:`\mu` the expected number
    of points in the ball, :math:`\rho=st` separates the variables.

    >>> from lib.expectations import expected_gap
    >>> from lib.manifolds import Sphere
    >>> exact = expected_gap(Sphere(3), 10**6, group="axis")
    >>> assert abs(10**10 * exact / boundary_constant(2) - 1) < 1e-4
    """
    validation.count("k", k, minimum=2)
    mass, exponent = beta((k + 1) / 2, 0.5), (k + 3) / (k + 1)
    power = (k + 1) / (k - 1)  # t = v^power removes the singularity t^(-2 / (k + 1)) at 0

    def near(v: float) -> float:
        t = v**power
        # Q / t, summed without the cancellation of its two powers
        ratio = sum(2 * math.comb(k + 1, j) * t ** (j - 1) for j in range(1, k + 2, 2))
        return float(power * ratio**-exponent)

    below = quad(near, 0, 1, epsabs=0, epsrel=1e-11)[0]
    above = 2.0 ** -(k + 1) / (k + 1) - 2.0 ** -(k + 2) / (k + 2)
    return float(4 * ((k + 1) * mass) ** (2 / (k + 1)) * math.gamma(exponent) * (below + above))
