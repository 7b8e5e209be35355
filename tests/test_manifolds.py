"""Manifolds: samples against their laws, quotients against brute-force minima over the group, masses against counts."""

import math

import pytest
import scipy.integrate
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.manifolds import (
    Circle,
    CircleDensity,
    Cube,
    FlatTorus,
    Interval,
    RealProjective,
    Sphere,
    TorusOfRevolution,
)

LINES = [
    Interval(2.0),
    Interval(math.pi, sine_power=1),
    Interval(1.5, sine_power=4),
    Circle(3.0),
    CircleDensity(0.8),
    CircleDensity(-0.95, length=2.0),
]
SPACES = [
    *LINES,
    Sphere(1),
    Sphere(2),
    Sphere(3, radius=2.0),
    RealProjective(2, radius=0.5),
    FlatTorus(1),
    FlatTorus(3),
    Cube(2),
    TorusOfRevolution(1.0, 0.4),
    TorusOfRevolution(1.0, 0.4, "angle"),
]
QUOTIENTS = [
    (Sphere(2), "axis"),
    (Sphere(4, radius=2.0), "axis"),
    (Sphere(3, radius=2.0), "phase"),
    (Sphere(2, radius=3.0), "antipodal"),
    (FlatTorus(2), "translation"),
    (FlatTorus(3), "translation"),
    (TorusOfRevolution(1.0, 0.4), "rotation"),
    (TorusOfRevolution(1.0, 0.4, "angle"), "rotation"),
]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def name(value: object) -> str:
    return repr(value)


def rotated(x: torch.Tensor, angle: torch.Tensor, i: int, j: int) -> torch.Tensor:
    """All rotations of x in the plane of coordinates i, j: a new first axis for the angles."""
    angle = angle.reshape(-1, *(1,) * (x.ndim - 1))
    y = x.expand(len(angle), *x.shape).clone()
    y[..., i] = torch.cos(angle) * x[..., i] - torch.sin(angle) * x[..., j]
    y[..., j] = torch.sin(angle) * x[..., i] + torch.cos(angle) * x[..., j]
    return y


def orbit(manifold, group: str, x: torch.Tensor, steps: int) -> torch.Tensor:
    """A fine sample of the orbits of the rows of x."""
    turn = torch.arange(steps, dtype=torch.float64) * (2 * math.pi / steps)
    if group == "antipodal":
        return torch.stack((x, -x))
    if group == "translation":
        shift = torch.zeros(steps, 1, x.shape[-1], dtype=torch.float64)
        shift[:, 0, 0] = turn / (2 * math.pi)
        return (x + shift) % 1
    if group == "phase":
        return torch.cat((rotated(x, turn, 0, 1)[..., :2], rotated(x, turn, 2, 3)[..., 2:]), -1)
    return rotated(x, turn, 0, 1)


def test_volumes():
    assert Sphere(1).volume == pytest.approx(2 * math.pi, rel=1e-14)
    assert Sphere(2, radius=2.0).volume == pytest.approx(16 * math.pi, rel=1e-14)
    assert Sphere(3).volume == pytest.approx(2 * math.pi**2, rel=1e-14)
    assert RealProjective(2).volume == pytest.approx(2 * math.pi, rel=1e-14)
    ring = scipy.integrate.quad(lambda psi: 2 * math.pi * (1.0 + 0.4 * math.cos(psi)) * 0.4, 0, 2 * math.pi)[0]
    assert TorusOfRevolution(1.0, 0.4).volume == pytest.approx(ring, rel=1e-12)


@pytest.mark.parametrize("space", LINES, ids=name)
def test_density_and_distribution_belong_together(space):
    def density(x: float) -> float:
        return float(space.pdf(torch.tensor(x, dtype=torch.float64)))

    x = torch.linspace(0.01, 0.99, 9, dtype=torch.float64) * space.volume
    for point, mass in zip(x, space.cdf(x), strict=True):
        total = scipy.integrate.quad(density, 0, float(point))[0]
        assert float(mass) == pytest.approx(total, abs=1e-10)
    ends = space.cdf(torch.tensor([0.0, space.volume], dtype=torch.float64))
    torch.testing.assert_close(ends, torch.tensor([0.0, 1.0], dtype=torch.float64), rtol=0, atol=1e-15)
    for power in (1.0, 1 / 3, 0.5):
        total = scipy.integrate.quad(lambda x, p=power: density(x) ** p, 0, space.volume, limit=200)[0]
        assert space.density_integral(power) == pytest.approx(total, rel=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-6, 1 - 1e-6), st.sampled_from(LINES))
def test_quantile_inverts_the_distribution(u, space):
    u = torch.tensor([u], dtype=torch.float64)
    torch.testing.assert_close(space.cdf(space.icdf(u)), u, rtol=1e-9, atol=1e-14)


def test_divergent_density_integrals():
    assert Interval(1.0, sine_power=1).density_integral(-1.0) == math.inf
    assert Interval(1.0, sine_power=2).density_integral(-0.5) == math.inf
    assert Interval(1.0, sine_power=1).density_integral(-0.9) < math.inf
    angle = TorusOfRevolution(1.0, 0.4, "angle")
    assert angle.density_integral(1.0) == pytest.approx(1, rel=1e-13)
    assert angle.density_integral(0.0) == pytest.approx(angle.volume, rel=1e-13)
    assert TorusOfRevolution(1.0, 0.4).density_integral(0.5) == pytest.approx(angle.volume**0.5, rel=1e-13)


@pytest.mark.parametrize("space", LINES, ids=name)
def test_line_samples_follow_the_density(space):
    x = space.sample(4000, generator=seeded())[:, 0]
    assert scipy.stats.kstest(x.numpy(), lambda t: space.cdf(torch.from_numpy(t)).numpy()).pvalue > 1e-3


@pytest.mark.parametrize(("manifold", "group"), QUOTIENTS, ids=name)
def test_quotient_law_is_the_image_of_the_law(manifold, group):
    quotient = manifold.quotient(group)
    image = quotient.project(manifold.sample(4000, generator=seeded(1)))
    direct = quotient.manifold.sample(4000, generator=seeded(2))
    centre = quotient.manifold.sample(1, generator=seeded(3))
    # The law of the distance to a fixed point tells the two clouds apart if anything does.
    a, b = (quotient.manifold.distance(cloud, centre).numpy() for cloud in (image, direct))
    assert scipy.stats.ks_2samp(a, b).pvalue > 1e-3
    if quotient.manifold.dim == 1:
        law = quotient.manifold
        result = scipy.stats.kstest(image[:, 0].numpy(), lambda t: law.cdf(torch.from_numpy(t)).numpy())
        assert result.pvalue > 1e-3


@pytest.mark.parametrize(("manifold", "group"), QUOTIENTS, ids=name)
def test_quotient_coordinates_are_invariant(manifold, group):
    quotient = manifold.quotient(group)
    x = manifold.sample(20, generator=seeded())
    moved = orbit(manifold, group, x, 7)
    apart = quotient.manifold.distance(quotient.project(moved), quotient.project(x))
    # a metric of the quotient sees no difference; half of the digits are lost where it is an angle near a pole
    assert float(apart.max()) < 1e-7


@pytest.mark.parametrize(("manifold", "group"), [q for q in QUOTIENTS if q[0].name != "sphere S^4"], ids=name)
def test_quotient_distance_is_the_least_distance_of_the_orbits(manifold, group):
    quotient = manifold.quotient(group)
    x, y = manifold.sample(15, generator=seeded(1)), manifold.sample(15, generator=seeded(2))
    moved = orbit(manifold, group, x, 20000)
    apart = quotient.manifold.distance(quotient.project(x), quotient.project(y))
    if isinstance(manifold, TorusOfRevolution):
        # Chords in space, arcs of the tube in the quotient: the least chord belongs to the arc's angle.
        apart = 2 * manifold.c * torch.sin(apart / (2 * manifold.c))
    torch.testing.assert_close(apart, manifold.distance(moved, y).min(0).values, rtol=1e-6, atol=1e-6)


def test_rotations_of_a_high_sphere():
    # SO(4) on S^4: the orbit of x is everything of its last coordinate, so that the nearest point is on y's meridian.
    x, y = Sphere(4).sample(20, generator=seeded(1)), Sphere(4).sample(20, generator=seeded(2))
    rho = torch.linalg.vector_norm(x[:, :-1], dim=1, keepdim=True)
    moved = torch.cat((rho * torch.nn.functional.normalize(y[:, :-1], dim=1), x[:, -1:]), 1)
    quotient = Sphere(4).quotient("axis")
    apart = quotient.manifold.distance(quotient.project(x), quotient.project(y))
    torch.testing.assert_close(apart, Sphere(4).distance(moved, y))


def test_hopf_distance_is_fubini_study():
    quotient = Sphere(3).quotient("phase")
    assert quotient.manifold == Sphere(2, radius=0.5)
    x, y = Sphere(3).sample(50, generator=seeded(1)), Sphere(3).sample(50, generator=seeded(2))
    u, v = (torch.complex(z[:, 0::2].contiguous(), z[:, 1::2].contiguous()) for z in (x, y))
    expected = torch.acos((u.conj() * v).sum(1).abs())
    torch.testing.assert_close(quotient.manifold.distance(quotient.project(x), quotient.project(y)), expected)


def test_sphere_distance():
    x, y = Sphere(3).sample(40, generator=seeded(1)), Sphere(3).sample(40, generator=seeded(2))
    torch.testing.assert_close(Sphere(3).distance(x, y), torch.acos((x * y).sum(1)))
    torch.testing.assert_close(Sphere(3, radius=2.0).distance(2 * x, 2 * y), 2 * Sphere(3).distance(x, y))
    both = torch.minimum(torch.acos((x * y).sum(1)), torch.acos(-(x * y).sum(1)))
    torch.testing.assert_close(RealProjective(3).distance(x, y), both)
    angle = 1e-9
    near = torch.tensor([math.sin(angle), 0.0, math.cos(angle)], dtype=torch.float64)
    pole = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    assert float(Sphere(2).distance(pole, near)) == pytest.approx(angle, rel=1e-12)
    assert float(Sphere(2).distance(-pole, near)) == pytest.approx(math.pi - angle, rel=1e-15)


def test_colatitude_keeps_its_digits_at_the_poles():
    angle = 1e-9
    x = torch.tensor([[math.sin(angle), 0.0, math.cos(angle)]], dtype=torch.float64)
    assert float(Sphere(2).quotient("axis").project(x)) == pytest.approx(angle, rel=1e-12)


@pytest.mark.parametrize("space", SPACES, ids=name)
def test_distance_is_a_metric_within_the_diameter(space):
    x, y, z = (space.sample(200, generator=seeded(i)) for i in range(3))
    xy, yz, xz = space.distance(x, y), space.distance(y, z), space.distance(x, z)
    assert bool((xz <= xy + yz + 1e-12).all())
    torch.testing.assert_close(xy, space.distance(y, x))
    assert float(space.distance(x, x).max()) == 0
    assert float(xy.max()) <= space.diameter
    assert space.distance(x[:5, None], y[None, :7]).shape == (5, 7)


@pytest.mark.parametrize("space", SPACES, ids=name)
def test_embedding_orders_like_the_distance(space):
    x, y = space.sample(50, generator=seeded(1)), space.sample(60, generator=seeded(2))
    difference = space.embed(x)[:, None] - space.embed(y)
    if space.period is not None:
        difference = (difference + space.period / 2) % space.period - space.period / 2
    nearest = torch.linalg.vector_norm(difference, dim=2).argmin(1)
    least = space.distance(x[:, None], y).min(1).values
    torch.testing.assert_close(space.distance(x, y[nearest]), least, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("space", "chordal"),
    [
        (Sphere(1), False),
        (Sphere(2, radius=2.0), False),
        (Sphere(5), True),
        (RealProjective(2), False),
        (RealProjective(3, radius=2.0), True),
        (Circle(3.0), False),
        (FlatTorus(1), False),
        (FlatTorus(2), False),
    ],
    ids=name,
)
def test_ball_mass_counts_points(space, chordal):
    x, centre = space.sample(40000, generator=seeded(1)), space.sample(1, generator=seeded(2))
    r = torch.linspace(0.1, 1.0, 6, dtype=torch.float64) * space.diameter
    if chordal:
        apart = torch.linalg.vector_norm(x - centre, dim=1)
        if isinstance(space, RealProjective):
            apart = torch.minimum(apart, torch.linalg.vector_norm(x + centre, dim=1))
    else:
        apart = space.distance(x, centre)
    share = (apart[:, None] <= r).double().mean(0)
    mass = space.ball_mass(r, chordal=chordal)
    assert bool(((share - mass).abs() <= 4 * (mass * (1 - mass) / 40000).sqrt() + 1e-12).all())
    assert float(space.ball_mass(torch.tensor([1.01 * space.diameter], dtype=torch.float64), chordal=chordal)) == 1


@pytest.mark.parametrize("space", SPACES, ids=name)
def test_samples_follow_dtype_and_generator(space):
    single = space.sample(5, generator=seeded(1), dtype=torch.float32)
    double = space.sample(5, generator=seeded(1))
    assert single.dtype == torch.float32
    assert double.shape == (5, space.ambient_dim)
    torch.testing.assert_close(single, double.float())
    assert space.distance(single, single.roll(1, 0)).dtype == torch.float32


def test_torus_samples_lie_on_the_torus():
    x = TorusOfRevolution(1.0, 0.4).sample(100, generator=seeded())
    rho = torch.linalg.vector_norm(x[:, :2], dim=1)
    torch.testing.assert_close((rho - 1) ** 2 + x[:, 2] ** 2, torch.full((100,), 0.16).double())


def test_equality_is_by_parameters():
    assert Sphere(2) == Sphere(2, radius=1.0)
    assert Sphere(2) != Sphere(3)
    assert RealProjective(2) != Sphere(2)
    assert repr(FlatTorus(2)) == "FlatTorus(dim=2)"
    assert FlatTorus(2).quotient("translation").manifold == Circle(1.0)


@pytest.mark.bad_input
def test_bad_parameters():
    for call, error, message in [
        (lambda: Sphere(0), ValueError, "dim must be at least 1"),
        (lambda: Sphere(2.0), TypeError, "dim must be an integer"),
        (lambda: Sphere(2, radius=-1.0), ValueError, "radius must be greater than 0"),
        (lambda: Circle(math.inf), ValueError, "length must be finite"),
        (lambda: CircleDensity(1.0), ValueError, "amplitude must be less than 1"),
        (lambda: Interval(1.0, sine_power=-1), ValueError, "sine_power must be at least 0"),
        (lambda: TorusOfRevolution(0.4, 1.0), ValueError, "a must be greater than 1"),
        (lambda: TorusOfRevolution(1.0, 0.4, "volume"), ValueError, "law must be one of 'area', 'angle'"),
        (lambda: Sphere(2).quotient("phase"), ValueError, "'antipodal', 'axis'.*got 'phase'"),
        (lambda: Cube(2).quotient("translation"), ValueError, r"\(none\)"),
        (lambda: Sphere(1).quotient("axis"), ValueError, "got 'axis'"),
        (lambda: FlatTorus(1).quotient("translation"), ValueError, "got 'translation'"),
        (lambda: Cube(2).ball_mass(torch.ones(1)), ValueError, "no closed form"),
        (lambda: FlatTorus(3).ball_mass(torch.ones(1)), ValueError, "ball_mass"),
        (lambda: Circle(1.0).ball_mass(torch.ones(1), chordal=True), ValueError, "chordal must be False"),
        (lambda: Circle(1.0).sample(0, generator=seeded()), ValueError, "n must be at least 1"),
        (
            lambda: Circle(1.0).sample(2, generator=None),
            TypeError,
            r"generator must be a torch\.Generator, got NoneType",
        ),
        (lambda: Circle(1.0).sample(2, generator=3), TypeError, r"generator must be a torch\.Generator, got int"),
        (lambda: Circle(1.0).sample(2, generator=seeded(), dtype=torch.int64), TypeError, "dtype must be a floating"),
        (lambda: Circle(1.0).sample(2, generator=seeded(), dtype="float"), TypeError, "dtype must be a floating"),
    ]:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.bad_input
def test_bad_points():
    good = Sphere(2).sample(3, generator=seeded())
    for x, error, message in [
        (1.1 * good, ValueError, "x must lie on the sphere"),
        (good[:, :2], ValueError, "x must have 3 coordinates"),
        (good.new_tensor(1.0), ValueError, "x must have 3 coordinates"),
        (good * math.nan, ValueError, "x must be finite"),
        (good.long(), TypeError, "x must hold real"),
        (good.numpy(), TypeError, r"x must be a torch\.Tensor"),
    ]:
        with pytest.raises(error, match=message):
            Sphere(2).distance(x, good)
    with pytest.raises(ValueError, match=r"x must lie in \[0, 1\.0\]"):
        Interval().distance(torch.tensor([[1.5]]), torch.tensor([[0.5]]))
    with pytest.raises(ValueError, match="x must lie on the sphere"):
        Sphere(2).quotient("axis").project(2 * good)
    inside = torch.tensor([[0.0, 1.0]])
    assert float(Cube(2).distance(inside, inside)) == 0
    for off in (-0.1, 0.1):
        with pytest.raises(ValueError, match=r"x must lie in cube \[0,1\]\^2"):
            Cube(2).distance(inside + off, inside)
    torus = TorusOfRevolution(1.0, 0.1)
    ring = torch.tensor([[0.0, 0.9, 0.0]])
    assert float(torus.distance(1.00001 * ring, ring)) < 1e-4
    for call in (torus.quotient("rotation").project, lambda x: torus.distance(x, ring)):
        with pytest.raises(ValueError, match="x must lie on the torus of revolution"):
            call(1.001 * ring)
