r"""The data manifolds of the book: sampling, distances, quotients by symmetry, and ball masses.

Every law here is known exactly, so that a measured gap can be held against a closed form. Points are rows of
coordinates ``[n, ambient_dim]``: vectors in space for spheres and the torus of revolution, one coordinate per axis for
the flat ones. A quotient is again a :class:`Manifold`: the distance between two orbits is a distance on it. The base
class and the intervals and circles are in :mod:`lib.one_dimensional` and are imported here too.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from scipy.special import betainc
from torch import Tensor

from lib import validation
from lib.one_dimensional import (
    Circle,
    CircleDensity,
    Interval,
    Manifold,
    OneDimensional,
    Quotient,
    periodic_norm,
    special,
    turn,
)

__all__ = [
    "Circle",
    "CircleDensity",
    "Cube",
    "FlatTorus",
    "Interval",
    "Manifold",
    "OneDimensional",
    "Quotient",
    "RealProjective",
    "Sphere",
    "TorusOfRevolution",
]


@dataclass(frozen=True)
class Sphere(Manifold):
    r"""The sphere :math:`\{x\in\mathbb R^{d+1}: |x|=r\}`, uniform.

    Groups: ``"antipodal"`` (:math:`x\sim-x`), for :math:`d\ge2` ``"axis"`` (all rotations about the last coordinate
    axis; the orbit is the colatitude), for :math:`d=3` ``"phase"`` (:math:`(z_1,z_2)\mapsto e^{it}(z_1,z_2)`, with
    :math:`z_1=x_1+ix_2,\ z_2=x_3+ix_4`; the orbits form a sphere of radius :math:`r/2`, the Hopf fibration).

    >>> half = Sphere(2).ball_mass(torch.tensor([math.pi / 2], dtype=torch.float64))
    >>> assert torch.allclose(half, torch.tensor([0.5], dtype=torch.float64))
    """

    dim: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        d, r = validation.count("dim", self.dim), validation.number("radius", self.radius, above=0.0)
        area = 2 * math.exp((d + 1) / 2 * math.log(math.pi) - math.lgamma((d + 1) / 2)) * r**d
        groups = ("antipodal", *(("axis",) if d >= 2 else ()), *(("phase",) if d == 3 else ()))
        self._describe(f"sphere S^{d}", d, d + 1, area, math.pi * r, groups)

    def check(self, name: str, x: Tensor) -> Tensor:
        """Return ``x`` if it lies on the sphere within a relative 1e-3."""
        off = float((torch.linalg.vector_norm(super().check(name, x), dim=-1) / self.radius - 1).abs().max())
        if off > 1e-3:
            raise ValueError(f"{name} must lie on the sphere of radius {self.radius}; a norm is off by {off:.2g} of it")
        return x

    def ball_mass(self, r: Float[Tensor, "*batch"], *, chordal: bool = False) -> Float[Tensor, "*batch"]:
        """Mass of a cap: the incomplete beta function of the squared half chord, both parameters d/2."""
        half_chord = r / (2 * self.radius) if chordal else torch.sin((r / (2 * self.radius)).clamp(0, math.pi / 2))
        return special(betainc, self.dim / 2, self.dim / 2, at=half_chord.clamp(0, 1) ** 2)

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        x = torch.randn(n, self.ambient_dim, generator=generator, dtype=torch.float64)
        return self.radius * torch.nn.functional.normalize(x, dim=1)

    def _distance(self, x: Tensor, y: Tensor) -> Tensor:
        # The arc cosine of <x, y> would lose half of the digits for near points.
        chord, antichord = torch.linalg.vector_norm(x - y, dim=-1), torch.linalg.vector_norm(x + y, dim=-1)
        return 2 * self.radius * torch.atan2(chord, antichord)

    def _quotient(self, group: str) -> Quotient:
        if group == "antipodal":
            return Quotient(RealProjective(self.dim, self.radius), self._identity)
        if group == "axis":
            return Quotient(Interval(math.pi * self.radius, sine_power=self.dim - 1), self._colatitude)
        return Quotient(Sphere(2, self.radius / 2), self._hopf)

    def _identity(self, x: Tensor) -> Tensor:
        return self.check("x", x)

    def _colatitude(self, x: Tensor) -> Tensor:
        x = self.check("x", x)
        return self.radius * torch.atan2(torch.linalg.vector_norm(x[..., :-1], dim=-1, keepdim=True), x[..., -1:])

    def _hopf(self, x: Tensor) -> Tensor:
        a, b, c, d = self.check("x", x).unbind(-1)
        return torch.stack((a * c + b * d, b * c - a * d, (a * a + b * b - c * c - d * d) / 2), -1) / self.radius


@dataclass(frozen=True)
class RealProjective(Sphere):
    r"""Lines through the origin, :math:`S^d/\{\pm1\}`; a point is given by either of its two unit vectors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._describe(
            f"projective space RP^{self.dim}", self.dim, self.dim + 1, self.volume / 2, math.pi * self.radius / 2
        )

    def ball_mass(self, r: Float[Tensor, "*batch"], *, chordal: bool = False) -> Float[Tensor, "*batch"]:
        """Twice the mass of the cap, up to the whole space."""
        return (2 * super().ball_mass(r, chordal=chordal)).clamp(max=1)

    def embed(self, x: Float[Tensor, "*batch ambient"]) -> Float[Tensor, "*batch k"]:
        """All products of two coordinates: the same for x and -x, and monotone in the distance.

        They are in float64, which holds products of float32 exactly, except on MPS, which has none.
        """
        x = self.check("x", x)
        x = x if x.device.type == "mps" else x.double()
        return (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)

    def _distance(self, x: Tensor, y: Tensor) -> Tensor:
        angle = super()._distance(x, y)
        return torch.minimum(angle, math.pi * self.radius - angle)


@dataclass(frozen=True)
class FlatTorus(Manifold):
    """The unit cube with opposite faces glued, uniform; group ``"translation"``: along the first coordinate."""

    dim: int

    def __post_init__(self) -> None:
        d = validation.count("dim", self.dim)
        self._describe(f"flat torus T^{d}", d, d, 1.0, math.sqrt(d) / 2, ("translation",) if d > 1 else (), period=1.0)

    def ball_mass(self, r: Float[Tensor, "*batch"], *, chordal: bool = False) -> Float[Tensor, "*batch"]:
        """Mass of a ball, for dimensions 1 and 2: the area of the disc inside the unit square around its centre."""
        if chordal or self.dim > 2:
            raise ValueError(f"ball_mass has a closed form for geodesic balls of T^1 and T^2 only; got {self.name}")
        if self.dim == 1:
            return (2 * r).clamp(0, 1)
        # A disc that sticks out loses four equal segments, until it covers the square at r = sqrt(1/2).
        s = r.clamp(0, math.sqrt(0.5))
        out = s.clamp(min=0.5)
        return math.pi * s**2 - 4 * (out**2 * torch.acos(0.5 / out) - 0.5 * torch.sqrt(out**2 - 0.25))

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        return torch.rand(n, self.dim, generator=generator, dtype=torch.float64)

    def _distance(self, x: Tensor, y: Tensor) -> Tensor:
        return periodic_norm(x - y, 1.0)

    def _quotient(self, group: str) -> Quotient:
        rest: Manifold = Circle(1.0) if self.dim == 2 else FlatTorus(self.dim - 1)
        return Quotient(rest, lambda x: self.check("x", x)[..., 1:])


@dataclass(frozen=True)
class Cube(Manifold):
    """The unit cube ``[0, 1]^dim`` with its boundary, uniform, with the Euclidean distance."""

    dim: int

    def __post_init__(self) -> None:
        d = validation.count("dim", self.dim)
        self._describe(f"cube [0,1]^{d}", d, d, 1.0, math.sqrt(d))

    def check(self, name: str, x: Tensor) -> Tensor:
        """Return ``x`` if it lies in the cube, up to rounding in single precision."""
        low, high = float(super().check(name, x).min()), float(x.max())
        if low < -1e-6 or high > 1 + 1e-6:
            raise ValueError(f"{name} must lie in {self.name}, got coordinates from {low} to {high}")
        return x

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        return torch.rand(n, self.dim, generator=generator, dtype=torch.float64)


@dataclass(frozen=True)
class TorusOfRevolution(Manifold):
    r"""The torus :math:`((a+c\cos\psi)\cos\varphi,\ (a+c\cos\psi)\sin\varphi,\ c\sin\psi)`, :math:`a>c>0`.

    ``law="area"`` is uniform on the surface (area :math:`4\pi^2ac`), ``"angle"`` uniform in both angles. Distances are
    chords. Group ``"rotation"`` (about the last axis): the orbits form the tube's circle of length :math:`2\pi c`.
    """

    a: float
    c: float
    law: Literal["area", "angle"] = "area"

    def __post_init__(self) -> None:
        c = validation.number("c", self.c, above=0.0)
        a = validation.number("a", self.a, above=c)
        validation.choice("law", self.law, ("area", "angle"))
        area = 4 * math.pi**2 * a * c
        self._describe("torus of revolution", 2, 3, area, 2 * (a + c), ("rotation",), self.law == "area")

    def check(self, name: str, x: Tensor) -> Tensor:
        """Return ``x`` if it lies on the torus within 1e-3 of the tube's radius."""
        rho = torch.linalg.vector_norm(super().check(name, x)[..., :2], dim=-1)
        off = float((torch.hypot(rho - self.a, x[..., 2]) / self.c - 1).abs().max())
        if off > 1e-3:
            raise ValueError(f"{name} must lie on the {self.name}; a point is off by {off:.2g} of the tube's radius")
        return x

    @property
    def _tube(self) -> OneDimensional:
        length = 2 * math.pi * self.c
        return CircleDensity(self.c / self.a, length) if self.law == "area" else Circle(length)

    def density_integral(self, power: float) -> float:
        r"""The integral of the density to a power with respect to area; by the trapezoidal rule for ``"angle"``."""
        if self.uniform:
            return super().density_integral(power)
        ring = 2 * math.pi * (self.a + self.c * torch.cos(2 * math.pi * turn))
        return float(2 * math.pi * self.c * (ring ** (1 - power)).mean() / (2 * math.pi * self.c) ** power)

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        psi = self._tube.sample(n, generator=generator)[:, 0] / self.c
        phi = 2 * math.pi * torch.rand(n, generator=generator, dtype=torch.float64)
        rho = self.a + self.c * torch.cos(psi)
        return torch.stack((rho * torch.cos(phi), rho * torch.sin(phi), self.c * torch.sin(psi)), 1)

    def _quotient(self, group: str) -> Quotient:
        return Quotient(self._tube, self._tube_arc)

    def _tube_arc(self, x: Tensor) -> Tensor:
        x = self.check("x", x)
        rho = torch.linalg.vector_norm(x[..., :2], dim=-1, keepdim=True)
        return self.c * torch.remainder(torch.atan2(x[..., 2:], rho - self.a), 2 * math.pi)
