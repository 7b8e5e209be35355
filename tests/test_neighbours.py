"""Nearest neighbours against brute force in numpy float64, including data on which float32 products go wrong."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lib import neighbours
from lib.neighbours import nearest, self_neighbours

METHODS = ("tree", "brute")


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def sphere(n, *, seed=0, dtype=torch.float64):
    x = draw(n, 3, seed=seed)
    return (x / x.norm(dim=1, keepdim=True)).to(dtype)


def table(data, points, period=None):
    """All distances, by numpy in float64."""
    step = np.abs(points.double().numpy()[:, None] - data.double().numpy()[None])
    if period is not None:
        step = np.remainder(step, period)
        step = np.minimum(step, period - step)
    return np.sqrt((step**2).sum(2))


def own_table(points, period=None):
    distances = table(points, points, period)
    np.fill_diagonal(distances, np.inf)
    return distances


def assert_exact(found, distances, *, rel=1e-13, floor=0.0):
    """The k least distances of every row, belonging to k different columns."""
    k = found.distances.shape[1]
    want = np.sort(distances, 1)[:, :k]
    np.testing.assert_allclose(found.distances.double().numpy(), want, rtol=rel, atol=floor)
    taken = np.take_along_axis(distances, found.indices.numpy(), 1)
    np.testing.assert_allclose(taken, want, rtol=1e-13, atol=floor)
    assert found.indices.dtype == torch.int64
    assert all(len(set(row)) == k for row in found.indices.tolist())
    assert bool((found.distances.diff(dim=1) >= 0).all())


@pytest.mark.parametrize("method", [*METHODS, "auto"])
@pytest.mark.parametrize(
    ("n", "m", "d", "k"), [(1, 3, 2, 1), (5, 4, 1, 5), (300, 70, 3, 4), (500, 90, 20, 3), (64, 9, 70, 64)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nearest_is_brute_force(method, n, m, d, k, dtype):
    data, points = draw(n, d, dtype=dtype), draw(m, d, seed=1, dtype=dtype)
    found = nearest(data, points, k=k, method=method)
    assert found.distances.dtype == dtype
    assert_exact(found, table(data, points), rel=1e-13 if dtype == torch.float64 else 1e-7)


@pytest.mark.parametrize("method", [*METHODS, "auto"])
@pytest.mark.parametrize(("n", "d", "k"), [(2, 3, 1), (7, 2, 6), (400, 3, 2), (600, 12, 5), (130, 200, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_self_neighbours_leave_the_point_out(method, n, d, k, dtype):
    points = draw(n, d, dtype=dtype)
    found = self_neighbours(points, k=k, method=method)
    assert_exact(found, own_table(points), rel=1e-13 if dtype == torch.float64 else 1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_the_triangle_agrees_with_the_tree(dtype):
    # Large enough for the symmetric product, with a remainder in its last tile and its last block.
    points = (draw(8300, 6).tanh()).to(dtype)
    tree, brute = (self_neighbours(points, method=m) for m in METHODS)
    torch.testing.assert_close(tree.distances, brute.distances, rtol=1e-15, atol=0.0)
    assert (tree.indices == brute.indices).double().mean() > (0.5 if dtype == torch.float16 else 0.9999)
    recomputed = (points.double()[:, None] - points.double()[brute.indices]).norm(dim=2)
    torch.testing.assert_close(recomputed.to(dtype), brute.distances)


def test_large_query_sets_are_sorted_and_put_back():
    data, points = sphere(1000), sphere(40_000, seed=1)
    found = nearest(data, points, k=2)
    some = torch.arange(0, 40_000, 397)
    np.testing.assert_allclose(found.distances[some], np.sort(table(data, points[some]), 1)[:, :2], rtol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_float32_distances_on_the_sphere_are_not_cancelled(method):
    points = sphere(20_000, dtype=torch.float32)
    reference = self_neighbours(points.double(), method="tree")
    found = self_neighbours(points, method=method)
    torch.testing.assert_close(found.distances.double(), reference.distances, rtol=1e-6, atol=0.0)
    naive = torch.cdist(points[:2000], points)
    naive[torch.arange(2000), torch.arange(2000)] = torch.inf
    relative = (naive.amin(1).double() / reference.distances[:2000, 0] - 1).abs()
    assert relative.max() > 1e-3  # the trap is real: the usual call is wrong on these points


def clusters(kind, dtype):
    if kind == "far from the origin":
        return (1e4 + draw(700, 12)).to(dtype)
    if kind == "two far from each other":
        return torch.cat([draw(350, 12) - 1e5, draw(350, 12) + 1e5]).to(dtype)
    if kind == "one outlier":
        return torch.cat([draw(699, 12), torch.full((1, 12), 1e9)]).to(dtype)
    if kind == "duplicates":
        return draw(7, 12).repeat(100, 1).to(dtype)
    if kind == "all equal":
        return torch.full((700, 12), 0.1, dtype=dtype)
    if kind == "integers with ties":
        return draw(700, 12).round().to(dtype)
    if kind == "scales from 1e-6 to 1":
        return (draw(700, 12) * torch.logspace(-6, 0, 700)[:, None]).to(dtype)
    if kind == "huge":
        return draw(700, 12).to(dtype) * 1e30
    return draw(700, 12).to(dtype) * 1e-30


KINDS = (
    "far from the origin", "two far from each other", "one outlier", "duplicates", "all equal", "integers with ties",
    "scales from 1e-6 to 1", "huge", "tiny",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", METHODS)
def test_adversarial_clouds(kind, dtype, method):
    points = clusters(kind, dtype)
    rel = 1e-13 if dtype == torch.float64 else 1e-7
    assert_exact(self_neighbours(points, k=3, method=method), own_table(points), rel=rel)
    some = (points[::5] + points[1::5]) / 2
    assert_exact(nearest(points, some, k=3, method=method), table(points, some), rel=rel)


@pytest.mark.parametrize("kind", KINDS)
def test_adversarial_clouds_through_the_triangle(kind, monkeypatch):
    points = clusters(kind, torch.float32).repeat(7, 1)
    points += draw(4900, 12, seed=3, dtype=torch.float32) * 1e-3 * points.abs().amin(0)
    used = []
    triangle = neighbours._triangle
    monkeypatch.setattr(neighbours, "_triangle", lambda *a: used.append(1) or triangle(*a))
    found = self_neighbours(points, k=1)
    assert used
    tree = self_neighbours(points, k=1, method="tree")
    torch.testing.assert_close(found.distances, tree.distances, rtol=1e-7, atol=0.0)


def test_points_beyond_the_float64_square_range():
    points = torch.tensor([[0.0, 0.0], [3e200, 4e200], [1e-170, 0.0]], dtype=torch.float64)
    for method in METHODS:
        found = self_neighbours(points[:2], k=1, method=method)
        torch.testing.assert_close(found.distances, torch.full((2, 1), 5e200, dtype=torch.float64))
        found = self_neighbours(points[::2], k=1, method=method)
        torch.testing.assert_close(found.distances, torch.full((2, 1), 1e-170, dtype=torch.float64))


def test_shortened_float32_products_stay_exact():
    points = draw(500, 16, dtype=torch.float32)
    before = torch.get_float32_matmul_precision()
    assert neighbours._precision(torch.float32) < 1e-6
    torch.set_float32_matmul_precision("medium")
    try:
        assert neighbours._precision(torch.float32) > 1e-3
        assert neighbours._precision(torch.float64) < 1e-15
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = self_neighbours(points)
    finally:
        torch.set_float32_matmul_precision(before)
    assert_exact(found, own_table(points), rel=1e-7)


def test_unknown_precision_is_taken_for_low(monkeypatch):
    def refuse():
        raise RuntimeError("mixed settings")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)
    assert neighbours._precision(torch.float32) > 1e-3
    assert_exact(self_neighbours(draw(300, 16)), own_table(draw(300, 16)))


@pytest.mark.parametrize(("n", "k"), [(600, 3), (60, 1), (60, 4)])  # many blocks, and a single one
def test_a_product_wrong_within_its_bound_is_repaired(n, k, monkeypatch):
    """Scores rounded to 8 bits, with the bound that belongs to them: the certificate must catch every wrong row."""
    augmented = neighbours._augmented

    def rounded(centred, dtype, *, query):
        rows = augmented(centred, dtype, query=query)
        return rows.to(torch.bfloat16).to(dtype) if dtype == torch.float32 else rows

    monkeypatch.setattr(neighbours, "_precision", lambda dtype: 2.0**-7 if dtype == torch.float32 else 2.0**-52)
    monkeypatch.setattr(neighbours, "_augmented", rounded)
    for seed in range(12):
        # Two clusters, each smaller than the rounding error of its scores.
        points = 0.3 * draw(n, 10, seed=seed) + torch.where(torch.arange(n) % 2 == 0, 3.0, -3.0)[:, None]
        assert_exact(self_neighbours(points, k=k, method="brute"), own_table(points))


def test_queries_far_from_the_cloud():
    data, points = draw(500, 12, dtype=torch.float32), 1e8 + 1e7 * draw(60, 12, seed=1, dtype=torch.float32)
    assert_exact(nearest(data, points, k=2), table(data, points), rel=1e-7)


@pytest.mark.parametrize(
    ("kind", "k"), [("one triangle", 1), ("full table", 5), ("duplicates", 3), ("duplicates in a triangle", 1)]
)
def test_the_first_screening_certifies_nearly_all_rows(kind, k, monkeypatch):
    """What it leaves is slow, so that a bound too wide, or the point itself among its candidates, would go unseen."""
    if kind.startswith("duplicates"):
        points = draw(45, 12).repeat(100 if "triangle" in kind else 10, 1)
    else:
        points = draw(4500 if kind == "one triangle" else 1000, 12)
    left, screen = [], neighbours._screen
    monkeypatch.setattr(neighbours, "_screen", lambda *a: left.append(screen(*a)) or left[-1])
    self_neighbours(points, k=k)
    assert len(left[0]) <= 0.002 * len(points)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("d", "period"), [(1, 1.0), (2, 0.5), (3, (1.0, 2.0, 0.3)), (9, 1.5)])
def test_periods_wrap(method, d, period):
    data, points = 3 * draw(300, d), 3 * draw(80, d, seed=1)
    side = torch.tensor(period, dtype=torch.float64) if isinstance(period, tuple) else period
    for found, want in (
        (nearest(data, points, k=4, period=side, method=method), table(data, points, np.array(period))),
        (self_neighbours(data, k=3, period=side, method=method), own_table(data, np.array(period))),
    ):
        assert_exact(found, want, rel=1e-9, floor=1e-14)


@pytest.mark.parametrize("method", METHODS)
def test_coordinates_just_below_zero_wrap_to_zero(method):
    data = torch.tensor([[-1e-30], [0.5]], dtype=torch.float64)
    found = nearest(data, torch.tensor([[1.0]], dtype=torch.float64), period=1.0, method=method)
    assert found.indices.item() == 0
    assert found.distances.item() == 0.0


@pytest.mark.parametrize("chunk_size", [1, 7, 64, 100, 10_000])
def test_chunk_sizes_agree(chunk_size):
    data, points = draw(4500, 10), draw(50, 10, seed=1)
    for period in (None, 2.0):
        want, got = (
            nearest(data, points, k=3, period=period, chunk_size=c, method="brute") for c in (None, chunk_size)
        )
        assert torch.equal(want.distances, got.distances)
        assert torch.equal(want.indices, got.indices)
    if chunk_size >= 64:
        want, got = (self_neighbours(data, k=1, chunk_size=c, method="brute") for c in (None, chunk_size))
        assert torch.equal(want.distances, got.distances)


class Largest(TorchDispatchMode):
    """The most bytes that a single tensor of the enclosed code holds."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.bytes = max(self.bytes, leaf.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize("kind", ["self", "two clouds", "torus", "unresolved in float32"])
def test_memory_is_bounded_by_the_chunk(kind):
    n, d, chunk = 4500, 10, 128
    points = draw(n, d, dtype=torch.float32)
    if kind == "unresolved in float32":
        points[0] = 1e6
    few = points[:600]
    with Largest() as largest:
        if kind == "self":
            self_neighbours(points, k=1, chunk_size=chunk)
        else:
            nearest(points, few, period=1.0 if kind == "torus" else None, chunk_size=chunk, method="brute")
    assert n * (d + 2) * 8 <= largest.bytes <= chunk * (n + 64) * 8  # the whole table is 2 to 17 times as large


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10_000), n=st.integers(4, 90), d=st.integers(1, 12), k=st.integers(1, 3),
    method=st.sampled_from(METHODS), single=st.booleans(),
)  # fmt: skip
def test_invariances(seed, n, d, k, method, single):
    """Order of the points, translation, scaling, and a duplicate of every point."""
    x = (draw(n, d, seed=seed) * 64).round() / 64  # a coarse grid, on which shifts are exact
    x = x.float() if single else x
    found = self_neighbours(x, k=k, method=method)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(
        self_neighbours(x[order], k=k, method=method).distances,
        found.distances[order],
        rtol=1e-6 if single else 1e-13,
        atol=0.0,
    )
    assert torch.equal(self_neighbours(x + 512, k=k, method=method).distances, found.distances)
    assert torch.equal(self_neighbours(x * 2.0**20, k=k, method=method).distances, found.distances * 2.0**20)
    doubled = self_neighbours(torch.cat([x, x]), k=1, method=method)
    assert not doubled.distances.any()
    assert_exact(found, own_table(x), rel=1e-7 if single else 1e-13)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), d=st.integers(1, 4), shift=st.integers(-5, 5), method=st.sampled_from(METHODS))
def test_torus_distances_do_not_see_whole_periods(seed, d, shift, method):
    x = torch.rand(40, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x = (x * 2**20).floor() / 2**20
    found = self_neighbours(x, period=1.0, method=method)
    assert torch.equal(self_neighbours(x + shift, period=1.0, method=method).distances, found.distances)
    assert bool((found.distances <= self_neighbours(x, method=method).distances + 1e-15).all())


def test_input_is_neither_changed_nor_differentiated():
    x = draw(50, 3).requires_grad_()
    copy = x.detach().clone()
    for method in METHODS:
        assert not self_neighbours(x, method=method, period=1.0).distances.requires_grad
        assert not nearest(x, x, method=method).distances.requires_grad
    assert torch.equal(x, copy)


def test_report_is_short():
    html = self_neighbours(draw(50, 3))._repr_html_()
    assert html.startswith("<p>2 nearest neighbours of 50 points")
    assert len(html) < 200


CLOUD = torch.zeros(4, 2)
COMPLEX, DOUBLE, WHOLE, THREE = CLOUD + 0j, CLOUD.double(), CLOUD.long(), torch.ones(3)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (TypeError, "data must be a torch.Tensor, got ndarray", lambda: nearest(np.zeros((4, 2)), CLOUD)),
        (TypeError, "points must hold real floating-point.*got torch.int64", lambda: nearest(CLOUD, WHOLE)),
        (TypeError, "points must hold real floating-point.*got torch.complex64", lambda: self_neighbours(COMPLEX)),
        (TypeError, r"points must have the dtype of data .*got torch.float64", lambda: nearest(CLOUD, DOUBLE)),
        (ValueError, r"points must have 2 axes, got shape \(4,\)", lambda: self_neighbours(CLOUD[:, 0])),
        (ValueError, "points must have at least 2 rows", lambda: self_neighbours(CLOUD[:1])),
        (ValueError, "points must have as many columns as data .2., got 3", lambda: nearest(CLOUD, torch.zeros(4, 3))),
        (ValueError, "points must be finite", lambda: self_neighbours(torch.full((4, 2), torch.nan))),
        (ValueError, "data must be finite", lambda: nearest(torch.full((4, 2), torch.inf), CLOUD)),
        (ValueError, r"data must have at least 1 rows", lambda: nearest(torch.zeros(0, 2), CLOUD)),
        (ValueError, r"points must not be empty", lambda: self_neighbours(torch.zeros(3, 0))),
        (ValueError, r"k must be at most the number of data points \(4\), got 5", lambda: nearest(CLOUD, CLOUD, k=5)),
        (ValueError, r"k must be at most the number of other points \(3\), got 4", lambda: self_neighbours(CLOUD, k=4)),
        (ValueError, "k must be at least 1, got 0", lambda: nearest(CLOUD, CLOUD, k=0)),
        (TypeError, "k must be an integer, got float", lambda: nearest(CLOUD, CLOUD, k=1.0)),
        (ValueError, "chunk_size must be at least 1, got 0", lambda: nearest(CLOUD, CLOUD, chunk_size=0)),
        (ValueError, "method must be one of .*; got 'ball'", lambda: nearest(CLOUD, CLOUD, method="ball")),
        (ValueError, "period must be greater than 0.0, got -1.0", lambda: self_neighbours(CLOUD, period=-1.0)),
        (ValueError, "period must be finite", lambda: self_neighbours(CLOUD, period=float("inf"))),
        (ValueError, "period must have one entry per column .2., got", lambda: self_neighbours(CLOUD, period=THREE)),
        (ValueError, "period must be greater than 0 in every", lambda: self_neighbours(CLOUD, period=torch.zeros(2))),
        (TypeError, "period must be a real number, got str", lambda: self_neighbours(CLOUD, period="1")),
    ],
)  # fmt: skip
def test_bad_input_is_named(error, words, call):
    with pytest.raises(error, match=words):
        call()
