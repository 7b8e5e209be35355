"""Neighbours, intrinsic dimension, Lloyd and the ideal denoiser beside scipy, faiss, torch, skdim and scikit-learn."""

import functools
import math

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from lib.diffusion import ideal_denoiser, sample
from lib.intrinsic_dimension import twonn
from lib.lloyd import lloyd
from lib.neighbours import nearest, self_neighbours

MISSING = "{} is not installed: pip install -r tests/benchmarks/requirements.txt"


@functools.cache
def cloud(kind, n):
    """Uniform on the 2-sphere, normal in R^64, or a smooth image of a 5-dimensional cube in R^64; float32."""
    rng = np.random.default_rng(0)
    if kind == "S2":
        x = rng.standard_normal((n, 3))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    elif kind == "R64":
        x = rng.standard_normal((n, 64))
    else:
        z = rng.uniform(-1, 1, (n, 5))
        x = np.concatenate([f(z @ rng.standard_normal((5, 32))) for f in (np.cos, np.sin)], 1)
    return np.ascontiguousarray(x, dtype=np.float32)


def faiss():
    return pytest.importorskip("faiss", reason=MISSING.format("faiss-cpu"))


def skdim():
    return pytest.importorskip("skdim", reason=MISSING.format("scikit-dimension"))


# ------------------------------------------------------------------------------------------------ neighbours


def same_distances(rel):
    return lambda found, peer: np.testing.assert_allclose(found.distances.numpy(), peer, rtol=rel)


@pytest.mark.parametrize(("n", "gate", "aim"), [(200_000, 0.75, 0.5), (10_000, 1.3, 1.0)])
def test_neighbours_kdtree(compare, n, gate, aim):
    x = cloud("S2", n)
    points = torch.from_numpy(x)
    compare(
        f"neighbours, S2, {n}, k=2",
        "scipy cKDTree(x).query(x, 3)",
        lambda: self_neighbours(points),
        lambda: cKDTree(x).query(x, k=3)[0][:, 1:],
        same_distances(1e-6),
        gate=gate,
        aim=aim,
    )


def test_neighbours_faiss(compare):
    x = cloud("R64", 20_000)
    points, library = torch.from_numpy(x), faiss()
    library.omp_set_num_threads(1)

    def theirs():
        index = library.IndexFlatL2(64)
        index.add(x)
        return np.sqrt(np.maximum(index.search(x, 3)[0][:, 1:], 0))

    compare(
        "neighbours, R64, 20000, k=2",
        "faiss IndexFlatL2",
        lambda: self_neighbours(points),
        theirs,
        same_distances(1e-5),
        gate=1.2,
        aim=0.7,
        rounds=3,
    )


def test_neighbours_cdist(compare):
    points = torch.from_numpy(cloud("R64", 20_000))
    compare(
        "neighbours, R64, 20000, k=2",
        "torch cdist + topk",
        lambda: self_neighbours(points),
        lambda: torch.cat([torch.cdist(c, points).topk(3, largest=False).values[:, 1:] for c in points.split(1024)]),
        same_distances(1e-5),
        gate=0.6,
        aim=0.35,
        rounds=3,
    )


# ------------------------------------------------------------------------------------------------ dimension


def test_twonn_low_dimension(compare):
    x = cloud("S2", 200_000).astype(np.float64)
    points, library = torch.from_numpy(x), skdim()
    compare(
        "TwoNN, S2, 200000",
        "skdim TwoNN",
        lambda: twonn(points, estimator="fit").value,
        lambda: library.id.TwoNN().fit(x).dimension_,
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8),
        gate=0.5,
        aim=0.25,
        rounds=3,
    )


def test_twonn_high_dimension(compare):
    x = cloud("5 in R64", 20_000).astype(np.float64)
    points, library = torch.from_numpy(x), skdim()
    compare(
        "TwoNN, 5 in R64, 20000",
        "skdim TwoNN",
        lambda: twonn(points, estimator="fit").value,
        lambda: library.id.TwoNN().fit(x).dimension_,
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
        gate=0.1,
        aim=0.04,
        rounds=1,
    )


# ------------------------------------------------------------------------------------------------ quantization


CODEBOOKS = [("S2", 50_000, 256), ("S2", 50_000, 1024), ("R64", 20_000, 256)]


def clustering(kind, n, k):
    x = cloud(kind, n)
    start = x[np.random.default_rng(1).permutation(n)[:k]].copy()
    points, centres = torch.from_numpy(x), torch.from_numpy(start)

    def agree(found, peer):
        both = [
            float(nearest(c, points).distances.double().square().mean()) for c in (found.points, torch.tensor(peer))
        ]
        assert math.isclose(*both, rel_tol=2e-3)  # one tie decided otherwise leads the centres elsewhere

    return x, start, lambda: lloyd(points, k, steps=20, start=centres), agree


@pytest.mark.parametrize(
    ("kind", "n", "k", "gate", "aim"),
    [(*CODEBOOKS[0], 1.3, 0.8), (*CODEBOOKS[1], 0.5, 0.2), (*CODEBOOKS[2], None, 1.0)],
)
def test_lloyd_sklearn(compare, kind, n, k, gate, aim):
    from sklearn.cluster import KMeans

    x, start, ours, agree = clustering(kind, n, k)
    compare(
        f"Lloyd, {kind}, {n}, {k} centres",
        "sklearn KMeans",
        ours,
        lambda: KMeans(k, init=start, n_init=1, max_iter=20, tol=0, algorithm="lloyd").fit(x).cluster_centers_,
        agree,
        gate=gate,
        aim=aim,
        rounds=3,
    )


@pytest.mark.parametrize(("kind", "n", "k"), CODEBOOKS)
def test_lloyd_faiss(compare, kind, n, k):
    library = faiss()
    library.omp_set_num_threads(1)
    x, start, ours, agree = clustering(kind, n, k)

    def theirs():
        means = library.Kmeans(x.shape[1], k, niter=20, max_points_per_centroid=10**9, seed=0)
        means.train(x, init_centroids=start)
        return means.centroids

    compare(f"Lloyd, {kind}, {n}, {k} centres", "faiss Kmeans", ours, theirs, agree, gate=None, aim=2.0, rounds=3)


# ------------------------------------------------------------------------------------------------ diffusion


@pytest.mark.parametrize("dim", [2, 15])
def test_ideal_denoiser(compare, dim):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5000, dim + 1, generator=generator)
    x = x / x.norm(dim=1, keepdim=True)
    start = torch.randn(1000, dim + 1, generator=generator)
    sigmas = torch.logspace(0.5, -2, 50)

    def by_the_book(y, sigma):
        return torch.softmax(-torch.cdist(y, x).square() / (2 * sigma * sigma), 1) @ x

    def theirs():
        y = start
        for now, following in zip(sigmas.tolist(), [*sigmas.tolist()[1:], 0.0], strict=True):
            y = y + (1 - following / now) * (by_the_book(y, now) - y)
        return y

    def agree(found, peer):
        # Rounding sends the few particles between two basins either way.
        assert float(((found - peer).norm(dim=1) < 1e-2).double().mean()) > 0.98

    compare(
        f"sampling, S{dim}, 5000, 50 levels",
        "torch softmax(-cdist^2)",
        lambda: sample(ideal_denoiser(x), start, sigmas=sigmas),
        theirs,
        agree,
        gate=0.35 if dim == 2 else None,
        aim=0.15,
        rounds=3,
    )
