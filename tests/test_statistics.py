"""Rates and intervals against scipy, and against the spread that they claim to describe."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.statistics import fit_rate

SIZES = [8, 16, 32, 64, 128, 256]


def noisy_gaps(repeats: int, *, seed: int = 0, slope: float = -1.5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = 0.1 * torch.randn(repeats, len(SIZES), generator=generator, dtype=torch.float64)
    return torch.exp(math.log(2) + slope * torch.tensor(SIZES).double().log() + noise)


def test_single_fit_equals_scipy_linregress():
    gaps = noisy_gaps(1)[0]
    rate = fit_rate(SIZES, gaps)
    reference = scipy.stats.linregress(np.log(SIZES), np.log(gaps.numpy()))
    assert rate.slope == pytest.approx(reference.slope, abs=1e-12)
    assert rate.intercept == pytest.approx(reference.intercept, abs=1e-12)
    assert rate.standard_error == pytest.approx(reference.stderr, rel=1e-10)
    assert rate.slopes is None


def test_repeats_are_fitted_row_by_row():
    gaps = noisy_gaps(7)
    rate = fit_rate(torch.tensor(SIZES), gaps)
    assert rate.slopes is not None
    rows = torch.tensor([fit_rate(SIZES, row).slope for row in gaps], dtype=torch.float64)
    torch.testing.assert_close(rate.slopes, rows, rtol=0, atol=1e-12)
    assert rate.slope == pytest.approx(float(rows.mean()), abs=1e-12)
    assert rate.standard_error == pytest.approx(scipy.stats.sem(rows.numpy()), rel=1e-10)
    assert rate.intercept == pytest.approx(np.mean([fit_rate(SIZES, row).intercept for row in gaps]), abs=1e-12)


def test_standard_error_from_repeats_describes_the_spread_of_the_mean():
    means = torch.tensor([fit_rate(SIZES, noisy_gaps(10, seed=s)).slope for s in range(200)])
    errors = torch.tensor([fit_rate(SIZES, noisy_gaps(10, seed=s)).standard_error for s in range(200)])
    # relative s.d. of a standard deviation from 200 values: 1 / sqrt(400) = 5 %
    assert float(errors.square().mean().sqrt() / means.std()) == pytest.approx(1, abs=0.2)


@settings(max_examples=30, deadline=None)
@given(st.floats(-3, 3), st.floats(1e-3, 1e3), st.floats(1e-2, 1e2))
def test_exact_power_laws_and_their_units(slope, constant, unit):
    n = torch.tensor(SIZES, dtype=torch.float64)
    rate = fit_rate(n, constant * n**slope)
    assert rate.slope == pytest.approx(slope, abs=1e-10)
    assert rate.intercept == pytest.approx(math.log(constant), abs=1e-9)
    # a change of units moves the constant and not the exponent
    assert fit_rate(n, unit * constant * n**slope).slope == pytest.approx(rate.slope, abs=1e-9)


def test_single_precision_is_fitted_in_double():
    gaps = noisy_gaps(4)
    single = fit_rate(SIZES, gaps.float())
    assert single.slope == pytest.approx(fit_rate(SIZES, gaps).slope, abs=1e-6)
    assert single.slopes is not None
    assert single.slopes.dtype == torch.float32


def test_html_is_short_and_shows_the_number():
    rate = fit_rate(SIZES, noisy_gaps(3))
    assert f"{rate.slope:.4f}" in rate._repr_html_()
    assert "3 repeats" in rate._repr_html_()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("n", "gaps", "error", "message"),
    [
        (SIZES, torch.ones(6, dtype=torch.int64), TypeError, "gaps must hold real"),
        (SIZES, [1.0] * 6, TypeError, r"gaps must be a torch\.Tensor"),
        (SIZES, torch.zeros(6), ValueError, "gaps must be positive"),
        (SIZES, torch.tensor([1.0, math.nan, 1, 1, 1, 1]), ValueError, "gaps must be finite"),
        (SIZES, torch.ones(1, 6), ValueError, "at least 2 repeats"),
        (SIZES, torch.ones(2, 2, 6), ValueError, r"gaps must have shape"),
        (SIZES[:5], torch.ones(6), ValueError, "n must have as many entries"),
        ([8, 8, 8], torch.ones(3), ValueError, "two different values"),
        ([0, 8, 16], torch.ones(3), ValueError, "n must be positive"),
        ([8, 16], torch.ones(2), ValueError, "at least 3 entries"),
        ("abc", torch.ones(3), TypeError, "n must be a sequence"),
        ([8, True, 32], torch.ones(3), TypeError, r"n\[1\] must be a real number, got bool"),
        (torch.ones(3, dtype=torch.complex64), torch.ones(3), TypeError, "n must hold real"),
    ],
)
def test_bad_rates(n, gaps, error, message):
    with pytest.raises(error, match=message):
        fit_rate(n, gaps)


def test_a_list_of_floats_is_read_in_double():
    n = [0.1, 0.7, 12.3, 1e5]
    gaps = 3 / torch.tensor(n, dtype=torch.float64)
    assert abs(fit_rate(n, gaps).slope + 1) < 1e-12
    assert fit_rate(n, gaps).intercept == fit_rate(torch.tensor(n, dtype=torch.float64), gaps).intercept
