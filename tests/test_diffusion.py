"""The ideal denoisers against brute force, autograd and symmetry; the sampler; the trained denoisers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import diffusion
from lib.diffusion import ideal_denoiser, noise_levels, sample, start_noise, train_denoisers


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sphere(n: int, dim: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.nn.functional.normalize(draw(n, dim, seed=seed), dim=1)


def generators(k: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in range(k)]


def direct(x: torch.Tensor, sigma: float, atoms: torch.Tensor) -> torch.Tensor:
    """The definition from differences, in float64 and with the [m, n, d] array that the library avoids."""
    x, atoms = x.double(), atoms.double()
    logits = -(x[:, None] - atoms[None]).square().sum(-1) / (2 * sigma**2)
    return torch.softmax(logits, 1) @ atoms


def turn(angle: torch.Tensor, name: str, dim: int) -> torch.Tensor:
    """Rotation matrices [g, dim, dim] of the circle actions 'axis' and 'phase'."""
    block = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).reshape(-1, 2, 2)
    matrices = torch.eye(dim, dtype=angle.dtype).repeat(len(angle), 1, 1)
    for first in range(0, 2 if name == "axis" else dim, 2):
        matrices[:, first : first + 2, first : first + 2] = block
    return matrices


def circle(g: int) -> torch.Tensor:
    return 2 * math.pi * torch.arange(g, dtype=torch.float64) / g


def noisy(data: torch.Tensor, sigma: float, m: int, seed: int) -> torch.Tensor:
    rows = torch.randint(len(data), (m,), generator=torch.Generator().manual_seed(seed))
    return data[rows] + sigma * draw(m, data.shape[1], seed=seed + 1)


# The ideal denoiser ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 3, 8, 40])
@pytest.mark.parametrize("sigma", [10.0, 0.5, 0.05, 1e-3])
def test_plain_is_the_softmax_of_distances(dim: int, sigma: float) -> None:
    data = draw(60, dim) + 5
    x = torch.cat([noisy(data, sigma, 20, 3), draw(20, dim, seed=5)])
    assert torch.allclose(ideal_denoiser(data)(x, sigma), direct(x, sigma, data), atol=1e-8)


@pytest.mark.parametrize("sigma", [3.0, 0.5, 0.1, 0.05])
@pytest.mark.parametrize(("name", "dim"), [("axis", 3), ("phase", 4), ("phase", 2), ("phase", 6)])
def test_circle_groups_are_the_data_augmented_by_512_rotations(name: str, dim: int, sigma: float) -> None:
    data = sphere(12, dim)
    x = noisy(data, sigma, 30, 1)
    x[0], x[1, :2] = 0, 0  # on the fixed points, where the direction of the turn is undefined
    rotations = turn(circle(512), name, dim)
    expected = direct(x, sigma, (data @ rotations.mT).flatten(0, 1))
    assert torch.allclose(ideal_denoiser(data, group=name)(x, sigma), expected, atol=1e-10)


@pytest.mark.parametrize(("name", "dim"), [("axis", 3), ("phase", 6)])
def test_finite_group_is_the_data_augmented_by_it(name: str, dim: int) -> None:
    data, rotations = sphere(12, dim), turn(circle(30), name, dim)
    x = draw(30, dim, seed=1)
    expected = direct(x, 0.2, torch.cat([data @ rotation.T for rotation in rotations]))
    assert torch.allclose(ideal_denoiser(data, group=rotations)(x, 0.2), expected, atol=1e-12)
    # A permutation of the orbit changes nothing.
    assert torch.allclose(ideal_denoiser(data @ rotations[7].T, group=rotations)(x, 0.2), expected, atol=1e-12)


def test_antipodal_is_the_data_with_their_negatives() -> None:
    data, x = sphere(20, 5), draw(30, 5, seed=1)
    expected = direct(x, 0.4, torch.cat([data, -data]))
    eye = torch.eye(5, dtype=torch.float64)
    assert torch.allclose(ideal_denoiser(data, group="antipodal")(x, 0.4), expected, atol=1e-12)
    assert torch.allclose(ideal_denoiser(data, group=torch.stack([eye, -eye]))(x, 0.4), expected, atol=1e-12)


def test_circle_group_limits_in_closed_form() -> None:
    point = torch.tensor([[0.6, 0.0, 0.8]], dtype=torch.float64)
    denoise = ideal_denoiser(point, group="axis")
    # Without noise a point goes to the nearest point of its orbit; under infinite noise to the orbit's centre.
    x = torch.tensor([[0.0, 3.0, -1.0]], dtype=torch.float64)
    assert torch.allclose(denoise(x, 1e-4), torch.tensor([[0.0, 0.6, 0.8]], dtype=torch.float64), atol=1e-7)
    assert torch.allclose(denoise(x, 1e4), torch.tensor([[0.0, 0.0, 0.8]], dtype=torch.float64), atol=1e-7)


@pytest.mark.parametrize("group", [None, "axis", "phase", "antipodal"])
def test_tweedie(group: str | None) -> None:
    """The posterior mean is x + sigma^2 times the score of the mixture, here by autograd of its log density."""
    dim, sigma = (4 if group == "phase" else 3), 0.3
    data, x = sphere(10, dim), draw(25, dim, seed=2).requires_grad_()
    matrices = {
        None: torch.eye(dim, dtype=torch.float64)[None],
        "antipodal": torch.stack([torch.eye(dim, dtype=torch.float64), -torch.eye(dim, dtype=torch.float64)]),
    }
    rotations = matrices[group] if group in matrices else turn(circle(400), group, dim)
    atoms = (data @ rotations.mT).flatten(0, 1)
    log_density = torch.logsumexp(-(x[:, None] - atoms).square().sum(-1) / (2 * sigma**2), 1)
    (score,) = torch.autograd.grad(log_density.sum(), x)
    expected = (x + sigma**2 * score).detach()
    assert torch.allclose(ideal_denoiser(data, group=group)(x.detach(), sigma), expected, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["axis", "phase"]),
    angle=st.floats(-10, 10),
    sigma=st.floats(1e-3, 20),
    seed=st.integers(0, 1000),
)
def test_circle_groups_commute_with_the_rotation(name: str, angle: float, sigma: float, seed: int) -> None:
    dim = 3 if name == "axis" else 4
    data, x = sphere(9, dim, seed), draw(7, dim, seed=seed + 1)
    rotation = turn(torch.tensor([angle], dtype=torch.float64), name, dim)[0]
    denoise = ideal_denoiser(data, group=name)
    # Rounding moves a logit by up to 1e-16 |x|^2 / sigma^2.
    tolerance = 1e-13 + 1e-14 / sigma**2
    assert torch.allclose(denoise(x @ rotation.T, sigma), denoise(x, sigma) @ rotation.T, atol=tolerance)
    # Turning each data point by its own angle changes nothing: only the orbits count.
    own = turn(draw(9, seed=seed + 2), name, dim)
    moved = (own @ data[:, :, None])[..., 0]
    assert torch.allclose(ideal_denoiser(moved, group=name)(x, sigma), denoise(x, sigma), atol=tolerance)


@settings(max_examples=25, deadline=None)
@given(sigma=st.floats(1e-3, 20), seed=st.integers(0, 1000), shift=st.floats(-30, 30))
def test_plain_commutes_with_rigid_motions_and_stays_in_the_hull(sigma: float, seed: int, shift: float) -> None:
    data, x = sphere(9, 3, seed), draw(7, 3, seed=seed + 1)
    q = torch.linalg.qr(draw(3, 3, seed=seed + 2))[0]
    result = ideal_denoiser(data)(x, sigma)
    moved = ideal_denoiser(data @ q.T + shift)(x @ q.T + shift, sigma)
    assert torch.allclose(moved, result @ q.T + shift, atol=1e-12 + 1e-12 / sigma**2)
    assert float(result.norm(dim=1).max()) <= 1 + 1e-9


@pytest.mark.parametrize("group", [None, "axis", "antipodal"])
@pytest.mark.parametrize("sigma", [5.0, 0.8, 0.3, 0.05, 1e-3])
def test_float32_is_as_exact_as_its_input(group: str | None, sigma: float) -> None:
    data = sphere(400).float()
    x = torch.cat([noisy(data.double(), sigma, 100, 3), draw(100, 3, seed=5)]).float()
    result = ideal_denoiser(data, group=group)(x, sigma)
    expected = ideal_denoiser(data.double(), group=group)(x.double(), sigma)
    assert result.dtype == torch.float32
    assert torch.allclose(result.double(), expected, atol=1e-6)
    if group is None:
        assert torch.allclose(result.double(), direct(x, sigma, data), atol=1e-6)


def test_naive_float32_would_fail() -> None:
    """Why the precision rule exists: near the centre of a sphere all points compete, and float32 weights are wrong."""
    data, x = sphere(400).float(), (1e-6 * draw(100, 3, seed=1)).float()
    exact = direct(x, 1e-3, data)
    naive = torch.softmax((x @ data.T - data.square().sum(1) / 2) / 1e-3**2, 1) @ data
    assert float((naive - exact).abs().max()) > 1e-4
    assert float((ideal_denoiser(data)(x, 1e-3) - exact).abs().max()) < 1e-6


@pytest.mark.parametrize("group", [None, "axis", "antipodal"])
def test_chunk_size_changes_nothing(group: str | None) -> None:
    data, x = sphere(50), draw(23, 3, seed=1)
    whole = ideal_denoiser(data, group=group)(x, 0.2)
    for chunk_size in (1, 7, 23, 1000):
        assert torch.allclose(ideal_denoiser(data, group=group, chunk_size=chunk_size)(x, 0.2), whole, atol=1e-14)


def test_bound_behind_the_dropped_orbits() -> None:
    kappa = torch.logspace(-8, 9, 4000, dtype=torch.float64)
    log_bessel = torch.special.i0e(kappa).log()
    assert bool((log_bessel <= 0).all())
    assert bool((log_bessel >= -torch.log1p(2 * math.pi * kappa) / 2).all())


def test_inputs_are_left_alone_and_the_result_is_repeatable() -> None:
    data, x = sphere(10), draw(5, 3, seed=1)
    copies = data.clone(), x.clone()
    for group in (None, "axis"):
        denoise = ideal_denoiser(data, group=group)
        assert torch.equal(denoise(x, 0.3), denoise(x, 0.3))
    assert torch.equal(data, copies[0])
    assert torch.equal(x, copies[1])


@pytest.mark.parametrize("group", [None, "antipodal", "axis", "phase"])
def test_a_later_change_of_the_data_changes_nothing(group: str | None) -> None:
    data, x = draw(10, 4 if group == "phase" else 3), draw(5, 4 if group == "phase" else 3, seed=1)
    denoise = ideal_denoiser(data, group=group)
    before = denoise(x, 0.3)
    data.zero_()
    assert torch.equal(denoise(x, 0.3), before)


@pytest.mark.parametrize("sigma", [1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_orbits_at_small_noise_are_the_nearest_ones(sigma: float, shift: float) -> None:
    data = sphere(6) + torch.tensor([0.0, 0.0, shift], dtype=torch.float64)
    turned = data @ turn(torch.tensor([1.0], dtype=torch.float64), "axis", 3)[0].T
    assert torch.allclose(ideal_denoiser(data, group="axis")(turned, sigma), turned, rtol=1e-12, atol=1e-12)


# Levels, noise and the sampler -------------------------------------------------------------------------------------


def test_noise_levels_are_geometric_with_exact_ends() -> None:
    levels = noise_levels(20.0, 1e-3, 15)
    ratios = levels[1:] / levels[:-1]
    assert float(levels[0]) == 20.0
    assert float(levels[-1]) == 1e-3
    assert torch.allclose(ratios, ratios[0].expand(14), atol=1e-14)


def test_start_noise_has_the_stated_law() -> None:
    noise = start_noise(20000, 3, sigma=4.0, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    assert noise.dtype == torch.float32
    # Standard errors: 4 / sqrt(2e4) for a mean, 16 sqrt(2 / 2e4) for a variance; five of them are allowed.
    assert float(noise.mean(0).abs().max()) < 5 * 4 / math.sqrt(2e4)
    assert float((noise.var(0) - 16).abs().max()) < 5 * 16 * math.sqrt(2 / 2e4)


@pytest.mark.parametrize("group", [None, "antipodal", "axis"])
def test_sampler_reproduces_the_training_set_or_its_orbits(group: str | None) -> None:
    data = sphere(32, seed=4)
    start = start_noise(1000, 3, sigma=20.0, generator=torch.Generator().manual_seed(1))
    out = sample(ideal_denoiser(data, group=group), start, sigmas=noise_levels(20.0, 1e-3, 20))

    def quotient(points: torch.Tensor) -> torch.Tensor:
        return torch.stack([points[:, :2].norm(dim=1), points[:, 2]], 1) if group == "axis" else points

    atoms = torch.cat([data, -data]) if group == "antipodal" else quotient(data)
    distances = torch.cdist(quotient(out), atoms, compute_mode="donot_use_mm_for_euclid_dist")
    assert float(distances.amin(1).max()) < 1e-2
    assert len(distances.argmin(1).unique()) == len(atoms)
    if group == "axis":
        phases = torch.complex(out[:, 0], out[:, 1])
        # Uniform azimuths: the mean of 1000 unit phasors is below 3 / sqrt(1000) with probability 1 - e^-9.
        assert float((phases / phases.abs()).mean().abs()) < 3 / math.sqrt(1000)


def test_sampler_follows_the_flow_of_a_gaussian() -> None:
    """For N(0, s^2) data the flow is x / sqrt(sigma^2 + s^2) = const, so Euler's step converges at first order."""
    s, x = 0.7, torch.tensor([[1.0], [-3.0]], dtype=torch.float64)

    def denoiser(x: torch.Tensor, sigma: float) -> torch.Tensor:
        return x * s**2 / (s**2 + sigma**2)

    exact = x * s / math.sqrt(5.0**2 + s**2)
    errors = [
        float((sample(denoiser, x, sigmas=noise_levels(5.0, 1e-4, steps)) - exact).abs().max()) for steps in (200, 400)
    ]
    assert errors[1] < 3e-2
    assert abs(errors[0] / errors[1] - 2) < 0.1


def test_variance_preserving_form_is_a_change_of_variables() -> None:
    """x_vp = sqrt(a) x and sigma^2 = (1 - a) / a turn DDIM in its own variables into ours, step by step."""
    data = sphere(15)
    alphas = torch.tensor([0.01, 0.1, 0.5, 0.9, 0.999], dtype=torch.float64)
    start = draw(40, 3, seed=3)
    x = start
    for now, later in zip(alphas, [*alphas[1:], None], strict=True):
        logits = -torch.cdist(x, now.sqrt() * data).square() / (2 * (1 - now))
        clean = torch.softmax(logits, 1) @ data
        if later is not None:
            noise = (x - now.sqrt() * clean) / (1 - now).sqrt()
            x = later.sqrt() * clean + (1 - later).sqrt() * noise
    sigmas = ((1 - alphas) / alphas).sqrt()
    ours = sample(ideal_denoiser(data), start / alphas[0].sqrt(), sigmas=sigmas)
    assert torch.allclose(ours, clean, atol=1e-9)


def test_path_holds_the_denoised_points_of_every_level() -> None:
    data, sigmas = sphere(5), noise_levels(3.0, 0.1, 6)
    start = 3 * draw(4, 3, seed=1)
    path = sample(ideal_denoiser(data), start, sigmas=sigmas, path=True)
    assert path.shape == (6, 4, 3)
    assert torch.allclose(path[0], direct(start, 3.0, data), atol=1e-12)
    assert torch.equal(path[-1], sample(ideal_denoiser(data), start, sigmas=sigmas))


# Trained denoisers -------------------------------------------------------------------------------------------------

SMALL = {"width": 16, "depth": 2, "batch": 32}


@pytest.mark.parametrize("symmetry", [None, "axis"])
def test_trained_denoisers_approach_the_ideal_one(symmetry: str | None) -> None:
    data = torch.stack([sphere(2, seed=1), sphere(2, seed=2)])
    trained = train_denoisers(data, generators=generators(2), symmetry=symmetry, steps=500, width=32)
    assert trained.history.shape == (500, 2)
    assert bool((trained.history[-100:].mean(0) < 0.9 * trained.history[:20].mean(0)).all())
    for sigma in (0.2, 0.5, 2.0):
        for k in range(2):
            x = noisy(data[k], sigma, 400, 7)
            ideal = ideal_denoiser(data[k], group=symmetry)(x, sigma)
            error = (trained(x, sigma)[k] - ideal).square().sum(1).mean()
            # The trivial denoiser, the mean of the data, has the error of the first term; x itself of the second.
            trivial = min((data[k].mean(0) - ideal).square().sum(1).mean(), (x - ideal).square().sum(1).mean())
            assert float(error) < 0.6 * float(trivial)


@settings(max_examples=15, deadline=None)
@given(angle=st.floats(-10, 10), sigma=st.floats(0.05, 3.0), seed=st.integers(0, 1000))
def test_symmetric_networks_are_exactly_equivariant(angle: float, sigma: float, seed: int) -> None:
    trained = symmetric_pair()
    x = 2 * draw(10, 3, seed=seed)
    x[0, :2] = 0
    rotation = turn(torch.tensor([angle], dtype=torch.float64), "axis", 3)[0]
    assert torch.allclose(trained(x @ rotation.T, sigma), trained(x, sigma) @ rotation.T, atol=3e-6)


def symmetric_pair(cache: list[diffusion.TrainedDenoisers] = []) -> diffusion.TrainedDenoisers:  # noqa: B006
    if not cache:
        data = torch.stack([sphere(3, seed=1), sphere(3, seed=2)])
        cache.append(train_denoisers(data, generators=generators(2), symmetry="axis", steps=30, **SMALL))
    return cache[0]


@pytest.mark.parametrize("symmetry", [None, "axis"])
def test_a_member_trains_as_if_alone(symmetry: str | None) -> None:
    data = torch.stack([sphere(4, seed=k) * (1 + k) for k in range(3)])
    together = train_denoisers(data, generators=generators(3), symmetry=symmetry, steps=40, **SMALL)
    alone = train_denoisers(data[1:2], generators=generators(3)[1:2], symmetry=symmetry, steps=40, **SMALL)
    x = draw(20, 3, seed=5)
    assert torch.allclose(together(x, 0.4)[1], alone(x, 0.4)[0], atol=1e-5)
    assert torch.allclose(together.history[:, 1], alone.history[:, 0], rtol=1e-4)


def test_trained_denoisers_keep_dtype_and_show_themselves() -> None:
    trained = symmetric_pair()
    assert trained(draw(5, 3), 0.5).dtype == torch.float64
    assert trained(draw(2, 5, 3).float(), 0.5).shape == (2, 5, 3)
    assert "2 trained denoisers" in trained._repr_html_()
    out = sample(trained, 3 * draw(2, 5, 3), sigmas=noise_levels(3.0, 0.05, 7))
    assert bool(torch.isfinite(out).all())


def test_data_that_require_a_gradient_train_the_same() -> None:
    data = sphere(3)[None]
    plain = train_denoisers(data, generators=generators(1), steps=2, **SMALL)
    tracked = train_denoisers(data.clone().requires_grad_(), generators=generators(1), steps=2, **SMALL)
    assert not tracked.scale.requires_grad
    assert torch.equal(plain.history, tracked.history)


def test_training_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    train_denoisers(sphere(3)[None], generators=generators(1), steps=2, **SMALL)
    assert torch.equal(before, torch.get_rng_state())


# Bad input ---------------------------------------------------------------------------------------------------------

DATA = sphere(6)
EYE = torch.eye(3, dtype=torch.float64)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ideal_denoiser([[1.0]]), TypeError, "data"),
        (lambda: ideal_denoiser(torch.ones(3, 3, dtype=torch.int64)), TypeError, "data"),
        (lambda: ideal_denoiser(torch.ones(3, 3, dtype=torch.complex64)), TypeError, "data"),
        (lambda: ideal_denoiser(DATA[0]), ValueError, "data"),
        (lambda: ideal_denoiser(DATA * math.nan), ValueError, "data"),
        (lambda: ideal_denoiser(DATA[:0]), ValueError, "data"),
        (lambda: ideal_denoiser(DATA, group="mirror"), ValueError, "group"),
        (lambda: ideal_denoiser(DATA[:, :2], group="axis"), ValueError, "3 columns"),
        (lambda: ideal_denoiser(DATA, group="phase"), ValueError, "even"),
        (lambda: ideal_denoiser(DATA, chunk_size=0), ValueError, "chunk_size"),
        (lambda: ideal_denoiser(DATA, chunk_size=2.0), TypeError, "chunk_size"),
        (lambda: ideal_denoiser(DATA, group=2 * EYE[None]), ValueError, "orthogonal"),
        (lambda: ideal_denoiser(DATA, group=EYE[None].float()), TypeError, "group"),
        (lambda: ideal_denoiser(DATA, group=torch.stack([EYE, EYE])), ValueError, "repeated"),
        (lambda: ideal_denoiser(DATA, group=-EYE[None]), ValueError, "closed"),
        (lambda: ideal_denoiser(DATA, group=turn(circle(5)[:3], "axis", 3)), ValueError, "closed"),
        (lambda: ideal_denoiser(DATA, group=EYE), ValueError, "group"),
        (lambda: ideal_denoiser(DATA, group=torch.eye(2, dtype=torch.float64)[None]), ValueError, "group"),
        (lambda: ideal_denoiser(DATA)(DATA[:, :2], 1.0), ValueError, "x"),
        (lambda: ideal_denoiser(DATA)(DATA.float(), 1.0), TypeError, "x"),
        (lambda: ideal_denoiser(DATA)(DATA / 0, 1.0), ValueError, "x"),
        (lambda: ideal_denoiser(DATA, group="axis")(DATA, 0.0), ValueError, "sigma"),
        (lambda: ideal_denoiser(DATA)(DATA, "1"), TypeError, "sigma"),
        (lambda: noise_levels(1.0, 2.0, 5), ValueError, "high"),
        (lambda: noise_levels(1.0, 0.0, 5), ValueError, "low"),
        (lambda: noise_levels(1.0, 0.1, 1), ValueError, "steps"),
        (lambda: start_noise(0, 3, sigma=1.0, generator=torch.Generator()), ValueError, "n"),
        (lambda: start_noise(2, 3, sigma=-1.0, generator=torch.Generator()), ValueError, "sigma"),
        (lambda: sample(ideal_denoiser(DATA), DATA, sigmas=torch.tensor([1.0, 1.0])), ValueError, "sigmas"),
        (lambda: sample(ideal_denoiser(DATA), DATA, sigmas=torch.tensor([1.0, 0.0])), ValueError, "sigmas"),
        (lambda: sample(ideal_denoiser(DATA), DATA, sigmas=[1.0, 0.1]), TypeError, "sigmas"),
        (lambda: sample(ideal_denoiser(DATA), DATA.long(), sigmas=torch.tensor([1.0])), TypeError, "start"),
        (lambda: sample(lambda x, s: x[:1], DATA, sigmas=torch.tensor([1.0])), ValueError, "denoiser"),
        (lambda: train_denoisers(DATA, generators=generators(1)), ValueError, "data"),
        (lambda: train_denoisers(DATA[None], generators=generators(2)), ValueError, "generators"),
        (lambda: train_denoisers(0 * DATA[None], generators=generators(1)), ValueError, "data"),
        (lambda: train_denoisers(DATA[None], generators=generators(1), symmetry="phase"), ValueError, "symmetry"),
        (lambda: train_denoisers(DATA[None, :, :2], generators=generators(1), symmetry="axis"), ValueError, "symmetry"),
        (
            lambda: train_denoisers(DATA[None], generators=generators(1), sigma_range=(1.0, 0.1)),
            ValueError,
            "sigma_range",
        ),
        (lambda: train_denoisers(DATA[None], generators=generators(1), steps=0), ValueError, "steps"),
        (lambda: symmetric_pair()(DATA, 10.0), ValueError, "sigma"),
        (lambda: symmetric_pair()(DATA.long(), 1.0), TypeError, "x"),
        (lambda: symmetric_pair()(DATA[:, :2], 1.0), ValueError, r"x must have shape \[m, 3\] or \[2, m, 3\]"),
        (lambda: symmetric_pair()(DATA.expand(3, -1, -1), 1.0), ValueError, "x must have shape"),
        (lambda: symmetric_pair()(1e300 * DATA, 1.0), ValueError, "x in float32 must be finite"),
        (lambda: train_denoisers(1e300 * DATA[None], generators=generators(1)), ValueError, "data in float32"),
        (lambda: train_denoisers(DATA[None], generators=[0]), TypeError, r"generators\[0\] must be a torch.Generator"),
        (lambda: train_denoisers(DATA.expand(2, -1, -1), generators=2 * generators(1)), ValueError, "got one twice"),
        (
            lambda: train_denoisers(DATA[None], generators=generators(1), sigma_range=(0.1, 1.0, 2.0)),
            ValueError,
            "sigma_range must hold",
        ),
        (lambda: sample(lambda x, s: None, DATA, sigmas=torch.tensor([1.0])), TypeError, "the output of denoiser"),
        (lambda: sample(lambda x, s: x / 0, DATA, sigmas=torch.tensor([1.0])), ValueError, "the output of denoiser"),
        (lambda: sample(lambda x, s: x.float(), DATA, sigmas=torch.tensor([1.0])), TypeError, "keep the dtype"),
        (lambda: start_noise(2, 3, sigma=1.0, generator=None), TypeError, "generator must be"),
        (lambda: start_noise(2, 3, sigma=1.0, generator=torch.Generator(), dtype=torch.int64), TypeError, "dtype"),
        (lambda: noise_levels(math.nextafter(1.0, 2.0), 1.0, 5), ValueError, "steps must leave room"),
    ],
)
def test_bad_input_is_named(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
