r"""What a manifold is, and the one-dimensional ones: intervals and circles, with a density.

Quotients by symmetry are often of this kind: the sphere modulo rotations about an axis is an interval with a density
that vanishes at its ends. In one dimension every quantity of the book can be computed exactly.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from scipy.special import beta, betainc, betaincinv
from torch import Tensor

from lib import validation

# Nodes of the trapezoidal rule on a turn; for smooth periodic integrands its error falls exponentially.
turn = torch.arange(4096, dtype=torch.float64) / 4096


@dataclass(frozen=True)
class Manifold:
    r"""A compact manifold with a probability law, uniform unless the class says otherwise.

    Attributes:
        name: a short name for tables.
        dim: intrinsic dimension.
        ambient_dim: number of coordinates of a point.
        volume: Riemannian volume (length, area).
        diameter: the largest distance between two points (an upper bound on it for the torus of revolution).
        groups: names that :meth:`quotient` accepts.
        uniform: whether the law is the normalised volume measure.
        period: length after which every coordinate repeats, or ``None``; with :meth:`embed` it is what an exact
            nearest-neighbour search needs.

    >>> Interval(math.pi, sine_power=1).name
    'interval, sin^1'
    """

    name: str = field(init=False, repr=False, compare=False)
    dim: int = field(init=False, repr=False)
    ambient_dim: int = field(init=False, repr=False, compare=False)
    volume: float = field(init=False, repr=False, compare=False)
    diameter: float = field(init=False, repr=False, compare=False)
    groups: tuple[str, ...] = field(init=False, repr=False, compare=False)
    uniform: bool = field(init=False, repr=False, compare=False)
    period: float | None = field(init=False, repr=False, compare=False)

    def _describe(
        self, name: str, dim: int, ambient_dim: int, volume: float, diameter: float,
        groups: tuple[str, ...] = (), uniform: bool = True, period: float | None = None,
    ) -> None:  # fmt: skip
        values = (name, dim, ambient_dim, volume, diameter, groups, uniform, period)
        names = ("name", "dim", "ambient_dim", "volume", "diameter", "groups", "uniform", "period")
        for key, value in zip(names, values, strict=True):
            object.__setattr__(self, key, value)

    def sample(
        self, n: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float64
    ) -> Float[Tensor, "n ambient"]:
        """Draw ``n`` independent points on the CPU in float64, then cast them to ``dtype``.

        Raises:
            TypeError: ``n`` no integer, ``generator`` no generator, or ``dtype`` no floating one.
            ValueError: ``n`` below 1.
        """
        validation.count("n", n)
        validation.floating("dtype", dtype)
        return self._sample(n, validation.generator("generator", generator)).to(dtype)

    def distance(self, x: Float[Tensor, "*batch ambient"], y: Float[Tensor, "*other ambient"]) -> Tensor:
        """Geodesic distance of ``x`` and ``y``; leading axes broadcast, the last one holds the coordinates.

        On :class:`TorusOfRevolution` it is the chord in space, which differs by a relative O(distance squared).

        Raises:
            TypeError: no floating-point tensor.
            ValueError: another number of coordinates, NaN, or points off the manifold.
        """
        return self._distance(self.check("x", x), self.check("y", y))

    def check(self, name: str, x: Tensor) -> Tensor:
        """Return ``x`` if its last axis holds points of the manifold (within a relative 1e-3 where it is curved)."""
        validation.finite(name, x)
        if x.ndim == 0 or x.shape[-1] != self.ambient_dim:
            raise ValueError(
                f"{name} must have {self.ambient_dim} coordinates ({self.name}) on its last axis, got {tuple(x.shape)}"
            )
        return x

    def embed(self, x: Float[Tensor, "*batch ambient"]) -> Float[Tensor, "*batch k"]:
        """Coordinates whose nearest neighbour (Euclidean, or periodic with :attr:`period`) is the geodesic one."""
        return self.check("x", x)

    def quotient(self, group: str) -> "Quotient":
        """The space of orbits of ``group`` (one of :attr:`groups`) with the law and metric that it inherits.

        Raises:
            ValueError: the group does not act here; the message names those that do.
        """
        if group not in self.groups:
            allowed = ", ".join(map(repr, self.groups)) or "none"
            raise ValueError(f"group must be one of the groups of {self.name} ({allowed}); got {group!r}")
        return self._quotient(group)

    def ball_mass(self, r: Float[Tensor, "*batch"], *, chordal: bool = False) -> Float[Tensor, "*batch"]:
        """Probability of a ball of radius ``r`` (geodesic, or chordal on spheres), the same around every point.

        Raises:
            ValueError: the mass depends on the centre, or there is no closed form here.
        """
        raise ValueError(f"ball_mass has no closed form that is the same around every point of {self.name}")

    def density_integral(self, power: float) -> float:
        r"""The integral :math:`\int p^{\text{power}}\,d\mathrm{vol}` of the density; ``inf`` where it diverges."""
        return float(self.volume ** (1 - power))

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        raise NotImplementedError

    def _distance(self, x: Tensor, y: Tensor) -> Tensor:
        return periodic_norm(x - y, None)

    def _quotient(self, group: str) -> "Quotient":
        raise NotImplementedError


def expect_manifold(value: Any) -> Manifold:
    """Return ``value`` if it is a manifold."""
    if not isinstance(value, Manifold):
        raise TypeError(f"manifold must be a Manifold, got {value!r}")
    return value


@dataclass(frozen=True)
class Quotient:
    """Orbits of a group: the manifold that they form, and the map from a point to the coordinates of its orbit."""

    manifold: Manifold
    project: Callable[[Tensor], Tensor]


def special(function: Callable[..., Any], *arguments: float, at: Tensor) -> Tensor:
    """A scipy special function of the last argument, on the dtype and device of ``at``."""
    values = torch.as_tensor(function(*arguments, at.detach().cpu().double().numpy()))
    return values.to(at.dtype).to(at.device)


def periodic_norm(difference: Tensor, period: float | None) -> Tensor:
    """Length of a difference of coordinates, each taken modulo the period."""
    if period is not None:
        difference = difference - period * torch.round(difference / period)
    norm: Tensor = torch.linalg.vector_norm(difference, dim=-1)
    return norm


@dataclass(frozen=True)
class OneDimensional(Manifold):
    """A circle or an interval ``[0, volume]`` with a density; points are ``[n, 1]`` coordinates of arc length."""

    def pdf(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Density with respect to length, for ``0 <= x <= volume``."""
        return torch.full_like(x, 1 / self.volume)

    def cdf(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Probability of ``[0, x]``."""
        return x / self.volume

    def icdf(self, u: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The point below which the mass is ``u``; the inverse of :meth:`cdf`, to rounding."""
        return u * self.volume

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self.icdf(torch.rand(n, 1, generator=generator, dtype=torch.float64))

    def _distance(self, x: Tensor, y: Tensor) -> Tensor:
        return periodic_norm(x - y, self.period)


@dataclass(frozen=True)
class Interval(OneDimensional):
    r"""The interval :math:`[0,L]` with density proportional to :math:`\sin^k(\pi x/L)`, uniform for :math:`k=0`.

    With :math:`L=\pi r` and :math:`k=d-1` it is the sphere :math:`S^d` modulo rotations about an axis.

    >>> assert Interval(math.pi, sine_power=1).density_integral(-1.0) == math.inf
    """

    length: float = 1.0
    sine_power: int = 0

    def __post_init__(self) -> None:
        length = validation.number("length", self.length, above=0.0)
        k = validation.count("sine_power", self.sine_power, minimum=0)
        self._describe(f"interval, sin^{k}" if k else "interval", 1, 1, length, length, (), k == 0)

    @property
    def _mass(self) -> float:
        return float(self.length / math.pi * beta((self.sine_power + 1) / 2, 0.5))

    def check(self, name: str, x: Tensor) -> Tensor:
        """Return ``x`` if it lies in ``[0, length]``, up to rounding in single precision."""
        low, high = float(super().check(name, x).min()), float(x.max())
        if low < -1e-6 * self.length or high > (1 + 1e-6) * self.length:
            raise ValueError(f"{name} must lie in [0, {self.length}], got values from {low} to {high}")
        return x

    def pdf(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Density with respect to length, for ``0 <= x <= length``."""
        return torch.sin(math.pi * x / self.length) ** self.sine_power / self._mass

    def cdf(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Probability of ``[0, x]``: an incomplete beta function of the squared sine of half the angle."""
        if self.sine_power == 0:
            return x / self.length
        a = (self.sine_power + 1) / 2
        return special(betainc, a, a, at=torch.sin(math.pi * x / (2 * self.length)) ** 2)

    def icdf(self, u: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The point below which the mass is ``u``."""
        if self.sine_power == 0:
            return u * self.length
        # The arc sine is inaccurate near 1, so the upper half is mirrored.
        a, lower = (self.sine_power + 1) / 2, torch.minimum(u, 1 - u)
        x = 2 * self.length / math.pi * torch.asin(torch.sqrt(special(betaincinv, a, a, at=lower)))
        return torch.where(u <= 0.5, x, self.length - x)

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        if self.sine_power == 0:
            return super()._sample(n, generator)
        # The colatitude of a uniform point on the sphere of dimension k + 1: cheaper than inverting the beta function.
        x = torch.randn(n, self.sine_power + 2, generator=generator, dtype=torch.float64)
        colatitude = torch.atan2(torch.linalg.vector_norm(x[:, 1:], dim=1, keepdim=True), x[:, :1])
        return self.length / math.pi * colatitude

    def density_integral(self, power: float) -> float:
        r"""The integral of the density to a power: a beta function, ``inf`` from ``power * sine_power <= -1`` on."""
        exponent = power * self.sine_power
        if exponent <= -1:
            return math.inf
        return float(self.length / math.pi * beta((exponent + 1) / 2, 0.5) / self._mass**power)


@dataclass(frozen=True)
class Circle(OneDimensional):
    """The circle of a given length, uniform."""

    length: float = 1.0

    def __post_init__(self) -> None:
        length = validation.number("length", self.length, above=0.0)
        self._describe("circle", 1, 1, length, length / 2, period=length)

    def ball_mass(self, r: Float[Tensor, "*batch"], *, chordal: bool = False) -> Float[Tensor, "*batch"]:
        """Mass ``2 r / length`` of an arc."""
        if chordal:
            raise ValueError("ball_mass: chordal must be False on a circle given by its arc length; use Sphere(1)")
        return (2 * r / self.length).clamp(0, 1)


@dataclass(frozen=True)
class CircleDensity(OneDimensional):
    r"""The circle of length :math:`L` with density :math:`(1+A\cos(2\pi x/L))/L`, :math:`|A|<1`.

    >>> assert abs(CircleDensity(0.8).density_integral(-1.0) - 1 / 0.6) < 1e-12
    """

    amplitude: float
    length: float = 1.0

    def __post_init__(self) -> None:
        validation.number("amplitude", self.amplitude, above=-1.0, below=1.0)
        length = validation.number("length", self.length, above=0.0)
        self._describe("circle, cosine density", 1, 1, length, length / 2, (), self.amplitude == 0, length)

    def pdf(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Density with respect to length."""
        return (1 + self.amplitude * torch.cos(2 * math.pi * x / self.length)) / self.length

    def cdf(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Probability of ``[0, x]``; it grows by one per turn."""
        turns = x / self.length
        return turns + self.amplitude / (2 * math.pi) * torch.sin(2 * math.pi * turns)

    def icdf(self, u: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The point below which the mass is ``u`` (Kepler's equation, by bisection to rounding)."""
        low, high = torch.zeros_like(u), torch.full_like(u, self.length)
        for _ in range(60):
            middle = (low + high) / 2
            below = self.cdf(middle) < u
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        # The densities at x and at the opposite point add up to a constant: one coin chooses between the two.
        turns, coin = torch.rand(2, n, 1, generator=generator, dtype=torch.float64)
        here = 2 * coin < 1 + self.amplitude * torch.cos(2 * math.pi * turns)
        return self.length * torch.where(here, turns, (turns + 0.5).remainder(1.0))

    def density_integral(self, power: float) -> float:
        """The integral of the density to a power, by the trapezoidal rule: to rounding for amplitudes <= 0.999."""
        return float(self.length * (self.pdf(self.length * turn) ** power).mean())
