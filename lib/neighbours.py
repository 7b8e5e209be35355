"""Exact nearest neighbours: a KD-tree in low dimension, verified matrix products in high dimension."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.spatial import cKDTree
from torch import Tensor

from lib import validation

Method = Literal["auto", "tree", "brute"]

# Columns per block of the block minimum: torch's amin leaves its vectorised path below 32 contiguous numbers.
_WIDTH = 64
# Stands for infinity in the score table; finite, so that 0 * _FAR in a matrix product is 0 and not NaN.
_FAR = 1e30


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The ``k`` nearest neighbours of ``m`` points: ``distances[i]`` ascends and belongs to ``indices[i]``."""

    distances: Float[Tensor, "m k"]
    indices: Int[Tensor, "m k"]

    def _repr_html_(self) -> str:
        m, k = self.distances.shape
        first = self.distances[:, 0].double()
        return (
            f"<p>{k} nearest neighbours of {m} points; distance to the first: mean {first.mean():.4g}, "
            f"from {first.min():.4g} to {first.max():.4g}</p>"
        )


def nearest(
    data: Float[Tensor, "n d"],
    points: Float[Tensor, "m d"],
    *,
    k: int = 1,
    period: float | Float[Tensor, " d"] | None = None,
    chunk_size: int | None = None,
    method: Method = "auto",
) -> Neighbours:
    r"""Find the ``k`` points of ``data`` that are nearest to each of ``points``, exactly.

    .. math:: r_k(q) = \text{the } k\text{-th smallest of } |q - x_1|, \dots, |q - x_n|.

    **Exact** means: distances are computed in float64 from coordinate differences, also for float32 input, and rounded
    to the input's dtype once, at the end (on MPS, which has no float64, in float32). The order of neighbours whose
    float64 distances are equal up to rounding, and the choice among them, are not specified. No gradient flows back.

    ``"tree"`` is scipy's KD-tree, its queries sorted by leaf so that the nodes stay in the cache. ``"brute"`` screens
    by one matrix product of the centred points, takes the best blocks of 64 columns by their minima, and computes the
    distances of the few candidates from differences. Rounding of a product of length :math:`d` moves a half squared
    distance by at most :math:`(d + 8)\,\varepsilon\,(|q| + \max|x|)^2/2` (derived here from the standard bound
    :math:`\gamma_d = d u/(1 - d u)`); a row is accepted only if its ``k``-th neighbour beats every rejected score by
    more than that. The other rows are screened again in float64, and the rest measured in full. ``"auto"`` takes the
    tree for up to 8 coordinates on the CPU and brute force otherwise.

    Args:
        data: the cloud, shape ``[n, d]``, any unit.
        points: the queries, shape ``[m, d]``, with the dtype and device of ``data``.
        k: the number of neighbours, from 1 to ``n``.
        period: the side of the torus on which to measure, one for all or one per coordinate (positive): differences
            are taken modulo ``period``. Omitted: the Euclidean distance.
        chunk_size: rows per block of brute force; beside copies of the clouds, its largest temporary holds
            ``max(chunk_size, 64) * max(n + 64, (k + 3) * d)`` numbers, never the whole table. Omitted: as many rows
            as fit 16 MiB, at most 512 (on a GPU 512 MiB and 8192). The tree ignores it.
        method: ``"auto"``, ``"tree"`` (on the CPU, to which other clouds are copied) or ``"brute"``.

    Returns:
        Distances, ascending in each row, and int64 row numbers of ``data``, both of shape ``[m, k]``.

    Cost: tree :math:`O((n + m k) \log n)` in few dimensions, memory :math:`O(n d + m k)`; brute force
    :math:`O(n m d)`, on a torus several times slower, because no matrix product helps there.

    Raises:
        TypeError: not tensors of one real floating dtype, or ``k`` or ``chunk_size`` no integer.
        ValueError: no ``[n, d]`` clouds of equal width, NaN or infinity, ``k > n``, or a period that is not positive.

    Source: the tree is Maneewongvatana and Mount (1999), sliding midpoint; rounding as in Higham (2002), eq. (3.5).

    >>> grid = torch.arange(5, dtype=torch.float64)[:, None]
    >>> query = torch.tensor([[0.2]], dtype=torch.float64)
    >>> found = nearest(grid, query, k=2)
    >>> found.indices.tolist()
    [[0, 1]]
    >>> around = nearest(grid, query, k=3, period=5.0)  # 4 is as near to 0 as 1 is
    >>> assert torch.allclose(around.distances, torch.tensor([[0.2, 0.8, 1.2]], dtype=torch.float64))
    """
    validation.points("data", data)
    validation.points("points", points)
    validation.matching("data", data, "points", points)
    validation.count("k", k)
    if k > len(data):
        raise ValueError(f"k must be at most the number of data points ({len(data)}), got {k}")
    return _search(data.detach(), points.detach(), False, k, period, chunk_size, method)


def self_neighbours(
    points: Float[Tensor, "n d"],
    *,
    k: int = 2,
    period: float | Float[Tensor, " d"] | None = None,
    chunk_size: int | None = None,
    method: Method = "auto",
) -> Neighbours:
    r"""Find the ``k`` nearest *other* points of each point of a cloud, exactly.

    .. math:: r_k(x_i) = \text{the } k\text{-th smallest of } \{|x_i - x_j| : j \ne i\}.

    A point is left out by its row number, not by its distance: a duplicate is a neighbour at distance 0.
    Everything else is as in :func:`nearest`; brute force for few neighbours in a large cloud on the CPU computes
    only one triangle of the table, which halves the cost.

    Args:
        points: the cloud, shape ``[n, d]``, any unit.
        k: the number of neighbours, from 1 to ``n - 1``.
        period: as in :func:`nearest`.
        chunk_size: as in :func:`nearest`.
        method: as in :func:`nearest`.

    Returns:
        Distances, ascending in each row, and int64 row numbers of ``points``, both of shape ``[n, k]``.

    Raises:
        TypeError: as in :func:`nearest`.
        ValueError: as in :func:`nearest`, with ``k > n - 1``.

    >>> square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> assert torch.equal(self_neighbours(square, k=3).distances, torch.tensor([1.0, 1.0, 2.0**0.5]).expand(4, 3))
    """
    validation.points("points", points, min_rows=2)
    validation.count("k", k)
    if k > len(points) - 1:
        raise ValueError(f"k must be at most the number of other points ({len(points) - 1}), got {k}")
    return _search(points.detach(), points.detach(), True, k, period, chunk_size, method)


def _search(
    data: Tensor,
    points: Tensor,
    own: bool,
    k: int,
    period: float | Tensor | None,
    chunk_size: int | None,
    method: Method,
) -> Neighbours:
    """Bring the clouds to float64 and unit scale, search, and go back to the caller's dtype, scale and device."""
    validation.choice("method", method, ("auto", "tree", "brute"))
    if chunk_size is not None:
        validation.count("chunk_size", chunk_size)
    wide = torch.float32 if data.device.type == "mps" else torch.float64
    side = None if period is None else _side(period, data.shape[1]).to(data.device, wide)
    largest = max(float(data.abs().max()), float(points.abs().max())) if side is None else float(side.max())
    # A power of two near the size of the data: dividing by it is exact, and squares neither overflow nor vanish.
    unit = math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest > 0 else 1.0
    x = _scaled(data, side, unit, wide)
    q = x if own else _scaled(points, side, unit, wide)
    side = None if side is None else side / unit
    if method == "tree" or (method == "auto" and data.device.type == "cpu" and data.shape[1] <= 8):
        distances, indices = _tree(x, q, own, k, side)
    else:
        distances, indices = _brute(x, q, own, k, side, chunk_size)
    return Neighbours((distances.to(data.device) * unit).to(data.dtype), indices.to(data.device))


def _side(period: float | Tensor, d: int) -> Tensor:
    if not isinstance(period, Tensor):
        return torch.full((d,), validation.number("period", period, above=0.0), dtype=torch.float64)
    validation.finite("period", period, ndim=1)
    if len(period) != d:
        raise ValueError(f"period must have one entry per column ({d}), got shape {tuple(period.shape)}")
    if float(period.min()) <= 0:
        raise ValueError(f"period must be greater than 0 in every entry, got {float(period.min())}")
    return period.detach()


def _scaled(cloud: Tensor, side: Tensor | None, unit: float, wide: torch.dtype) -> Tensor:
    x = cloud.to(wide)
    if side is not None:
        x = torch.remainder(x, side)
        x = torch.where(x < side, x, 0.0)  # the remainder of a tiny negative number rounds up to the period itself
    return x / unit


def _tree(x: Tensor, q: Tensor, own: bool, k: int, side: Tensor | None) -> tuple[Tensor, Tensor]:
    box = None if side is None else side.cpu().numpy()
    cloud = x.cpu().double().numpy()
    # Median splits turn quadratic on ties (scipy issue 11595), and shrunken nodes cost more than they save here.
    tree = cKDTree(cloud, leafsize=16, balanced_tree=False, compact_nodes=False, boxsize=box)
    queries = cloud if own else q.cpu().double().numpy()
    order = None
    if own:
        order = tree.indices
    elif len(queries) >= 1 << 15:  # below, the tree fits into the cache in any order
        order = cKDTree(queries, leafsize=64, balanced_tree=False, compact_nodes=False).indices
    sought = k + 1 if own else k
    queries = queries if order is None else queries[order]
    # A list of ranks instead of their number keeps the second axis when it is one.
    ranks = np.arange(1, sought + 1)
    found = tree.query(queries, k=ranks, workers=torch.get_num_threads())
    distances, indices = np.asarray(found[0]), np.asarray(found[1], dtype=np.int64)
    if own:
        if (indices[:, 0] == tree.indices).all():
            distances, indices = distances[:, 1:], indices[:, 1:]
        else:
            # Duplicates may come before the point, and more than k of them may push it off its own list: then the
            # last entry is superfluous.
            keep = indices != tree.indices[:, None]
            keep[keep.all(1), -1] = False
            distances, indices = distances[keep].reshape(-1, k), indices[keep].reshape(-1, k)
    if order is None:
        return torch.from_numpy(distances), torch.from_numpy(indices)
    sorted_distances, sorted_indices = np.empty_like(distances), np.empty_like(indices)
    sorted_distances[order], sorted_indices[order] = distances, indices
    return torch.from_numpy(sorted_distances), torch.from_numpy(sorted_indices)


def _brute(
    x: Tensor, q: Tensor, own: bool, k: int, side: Tensor | None, chunk_size: int | None
) -> tuple[Tensor, Tensor]:
    """Screen in float32, then what is left in float64, then measure the rest in full."""
    # On the CPU a block of scores should stay in the cache.
    size, most = (1 << 22, 512) if x.device.type == "cpu" else (1 << 27, 8192)
    rows = max(1, min(size // len(x), most)) if chunk_size is None else chunk_size
    tile = most if chunk_size is None else chunk_size
    distances = q.new_empty(len(q), k)
    indices = torch.empty(len(q), k, dtype=torch.long, device=q.device)
    left = torch.arange(len(q), device=q.device)
    if side is None:
        for dtype in dict.fromkeys((torch.float32, x.dtype)):
            if len(left):
                left = _screen(x, q, left, own, k, dtype, rows, tile, distances, indices)
    for block in torch.split(left, rows):
        table = _table(x, q[block], side)
        if own:
            table[torch.arange(len(block)), block] = torch.inf
        near = table.topk(k, dim=1, largest=False).indices
        distances[block], indices[block] = _ranked(x, q[block], near, side, None)
    return distances, indices


def _table(x: Tensor, q: Tensor, side: Tensor | None) -> Tensor:
    """All distances (their squares on a torus) from differences."""
    if side is None:
        return torch.cdist(q, x, compute_mode="donot_use_mm_for_euclid_dist")
    table = q.new_zeros(len(q), len(x))
    for j in range(x.shape[1]):
        step = (q[:, j, None] - x[None, :, j]).abs_()
        table += torch.minimum(step, side[j] - step).square_()
    return table


def _ranked(x: Tensor, q: Tensor, near: Tensor, side: Tensor | None, invalid: Tensor | None) -> tuple[Tensor, Tensor]:
    """The distances of the candidates ``near`` from differences, ascending; ``invalid`` ones are infinitely far."""
    step = (x[near] - q[:, None]).abs_()
    if side is not None:
        step = torch.minimum(step, side - step)
    distances = step.square_().sum(2).sqrt_()
    if invalid is not None:
        distances[invalid] = torch.inf
    distances, order = distances.sort(1)
    return distances, near.gather(1, order)


def _screen(
    x: Tensor,
    q: Tensor,
    left: Tensor,
    own: bool,
    k: int,
    dtype: torch.dtype,
    rows: int,
    tile: int,
    distances: Tensor,
    indices: Tensor,
) -> Tensor:
    """Write the neighbours of the rows ``left`` that can be certified in ``dtype``; return the rows that cannot."""
    n, d = x.shape
    centre = x.mean(0)
    columns = _augmented(x - centre, dtype, query=False)
    blocks, kept = len(columns) // _WIDTH, min(k, len(columns) // _WIDTH)
    taken = min(k + 2 + own, kept * _WIDTH)
    longest = (x - centre).square().sum(1).max().sqrt()
    slack = 0.5 * (d + 8) * _precision(dtype)
    # One triangle pays when recomputing the scores of k blocks costs less than half a row of the product.
    symmetric = own and len(left) == n and x.device.type == "cpu" and n >= 4096 * k
    if symmetric:
        queries = _augmented(x - centre, dtype, query=True)
        minima, best = _triangle(queries, columns, kept, tile)
        # Gathered blocks are memory traffic: few enough rows at a time to stay in the cache, in one reused buffer.
        rows = max(1, min(rows, (1 << 20) // (kept * _WIDTH * (d + 2))))
        panels = columns.new_empty(rows * kept, _WIDTH * (d + 2))
    failed = []
    for block in torch.split(left, rows):
        if symmetric:
            bound, chosen = minima[block], best[block]
            panel = panels[: len(block) * kept]
            torch.index_select(columns.view(blocks, -1), 0, chosen[:, :kept].flatten(), out=panel)
            scores = torch.bmm(panel.view(len(block), kept * _WIDTH, d + 2), queries[block][:, :, None])[..., 0]
        else:
            queries = _augmented(q[block] - centre, dtype, query=True)
            table = queries.new_empty(len(queries), len(columns))
            torch.mm(queries, columns.T, out=table)  # autocast leaves calls with `out` alone
            if own:
                table[torch.arange(len(block)), block] = _FAR
            tiles = table[: len(block)].view(len(block), blocks, _WIDTH)
            bound, chosen = tiles.amin(2).topk(min(kept + 1, blocks), dim=1, largest=False)
            scores = tiles.gather(1, chosen[:, :kept, None].expand(-1, -1, _WIDTH)).flatten(1)
        worst, place = scores.topk(taken, dim=1, largest=False)
        near = chosen.gather(1, place // _WIDTH) * _WIDTH + place % _WIDTH
        invalid = (near >= n) | (near == block[:, None]) if own else near >= n
        exact, near = _ranked(x, q[block], near.clamp_max(n - 1), None, invalid)
        exact, near = exact[:, :k], near[:, :k]
        # Every score outside the candidates is at least `least`.
        least = worst[:, -1].to(exact.dtype)
        if blocks > kept:
            least = torch.minimum(least, bound[:, -1].to(exact.dtype))
        reach = (q[block] - centre).square().sum(1).sqrt() + longest
        last = exact[:, -1]
        sure = (0.5 * last.square() < least - slack * reach.square()) | (last == 0)
        distances[block], indices[block] = exact, near
        failed.append(block[~sure])
    return torch.cat(failed)


def _augmented(centred: Tensor, dtype: torch.dtype, *, query: bool) -> Tensor:
    """Rows whose products are half squared distances: ``(-q, |q|^2/2, 1) . (x, 1, |x|^2/2) = |q - x|^2/2``."""
    half = 0.5 * centred.square().sum(1, keepdim=True)
    parts = (-centred, half, torch.ones_like(half)) if query else (centred, torch.ones_like(half), half)
    rows = torch.cat(parts, 1).to(dtype)
    missing = -len(rows) % _WIDTH
    if query or not missing:
        return rows
    far = rows.new_zeros(missing, rows.shape[1])
    far[:, -1] = _FAR
    return torch.cat([rows, far])


def _precision(dtype: torch.dtype) -> float:
    """The spacing of numbers near 1 in a matrix product; that of bfloat16 if float32 products may be shortened."""
    try:
        full = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch refuses to answer when its old and new settings are mixed
        full = False
    return torch.finfo(dtype).eps if full or dtype == torch.float64 else 2.0**-7


def _triangle(queries: Tensor, columns: Tensor, kept: int, tile: int) -> tuple[Tensor, Tensor]:
    """The ``kept + 1`` least block minima of every row, from the tiles of one triangle of the symmetric table."""
    n, total = len(queries), len(columns)
    side = min(-(-tile // _WIDTH) * _WIDTH, total)
    padded = torch.cat([queries, queries.new_zeros(total - n, queries.shape[1])])
    padded[n:, -2] = _FAR
    best = queries.new_full((total, kept + 1), _FAR)
    where = torch.zeros(total, kept + 1, dtype=torch.long, device=queries.device)
    buffer = queries.new_empty(side * side)

    def merge(start: int, minima: Tensor, offset: int) -> None:
        """Take the block minima ``[blocks, rows]`` of the rows from ``start`` on into the least ones."""
        old = best[start : start + minima.shape[1]]
        # Most rows of most tiles bring nothing new, and topk is dear.
        rows = (minima.amin(0) < old[:, -1]).nonzero()[:, 0]
        values, place = torch.cat([old[rows], minima[:, rows].T], 1).topk(kept + 1, dim=1, largest=False)
        rows = rows + start
        known = where[rows].gather(1, place.clamp_max(kept))
        where[rows] = torch.where(place <= kept, known, place - (kept + 1) + offset)
        best[rows] = values

    for i in range(0, total, side):
        r = min(side, total - i)
        minima = []
        for j in range(i, total, side):
            c = min(side, total - j)
            scores = buffer[: r * c].view(r, c)
            torch.mm(padded[i : i + r], columns[j : j + c].T, out=scores)
            if i == j:
                scores.fill_diagonal_(_FAR)
            else:  # the same scores seen from the other side
                merge(j, scores.view(r // _WIDTH, _WIDTH, c).amin(1), i // _WIDTH)
            minima.append(scores.view(r, c // _WIDTH, _WIDTH).amin(2))
        merge(i, torch.cat(minima, 1).T, i // _WIDTH)
    return best[:n], where[:n]
