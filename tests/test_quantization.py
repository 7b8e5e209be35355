"""Lloyd's algorithm against slow and foreign implementations, optimal codebooks against values known otherwise."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from sklearn.cluster import KMeans

from lib import lloyd as lloyd_module
from lib.manifolds import Circle, CircleDensity, Cube, FlatTorus, Interval, RealProjective, Sphere, TorusOfRevolution
from lib.quantization import Codebook, fibonacci_sphere, lloyd, optimal_codebook

SINE = Interval(math.pi, sine_power=1)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(m, d, seed=0, dtype=torch.float64):
    return torch.randn(m, d, generator=rng(seed), dtype=torch.float64).to(dtype)


def slow_lloyd(points, centres, steps):
    """The definition, in numpy, for starts that leave no cell empty."""
    x, c = points.double().numpy(), centres.double().numpy().copy()
    history = []
    for step in range(steps + 1):
        table = np.stack([((x - row) ** 2).sum(1) for row in c], 1)
        history.append(table.min(1).mean())
        if step < steps:
            label = table.argmin(1)
            c = np.stack([x[label == i].mean(0) for i in range(len(c))])
    return torch.from_numpy(c), np.array(history)


def distortion_of(points, centres):
    return slow_lloyd(points, centres, 0)[1][0]


# Lloyd's algorithm


@pytest.mark.parametrize("d", [1, 2, 8, 9, 40])
@pytest.mark.parametrize("n", [1, 7, 32, 45])
def test_lloyd_is_its_definition(d, n):
    points = normal(600, d)
    book = lloyd(points, n, steps=6, start=points[:n])
    centres, history = slow_lloyd(points, points[:n], 6)
    assert torch.allclose(book.points, centres, rtol=0, atol=1e-13)
    assert np.allclose(book.history, history, rtol=1e-12)
    assert book.distortion == float(book.history[-1])


@pytest.mark.parametrize("d", [3, 20])
def test_lloyd_agrees_with_scikit_learn(d):
    points = normal(3000, d, seed=1)
    start = points[torch.randperm(3000, generator=rng(2))[:30]]
    book = lloyd(points, 30, steps=10, start=start)
    peer = KMeans(30, init=start.numpy(), n_init=1, max_iter=10, tol=0, algorithm="lloyd").fit(points.numpy())
    assert np.allclose(book.points, peer.cluster_centers_, rtol=0, atol=1e-10)
    assert abs(book.distortion / (peer.inertia_ / 3000) - 1) < 1e-12


def test_tree_and_product_agree(monkeypatch):
    points = normal(600, 3, seed=3)
    tree = lloyd(points, 50, steps=5, start=points[:50])
    monkeypatch.setattr(lloyd_module, "_TREE_DIM", 0)
    for chunk_size in (None, 1, 133, 10_000):
        product = lloyd(points, 50, steps=5, start=points[:50], chunk_size=chunk_size)
        assert torch.allclose(product.points, tree.points, rtol=0, atol=1e-12)
        assert torch.allclose(product.history, tree.history, rtol=1e-12)


@pytest.mark.parametrize("d", [3, 24])
@pytest.mark.parametrize("shift", [0.0, 3000.0])
def test_single_precision_assigns_exactly(d, shift):
    """Far from the origin |x|^2 - 2 x.c + |c|^2 in float32 is all rounding; here nothing is lost."""
    points = (normal(2000, d, seed=4) + shift).float()
    book = lloyd(points, 40, steps=5, start=points[:40])
    centres = points[:40]
    for step in range(6):
        assert abs(float(book.history[step]) / distortion_of(points, centres) - 1) < 1e-12
        centres = slow_lloyd(points, centres, 1)[0].float()
    assert book.points.dtype == torch.float32
    # Rounding of the returned centres is part of the distortion.
    assert abs(book.distortion / distortion_of(points, book.points) - 1) < 1e-12


def test_near_ties_are_decided_exactly():
    """Two centres a hair apart: the product in float32 cannot tell them, the answer must."""
    points = normal(500, 30, seed=5)
    start = torch.cat([points[:1], points[:1] + 1e-9 * normal(1, 30, seed=6), points[1:9]])
    book = lloyd(points, 10, steps=1, start=start)
    assert torch.allclose(book.points, slow_lloyd(points, start, 1)[0], rtol=0, atol=1e-13)


def test_history_is_constant_after_the_fixed_point():
    points = torch.cat([normal(50, 2) / 100, normal(50, 2, seed=1) / 100 + 5])
    book = lloyd(points, 2, steps=30, start=points[[0, 60]])
    assert book.history.shape == (31,)
    assert torch.equal(book.history[5:], book.history[5].expand(26))
    assert torch.allclose(book.points, torch.stack([points[:50].mean(0), points[50:].mean(0)]))


@pytest.mark.parametrize("d", [2, 12])
@pytest.mark.parametrize("start", ["same", "far", "duplicates"])
def test_empty_cells_are_filled(d, start):
    points = normal(300, d, seed=7)
    centres = {
        "same": points[:1].expand(20, d),
        "far": torch.cat([points[:1], 1e6 + normal(19, d)]),
        "duplicates": points[:10].repeat(2, 1),
    }[start].contiguous()
    book = lloyd(points, 20, steps=15, start=centres)
    assert bool(torch.isfinite(book.points).all())
    used = torch.cdist(points, book.points).argmin(1).unique()
    assert len(used) == 20
    assert bool((book.history.diff() <= 1e-14).all())
    # As good as an ordinary start, within the spread of local minima.
    assert book.distortion < 1.3 * lloyd(points, 20, steps=15, generator=rng()).distortion


def test_reseeding_takes_the_farthest_point():
    points = torch.tensor([[0.0], [1.0], [2.0], [10.0]], dtype=torch.float64)
    book = lloyd(points, 2, steps=1, start=torch.tensor([[3.0], [99.0]], dtype=torch.float64))
    assert book.points.tolist() == [[3.25], [10.0]]  # the mean of all, and the point farthest from it


# Small integers make duplicates and exact ties the rule.
clouds = st.integers(1, 3).flatmap(
    lambda d: st.lists(st.lists(st.integers(-3, 3), min_size=d, max_size=d), min_size=1, max_size=25)
)


@settings(max_examples=150, deadline=None)
@given(cloud=clouds, data=st.data(), tree=st.booleans(), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_properties_on_any_cloud(cloud, data, tree, dtype):
    points = torch.tensor(cloud, dtype=dtype) / 3
    distinct = len(torch.unique(points, dim=0))
    n = data.draw(st.integers(1, distinct))
    rows = data.draw(st.lists(st.integers(0, len(points) - 1), min_size=n, max_size=n))
    steps = data.draw(st.integers(1, 5))
    usual = lloyd_module._TREE_DIM
    lloyd_module._TREE_DIM = 8 if tree else 0
    try:
        for start in ("kmeans++", "sample", points[rows]):
            book = lloyd(points, n, steps=steps, start=start, generator=rng(len(rows)))
            assert len(torch.unique(book.points, dim=0)) == n
            assert book.history.shape == (steps + 1,)
            assert bool((book.history.diff() <= 1e-13).all())
            assert abs(book.distortion - distortion_of(points, book.points)) < 1e-13
            if n == distinct and isinstance(start, str) and start == "kmeans++":
                assert book.distortion == 0
    finally:
        lloyd_module._TREE_DIM = usual


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.sampled_from([1, 3, 11]))
def test_order_of_the_points_is_irrelevant(seed, d):
    points = normal(200, d, seed=seed)
    order = torch.randperm(200, generator=rng(seed))
    first, second = (lloyd(x, 9, steps=8, start=points[:9]) for x in (points, points[order]))
    assert torch.allclose(first.points, second.points, rtol=0, atol=1e-12)


@pytest.mark.parametrize("factor", [2.0**-400, 2.0**-3, 2.0**400])
@pytest.mark.parametrize("d", [2, 16])
def test_scale_of_the_data(factor, d):
    points = normal(400, d, seed=8)
    plain, scaled = (lloyd(x, 12, steps=9, generator=rng(1)) for x in (points, factor * points))
    assert torch.equal(scaled.points, factor * plain.points)
    assert scaled.distortion == plain.distortion * factor**2


@pytest.mark.parametrize("start", ["kmeans++", "sample"])
def test_generator_determines_the_result(start):
    points = normal(500, 2, seed=9)
    first, second, other = (lloyd(points, 15, start=start, generator=rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.points, second.points)
    assert not torch.equal(first.points, other.points)


def test_start_of_kmeans_plus_plus_follows_the_squared_distances():
    cloud = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    generator, count = rng(3), torch.zeros(3, 3)
    for _ in range(6000):
        first, second = lloyd_module._draw(cloud, 2, "kmeans++", generator)[:, 0].tolist()
        count[[0, 1, 3].index(first), [0, 1, 3].index(second)] += 1
    expected = torch.tensor([[0, 1 / 10, 9 / 10], [1 / 5, 0, 4 / 5], [9 / 13, 4 / 13, 0]]) / 3
    assert float(count.diagonal().abs().max()) == 0
    off = ~torch.eye(3, dtype=torch.bool)
    chi_squared = float(((count - 6000 * expected).square() / (6000 * expected))[off].sum())
    assert chi_squared < 20.5  # 99.9 % point with 5 degrees of freedom


def test_input_is_not_changed_and_no_gradient_is_kept():
    points = normal(100, 2).requires_grad_()
    before = points.detach().clone()
    book = lloyd(points, 5, start=points[:5])
    assert torch.equal(points, before)
    assert not book.points.requires_grad


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("d", [3, 64])
def test_cuda_agrees_with_cpu(d):
    points = normal(5000, d, seed=10)
    cpu, gpu = (lloyd(x, 64, start=x[:64]) for x in (points, points.cuda()))
    assert gpu.points.is_cuda
    assert torch.allclose(gpu.points.cpu(), cpu.points, rtol=0, atol=1e-10)


# Codebooks that are known

GOLDEN = {4: 0.6342, 8: 0.6749, 16: 0.6974, 64: 0.7153, 256: 0.71994}


@pytest.mark.parametrize("n", GOLDEN)
def test_latitudes_of_the_sphere(n):
    book = optimal_codebook(Sphere(2), n, group="axis")
    digits = 6e-6 if n == 256 else 6e-5
    assert abs(n**2 * book.distortion - GOLDEN[n]) < digits
    assert book.method.startswith("optimal")
    assert torch.equal(book.points, optimal_codebook(SINE, n).points)


def test_limit_of_the_latitudes():
    limit = (2 ** (-1 / 3) * math.gamma(2 / 3) * math.gamma(1 / 2) / math.gamma(7 / 6)) ** 3 / 12
    assert abs(limit - 0.721495) < 1e-6
    assert abs(4096**2 * optimal_codebook(SINE, 4096).distortion / limit - 1) < 2e-4


@pytest.mark.parametrize(
    "law", [SINE, Interval(2.0, sine_power=2), Interval(0.3, sine_power=7), CircleDensity(0.8), CircleDensity(0.4, 2.5)]
)
@pytest.mark.parametrize("n", [1, 2, 3, 6, 11])
def test_centroid_condition_by_another_integration(law, n):
    book = optimal_codebook(law, n)
    x, length = book.points[:, 0].numpy(), law.volume
    assert bool((np.diff(x) > 0).all())

    def pdf(t):
        return float(law.pdf(torch.tensor(t % length if law.period else t, dtype=torch.float64)))

    if law.period:
        edges = np.concatenate([[(x[-1] - length + x[0]) / 2], (x[1:] + x[:-1]) / 2, [(x[-1] + x[0] + length) / 2]])
    else:
        edges = np.concatenate([[0.0], (x[1:] + x[:-1]) / 2, [length]])
    total = 0.0
    for low, high, c in zip(edges[:-1], edges[1:], x, strict=True):
        moment = quad(lambda t, c=c: (t - c) * pdf(t), low, high, epsabs=1e-13, epsrel=1e-10)[0]
        assert abs(moment) < 1e-12 * length
        total += quad(lambda t, c=c: (t - c) ** 2 * pdf(t), low, high, epsabs=1e-15, epsrel=1e-12)[0]
    assert abs(total / book.distortion - 1) < 1e-11


@pytest.mark.parametrize("law", [SINE, CircleDensity(0.8), CircleDensity(-0.95)])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_no_random_start_does_better(law, n):
    """Plain Lloyd on 1,000 weighted cells of the law, 12 starts: an independent search of the global minimum."""
    grid = (np.arange(1000) + 0.5) / 1000 * law.volume
    weight = law.pdf(torch.from_numpy(grid)).numpy() * law.volume / 1000
    generator, best = np.random.default_rng(0), np.inf
    for _ in range(12):
        c = np.sort(generator.uniform(0, law.volume, n))
        for _ in range(100):
            step = grid[:, None] - c
            if law.period:
                step -= law.period * np.round(step / law.period)
            label = np.abs(step).argmin(1)
            mass = np.bincount(label, weight, n)
            step = np.take_along_axis(step, label[:, None], 1)[:, 0]
            c = c + np.bincount(label, weight * step, n) / np.maximum(mass, 1e-300)
        best = min(best, (weight * step**2).sum())
    ours = optimal_codebook(law, n).distortion
    # Of the law, the cells leave out their inner variance (a share n^2 / 1000^2 of the distortion); plain Lloyd on them
    # stops a little before a minimum.
    assert -2e-6 * n**2 < best / ours - 1 < 2e-3


def test_cosine_density_reaches_its_companding_constant():
    for n, tolerance in ((32, 4e-5), (33, 4e-5), (1024, 1e-7)):
        assert abs(n**2 * optimal_codebook(CircleDensity(0.8), n).distortion - 0.0725553) < tolerance
    plus, minus = (optimal_codebook(CircleDensity(a), 6) for a in (0.8, -0.8))
    assert abs(plus.distortion / minus.distortion - 1) < 1e-12
    shifted = torch.sort((minus.points[:, 0] + 0.5) % 1).values
    assert torch.allclose(shifted, plus.points[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 100])
def test_equal_cells(n):
    for law in (Circle(3.0), Interval(3.0), CircleDensity(0.0, 3.0)):
        book = optimal_codebook(law, n)
        assert book.distortion == 9 / (12 * n**2)
        assert torch.allclose(book.points.diff(dim=0), torch.full((n - 1, 1), 3.0 / n).double())
        assert book.method.startswith("optimal")


def test_quotients():
    assert optimal_codebook(FlatTorus(2), 9, group="translation").distortion == 1 / (12 * 81)
    assert optimal_codebook(TorusOfRevolution(1.0, 0.4, "angle"), 9, group="rotation").distortion == pytest.approx(
        (0.8 * math.pi) ** 2 / (12 * 81), rel=1e-14
    )
    tube = optimal_codebook(TorusOfRevolution(1.0, 0.4), 9, group="rotation")
    assert torch.equal(tube.points, optimal_codebook(CircleDensity(0.4, 0.8 * math.pi), 9).points)
    hopf = optimal_codebook(Sphere(3, 2.0), 50, group="phase")
    assert abs(hopf.distortion / optimal_codebook(Sphere(2), 50).distortion - 1) < 1e-12


@pytest.mark.parametrize("n", [64, 100, 256, 1000])
def test_fibonacci_lattice_is_near_optimal(n):
    book = optimal_codebook(Sphere(2), n)
    assert 2.015333 < n * book.distortion < 2.2
    assert book.method.startswith("near-optimal")
    assert torch.allclose(book.points.square().sum(1), torch.ones(n).double())


def test_distortion_on_the_sphere():
    assert abs(optimal_codebook(Sphere(2), 1).distortion / ((math.pi**2 - 4) / 2) - 1) < 1e-4
    # A product rule, with which the lattice has nothing in common.
    z, weight = np.polynomial.legendre.leggauss(300)
    phi = 2 * np.pi * (np.arange(600) + 0.5) / 600
    ring = np.sqrt(1 - z**2)[:, None]
    x = np.stack([ring * np.cos(phi), ring * np.sin(phi), np.broadcast_to(z[:, None], (300, 600))], -1)
    for n in (2, 12, 64):
        book = optimal_codebook(Sphere(2, 1.5), n)
        cosine = (x @ book.points.numpy().T / 1.5).max(-1).clip(-1, 1)
        exact = 1.5**2 * (weight[:, None] * np.arccos(cosine) ** 2).sum() / 1200
        assert abs(book.distortion / exact - 1) < 1e-3


@pytest.mark.parametrize("manifold", [Cube, FlatTorus])
@pytest.mark.parametrize(("d", "k"), [(1, 7), (2, 4), (3, 3), (5, 2), (2, 1)])
def test_grids(manifold, d, k):
    book = optimal_codebook(manifold(d), k**d)
    assert book.distortion == d / (12 * k**2)
    assert book.points.shape == (k**d, d)
    assert book.method.startswith("optimal") == (d == 1)
    x = manifold(d).sample(10_000, generator=rng())
    squared = torch.cdist(x, book.points).square().amin(1)
    assert abs(float(squared.mean()) - book.distortion) < 4 * float(squared.std()) / 100


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 60), power=st.integers(0, 12), length=st.floats(0.01, 100))
def test_distortion_of_intervals(n, power, length):
    law = Interval(length, sine_power=power)
    book, more = optimal_codebook(law, n), optimal_codebook(law, n + 1)
    assert more.distortion < book.distortion
    x = book.points[:, 0]
    assert torch.allclose(x + x.flip(0), torch.full_like(x, length), rtol=1e-9)  # unique, hence symmetric
    unit = optimal_codebook(Interval(1.0, sine_power=power), n)
    assert book.distortion == pytest.approx(length**2 * unit.distortion, rel=1e-10)


def test_lloyd_on_a_large_sample_approaches_the_optimal_codebook():
    x = SINE.icdf((torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000)[:, None]
    best = optimal_codebook(SINE, 8)
    book = lloyd(x, 8, steps=100, start=best.points + 0.02 * torch.tensor([[1.0], [-1.0]]).double().repeat(4, 1))
    assert torch.allclose(book.points, best.points, rtol=0, atol=1e-4)
    assert abs(book.distortion / best.distortion - 1) < 1e-5


def test_summary_for_a_notebook():
    html = optimal_codebook(Circle(), 3)._repr_html_()
    assert "3 points in 1 coordinates" in html
    assert "optimal: equal cells" in html
    assert "&lt;" in Codebook(torch.zeros(1, 1), 0.0, "a < b")._repr_html_()


# Bad input


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"points": [[0.0]]}, TypeError, "points must be a torch.Tensor, got list"),
        ({"points": torch.zeros(5, 2, dtype=torch.int64)}, TypeError, "points must hold real floating"),
        ({"points": torch.zeros(5, 2, dtype=torch.complex64)}, TypeError, "points must hold real floating"),
        ({"points": torch.zeros(5, 2, dtype=torch.float16)}, TypeError, "points must be float32 or float64"),
        ({"points": torch.zeros(5)}, ValueError, "points must have 2 axes"),
        ({"points": torch.zeros(0, 2)}, ValueError, "points must have at least 1 rows"),
        ({"points": torch.full((5, 2), torch.nan)}, ValueError, "points must be finite"),
        ({"points": torch.full((5, 2), torch.inf)}, ValueError, "points must be finite"),
        ({"n": 0}, ValueError, "n must be at least 1, got 0"),
        ({"n": 2.0}, TypeError, "n must be an integer, got float"),
        ({"n": 51}, ValueError, r"n must be at most the number of points \(50\), got 51"),
        ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1, got 0"),
        ({"start": "random"}, ValueError, r"start must be one of 'kmeans\+\+', 'sample'; got 'random'"),
        ({"start": torch.zeros(3, 2).double()}, ValueError, "start must have n = 4 rows, got 3"),
        ({"start": torch.zeros(4, 3).double()}, ValueError, "start must have as many columns as points"),
        ({"start": torch.zeros(4, 2)}, TypeError, "start must have the dtype of points"),
        ({"start": torch.full((4, 2), torch.nan).double()}, ValueError, "start must be finite"),
        ({"generator": None}, ValueError, r"generator must be given for start='kmeans\+\+', got None"),
        ({"generator": 0}, TypeError, "generator must be a torch.Generator, got int"),
    ],
)
def test_bad_arguments_of_lloyd(change, error, message):
    arguments = {"points": normal(50, 2), "n": 4, "generator": rng()} | change
    points, n = arguments.pop("points"), arguments.pop("n")
    with pytest.raises(error, match=message):
        lloyd(points, n, **arguments)


@pytest.mark.bad_input
@pytest.mark.parametrize("start", ["kmeans++", "sample", "given"])
@pytest.mark.parametrize("d", [2, 12])
def test_too_few_distinct_points(start, d):
    points = normal(4, d).repeat(5, 1)
    start = points[:6].contiguous() if start == "given" else start
    with pytest.raises(ValueError, match="points must hold at least n = 6 distinct points, got 4"):
        lloyd(points, 6, steps=10, start=start, generator=rng())


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("manifold", "n", "group", "error", "message"),
    [
        ("circle", 3, None, TypeError, "manifold must be a lib.manifolds.Manifold, got str"),
        (Circle(), 0, None, ValueError, "n must be at least 1, got 0"),
        (Circle(), 2.5, None, TypeError, "n must be an integer"),
        (Sphere(3), 5, None, ValueError, r"manifold must be .* got sphere S\^3"),
        (RealProjective(2), 5, None, ValueError, r"manifold must be .* got projective space RP\^2"),
        (Sphere(2), 5, "antipodal", ValueError, r"manifold must be .* got projective space"),
        (Sphere(2), 5, "phase", ValueError, "group must be one of"),
        (TorusOfRevolution(1.0, 0.4), 5, None, ValueError, "got torus of revolution"),
        (Cube(2), 5, None, ValueError, r"n must be a power k\^2 for a grid in dimension 2, got 5"),
    ],
)
def test_bad_arguments_of_optimal_codebook(manifold, n, group, error, message):
    with pytest.raises(error, match=message):
        optimal_codebook(manifold, n, group=group)


@pytest.mark.bad_input
@pytest.mark.parametrize(("n", "radius", "name"), [(0, 1.0, "n"), (5, 0.0, "radius"), (5, -1.0, "radius")])
def test_bad_arguments_of_fibonacci_sphere(n, radius, name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        fibonacci_sphere(n, radius=radius)


def test_kmeans_plus_plus_starts_in_every_cluster():
    # Ten tight clusters far apart: once a cluster has a centre, its share of the squared distance is 1e-10.
    centres = torch.eye(10, dtype=torch.float64)
    noise = 1e-6 * torch.randn(200, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    points = centres.repeat_interleave(20, 0) + noise
    for seed in range(5):
        found = lloyd(points, 10, steps=1, generator=torch.Generator().manual_seed(seed))
        assert found.history[0] < 1e-10
