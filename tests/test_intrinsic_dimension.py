"""Dimension estimates against known manifolds, golden expectations, scikit-dimension, and their own spread."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import betainc

from lib.intrinsic_dimension import (
    calibrated_dimension,
    expected_estimate,
    gap_curve,
    gap_dimension,
    intrinsic_dimension,
    mle,
    twonn,
)
from lib.statistics import fit_rate

PAPER, LONG = (10, 50, 100, 250), (512, 1024, 2048, 4096)


def stream(seed):
    return torch.Generator().manual_seed(seed)


def sphere(n, d, *, seed=0, ambient=None):
    x = torch.randn(n, d + 1, generator=stream(seed), dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True)
    if ambient is None:
        return x
    frame = torch.linalg.qr(torch.randn(ambient, d + 1, generator=stream(7), dtype=torch.float64)).Q
    return x @ frame.T


# ------------------------------------------------------------------------------------------------ calibration


@pytest.mark.parametrize(
    ("sizes", "golden"),
    [
        (PAPER, (2.060, 3.020, 4.783, 7.806, 10.979, 16.650)),
        (LONG, (2.002, 2.997, 4.936, 8.504, 12.447, 19.782)),
    ],
)
def test_the_expected_estimate_has_its_golden_values(sizes, golden):
    for d, want in zip((2, 3, 5, 9, 14, 25), golden, strict=True):
        assert expected_estimate(d, sizes) == pytest.approx(want, abs=5.1e-4)
        # the table has three decimals; the inverse magnifies them where the curve is flat
        assert calibrated_dimension(want, sizes) == pytest.approx(d, abs=2e-3)


@pytest.mark.parametrize("d", [0.7, 1, 2, 6.5, 40, 200])
def test_the_expected_estimate_is_the_integral(d):
    sizes = (3, 30, 300)

    def gap(n):
        # Over the logarithm of s, where the integrand is one smooth hump.
        humps = [-2 * math.log(n) / d * c for c in (0.5, 1, 2)]
        integrand = lambda y: math.exp(y) * betainc(d / 2, d / 2, -math.expm1(y)) ** n  # noqa: E731
        return quad(integrand, -80 / min(d, 1), 0, points=humps, limit=400, epsabs=0, epsrel=1e-11)[0]

    gaps = torch.tensor([gap(n) for n in sizes], dtype=torch.float64)
    slope = np.polyfit(np.log(sizes), gaps.log().numpy(), 1)[0]
    assert expected_estimate(d, sizes) == pytest.approx(-2 / slope, rel=1e-8)


def test_the_expected_estimate_on_the_two_sphere_in_closed_form():
    slope = np.polyfit(np.log(LONG), np.log([4 / (n + 1) for n in LONG]), 1)[0]
    assert expected_estimate(2, LONG) == pytest.approx(-2 / slope, rel=1e-11)


@settings(deadline=None, max_examples=20)
@given(d=st.floats(0.6, 120), factor=st.integers(2, 9), first=st.integers(4, 60))
def test_calibration_inverts_and_increases(d, factor, first):
    sizes = [first * factor**j for j in range(3)]
    raw = expected_estimate(d, sizes)
    assert calibrated_dimension(raw, sizes) == pytest.approx(d, rel=1e-7)
    assert expected_estimate(1.05 * d, sizes) > raw


# ------------------------------------------------------------------------------------------------ the gap


def test_nested_minima_are_the_gaps_of_the_subsets():
    points = sphere(400, 3)
    sizes, gaps = gap_curve(points, generator=stream(3), sizes=(5, 20, 60), repeats=2)
    order = torch.randperm(400, generator=stream(3))
    for r in range(2):
        part = points[order[200 * r : 200 * (r + 1)]]
        for column, n in enumerate(sizes):
            table = torch.cdist(part[60:], part[:n], compute_mode="donot_use_mm_for_euclid_dist")
            assert gaps[r, column] == pytest.approx(float(table.amin(1).square().mean()), rel=1e-12)


def test_default_sizes_halve_from_half_of_a_repeat():
    assert gap_curve(sphere(5 * 700, 2), generator=stream(0))[0] == (10, 21, 43, 87, 175, 350)
    assert gap_curve(sphere(320, 2), generator=stream(0))[0] == (8, 16, 32)
    assert gap_curve(sphere(128, 2), generator=stream(0), splits="random", repeats=2)[0] == (8, 16, 32, 64)


@pytest.mark.parametrize("d", [2, 5, 9])
def test_the_gap_estimate_has_its_expectation_on_spheres(d):
    """The finite-size expectation, not the dimension, is what the estimate scatters around."""
    found = gap_dimension(sphere(10_000, d, ambient=12), generator=stream(1), sizes=PAPER, repeats=20)
    expected = expected_estimate(d, PAPER)
    assert abs(found.value - expected) < 4 * found.standard_error
    assert found.standard_error < 0.03 * d
    assert calibrated_dimension(found.value, found.sizes) == pytest.approx(d, rel=0.1)
    if d == 9:
        assert abs(found.value - d) > 8 * found.standard_error
        assert found.curvature > 0
    assert found.method == "gap"
    assert found.value == pytest.approx(-2 / float(found.slopes.mean()))


def test_the_gap_estimate_is_the_fit_of_the_curve():
    points = sphere(2000, 2)
    sizes, gaps = gap_curve(points, generator=stream(5), splits="random")
    found = gap_dimension(points, generator=stream(5), splits="random")
    rate = fit_rate(sizes, gaps)
    assert torch.equal(found.slopes, rate.slopes)
    assert found.standard_error == pytest.approx(2 / rate.slope**2 * rate.standard_error)
    design = np.stack([np.log(sizes) ** 2, np.log(sizes), np.ones(len(sizes))], 1)
    assert found.curvature == pytest.approx(np.linalg.lstsq(design, gaps.log().mean(0).numpy())[0][0])


def test_the_gap_error_is_the_spread_over_clouds():
    found = [gap_dimension(sphere(1200, 2, seed=s), generator=stream(s), repeats=5) for s in range(60)]
    spread = np.std([f.value for f in found], ddof=1)
    claimed = np.sqrt(np.mean([f.standard_error**2 for f in found]))
    assert 0.75 < claimed / spread < 1.33  # the spread itself is known to 9 %


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-6, 3.0, 1e6]))
def test_estimates_do_not_see_rotation_shift_and_scale(seed, scale):
    points = sphere(300, 3, seed=seed)
    turn = torch.linalg.qr(torch.randn(4, 4, generator=stream(seed), dtype=torch.float64)).Q
    moved = scale * (points @ turn.T + 1)
    for method, options in (("gap", {"repeats": 2}), ("twonn", {}), ("twonn", {"estimator": "fit"}), ("mle", {"k": 6})):
        one, two = (
            intrinsic_dimension(x, method=method, **options, **({"generator": stream(seed)} if method == "gap" else {}))
            for x in (points, moved)
        )
        assert two.value == pytest.approx(one.value, rel=1e-8)
        assert two.standard_error == pytest.approx(one.standard_error, rel=1e-6)


def test_the_order_of_the_points_does_not_matter():
    points = sphere(500, 3)
    order = torch.randperm(500, generator=stream(0))
    assert twonn(points[order]).value == pytest.approx(twonn(points).value, rel=1e-12)
    assert mle(points[order]).standard_error == pytest.approx(mle(points).standard_error, rel=1e-10)


# ------------------------------------------------------------------------------------------------ the neighbours


def brute_ratios(points, k):
    distances = np.sqrt(((points[:, None] - points[None]) ** 2).sum(2).numpy())
    r = np.sort(distances, 1)[:, 1 : k + 1]
    return np.log(r[:, -1:] / r[:, :-1])


def test_closed_forms_by_brute_force():
    points = sphere(300, 4)
    logs = brute_ratios(points, 2)[:, 0]
    assert twonn(points).value == pytest.approx(299 / logs.sum(), rel=1e-10)
    kept = np.sort(logs)[:240]
    height = -np.log(1 - np.arange(1, 241) / 300)
    assert twonn(points, estimator="fit", discard=0.2).value == pytest.approx(
        (kept @ height) / (kept @ kept), rel=1e-10
    )
    assert mle(points, k=7).value == pytest.approx(1 / brute_ratios(points, 7).mean(), rel=1e-10)
    assert mle(points, k=2).value == pytest.approx(twonn(points).value * 300 / 299, rel=1e-12)


def test_the_error_counts_each_pair_of_neighbours_once():
    points = sphere(200, 2)
    logs = brute_ratios(points, 4).mean(1)
    distances = ((points[:, None] - points[None]) ** 2).sum(2).numpy()
    near = distances <= np.sort(distances, 1)[:, 4:5]  # itself and four others
    c = logs - logs.mean()
    factor = max(1.0, c @ (near | near.T) @ c / (c @ c))
    want = 1 / logs.mean() / math.sqrt(200 * 3) * math.sqrt(factor)
    assert factor > 1
    assert mle(points, k=4).standard_error == pytest.approx(want, rel=1e-10)


@pytest.mark.parametrize(("d", "n"), [(1, 3000), (2, 3000), (5, 4000)])
def test_known_dimensions(d, n):
    """Within 4 errors of the truth plus the known bias by curvature, which is small for so many points."""
    points = sphere(n, d, ambient=10)
    for found in (twonn(points), twonn(points, estimator="fit"), mle(points, k=10)):
        assert abs(found.value - d) < 4 * found.standard_error + 0.02 * d
        assert found.standard_error < 0.06 * d


def test_a_gaussian_ball_in_many_dimensions_is_biased_low():
    ball = torch.randn(2000, 20, generator=stream(0), dtype=torch.float64)
    assert 13 < twonn(ball).value < 19
    assert 13 < mle(ball).value < 19


@pytest.mark.parametrize(
    ("estimate", "naive"),
    [
        (twonn, 1 / math.sqrt(500)),
        (lambda x: twonn(x, estimator="fit"), None),
        (lambda x: mle(x, k=5), 1 / math.sqrt(500 * 4)),
    ],
)
def test_the_error_is_the_spread_over_clouds(estimate, naive):
    found = [estimate(sphere(500, 2, seed=s)) for s in range(250)]
    values = np.array([f.value for f in found])
    claimed = np.sqrt(np.mean([f.standard_error**2 for f in found]))
    assert 0.85 < claimed / values.std(ddof=1) < 1.2
    if naive:  # the usual error, which takes the ratios for independent, is too small
        assert naive * values.mean() < 0.92 * values.std(ddof=1)


def test_the_unbiased_factor():
    """On independent ratios; n = 5 makes the factor (n - 1) / n visible."""
    logs = torch.empty(20_000, 5, dtype=torch.float64).exponential_(3.0, generator=stream(0))
    estimates = 4 / logs.sum(1)
    assert float(estimates.mean()) == pytest.approx(3.0, abs=5 * float(estimates.std()) / math.sqrt(20_000))


@pytest.mark.parametrize("discard", [0.0, 0.1, 0.5])
def test_the_linearized_error_of_the_fit(discard, monkeypatch):
    """On independent exponentials, of which the estimate over the rate is a function: 20,000 draws give 0.5 %."""
    n = 400
    monkeypatch.setattr("lib.intrinsic_dimension._shared", lambda *_: 1.0)
    found = twonn(sphere(n, 2), estimator="fit", discard=discard)
    kept = min(int(n * (1 - discard)), n - 1)
    height = -np.log(1 - np.arange(1, kept + 1) / n)
    ratios = np.sort(np.random.default_rng(0).exponential(size=(20_000, n)), 1)[:, :kept]
    spread = ((ratios @ height) / (ratios**2).sum(1)).std()
    assert found.standard_error / found.value == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize("cloud", [sphere(1500, 2), sphere(900, 5, ambient=30)], ids=["S2", "S5 in R30"])
def test_agreement_with_scikit_dimension(cloud):
    skdim = pytest.importorskip("skdim")
    points = cloud.numpy()
    tolerance = 1e-10 if points.shape[1] <= 25 else 1e-6  # above 25 columns the peer expands the square
    assert twonn(cloud, estimator="fit").value == pytest.approx(skdim.id.TwoNN().fit(points).dimension_, rel=tolerance)
    with np.errstate(divide="ignore"):  # the peer also plots ln(1 - 1)
        peer = skdim.id.TwoNN(method="mle", discard_fraction=0.0).fit(points).dimension_
    assert twonn(cloud).value == pytest.approx(peer, rel=tolerance)
    for k in (5, 20):
        peer = skdim.id.MLE().fit(points, n_neighbors=k).dimension_
        assert mle(cloud, k=k).value == pytest.approx(peer, rel=1e-10)


def test_float32_clouds_lose_nothing():
    single = sphere(5000, 2).float()
    assert twonn(single).value == twonn(single.double()).value
    assert mle(single).value == pytest.approx(mle(sphere(5000, 2)).value, rel=1e-4)


def test_report_is_short():
    html = twonn(sphere(100, 2))._repr_html_()
    assert html.startswith("<span>dimension ")
    assert "(twonn)" in html


SMALL = sphere(400, 2)


def curve(**options):
    return gap_curve(SMALL, generator=stream(0), **options)


LATTICE = torch.cartesian_prod(torch.arange(6.0), torch.arange(6.0))
NEARLY = torch.cat([LATTICE, torch.tensor([[20.0, 20.0]])])
TWINS = torch.cat([SMALL, SMALL[:7]])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (ValueError, "method must be one of .*; got 'pca'", lambda: intrinsic_dimension(SMALL, method="pca")),
        (TypeError, "generator", lambda: intrinsic_dimension(SMALL)),
        (TypeError, "sizes", lambda: intrinsic_dimension(SMALL, method="twonn", sizes=(1, 2, 3))),
        (TypeError, "generator must be a torch.Generator, got int", lambda: gap_dimension(SMALL, generator=0)),
        (TypeError, "points must hold real floating-point", lambda: twonn(torch.zeros(9, 2, dtype=torch.int64))),
        (TypeError, "points must hold real floating-point", lambda: mle(torch.zeros(9, 2, dtype=torch.complex64))),
        (TypeError, "points must be a torch.Tensor, got ndarray", lambda: twonn(np.zeros((9, 2)))),
        (ValueError, "points must have 2 axes", lambda: twonn(SMALL[:, 0])),
        (ValueError, "points must be finite", lambda: mle(torch.full((9, 2), torch.nan))),
        (ValueError, "points must have at least 4 rows", lambda: twonn(SMALL[:3])),
        (ValueError, "points must be distinct, got 14 with a duplicate", lambda: twonn(TWINS)),
        (ValueError, "points must be distinct, got 14 with a duplicate", lambda: mle(TWINS)),
        (ValueError, "points must not form a lattice", lambda: twonn(LATTICE)),
        (ValueError, "points must not form a lattice", lambda: mle(LATTICE, k=2)),
        (ValueError, "points must not form a lattice.*every kept", lambda: twonn(NEARLY, estimator="fit")),
        (ValueError, "points must be mostly distinct", lambda: gap_dimension(torch.ones(400, 2), generator=stream(0))),
        (ValueError, "points must leave at least 64", lambda: gap_dimension(SMALL[:300], generator=stream(0))),
        (ValueError, "repeats must be at least 2, got 1", lambda: gap_dimension(SMALL, generator=stream(0), repeats=1)),
        (ValueError, "splits must be one of", lambda: gap_dimension(SMALL, generator=stream(0), splits="half")),
        (ValueError, "sizes must stay below the 80 points of a repeat, got 90", lambda: curve(sizes=(9, 10, 90))),
        (ValueError, "sizes must be at least 3 strictly ascending", lambda: curve(sizes=(9, 10, 10))),
        (ValueError, "sizes must be at least 3 strictly ascending", lambda: curve(sizes=(9, 10))),
        (TypeError, r"sizes\[1\] must be an integer, got float", lambda: curve(sizes=(9, 10.5, 20))),
        (TypeError, "sizes must be a sequence of integers, got int", lambda: curve(sizes=9)),
        (ValueError, "estimator must be one of 'mle', 'fit'; got 'mean'", lambda: twonn(SMALL, estimator="mean")),
        (ValueError, "discard must be less than 1.0, got 1.0", lambda: twonn(SMALL, estimator="fit", discard=1.0)),
        (ValueError, "discard must leave at least 2 of 400", lambda: twonn(SMALL, estimator="fit", discard=0.999)),
        (ValueError, "k must be at least 2, got 1", lambda: mle(SMALL, k=1)),
        (ValueError, "k must be at most the number of other points", lambda: mle(SMALL[:9], k=9)),
        (ValueError, "d must be at least 0.5, got 0.1", lambda: expected_estimate(0.1, PAPER)),
        (ValueError, "sizes must hold at least 2 different", lambda: expected_estimate(2, (9, 9))),
        (ValueError, "estimate must be greater than 0.0, got -1.0", lambda: calibrated_dimension(-1.0, PAPER)),
        (ValueError, "estimate must lie between 0.54", lambda: calibrated_dimension(1e4, PAPER)),
        (ValueError, "estimate must lie between 0.54", lambda: calibrated_dimension(0.1, PAPER)),
    ],
)  # fmt: skip
def test_bad_input_is_named(error, words, call):
    with pytest.raises(error, match=words):
        call()


def test_a_gap_that_does_not_fall_is_refused():
    """The corners of a simplex are equally far from each other, however many are in the codebook."""
    with pytest.raises(ValueError, match="gap that falls"):
        gap_dimension(torch.eye(400), generator=stream(0))


def test_table_and_search_give_the_same_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = 3 + torch.randn(300, 7, generator=stream(8), dtype=torch.float64)
    options = {"sizes": (5, 20, 80), "splits": "random", "repeats": 4}
    _, by_table = gap_curve(cloud, generator=stream(9), **options)
    monkeypatch.setattr("lib.intrinsic_dimension.TABLE_LIMIT", 0)
    _, by_search = gap_curve(cloud, generator=stream(9), **options)
    assert torch.allclose(by_table, by_search, rtol=1e-12, atol=0)


def test_the_table_is_left_where_it_has_no_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = 1e-8 * torch.randn(300, 3, generator=stream(8), dtype=torch.float64)
    cloud[::2] += 1
    options = {"sizes": (20, 40, 80), "splits": "random", "repeats": 3}
    _, by_table = gap_curve(cloud, generator=stream(9), **options)
    monkeypatch.setattr("lib.intrinsic_dimension.TABLE_LIMIT", 0)
    _, by_search = gap_curve(cloud, generator=stream(9), **options)
    assert torch.allclose(by_table, by_search, rtol=1e-12, atol=0)


def test_a_cloud_that_requires_a_gradient_is_measured() -> None:
    options = {"sizes": (5, 20, 80), "splits": "random"}
    _, plain = gap_curve(SMALL, generator=stream(9), **options)
    _, tracked = gap_curve(SMALL.clone().requires_grad_(), generator=stream(9), **options)
    assert not tracked.requires_grad
    assert torch.equal(plain, tracked)
