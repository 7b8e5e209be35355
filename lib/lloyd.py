"""Lloyd's algorithm (k-means): a codebook for a finite cloud, with exact assignments."""

import html
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from scipy.spatial import cKDTree
from torch import Tensor

from lib import neighbours, validation

# Up to this dimension a tree over the centres beats the matrix product.
_TREE_DIM = 8
# torch.amin is vectorised along rows of at least 32 numbers; the winner is then sought inside its block.
_BLOCK = 32

# Maps centres to the number of the nearest one, and the squared distance to it, of each point of a cloud.
Search = Callable[[Tensor], tuple[Int64[Tensor, " m"], Float[Tensor, " m"]]]


@dataclass(frozen=True, eq=False)
class Codebook:
    """A codebook with its distortion.

    Attributes:
        points: the centres ``[n, D]``; for a quotient, coordinates on the quotient manifold.
        distortion: mean squared distance to the nearest centre, in squared units of the points.
        method: how it was found; begins with "optimal" or "near-optimal" where that is known.
        history: distortion before the first and after every step of Lloyd's algorithm, float64 ``[steps + 1]``.
    """

    points: Float[Tensor, "n d"]
    distortion: float
    method: str
    history: Float[Tensor, " steps"] | None = None

    def _repr_html_(self) -> str:
        n, d = self.points.shape
        text = f"{n} points in {d} coordinates, distortion {self.distortion:.6g} ({self.method})"
        return f"<p><b>Codebook</b>: {html.escape(text)}</p>"


def lloyd(
    points: Float[Tensor, "m d"],
    n: int,
    *,
    steps: int = 20,
    start: Literal["kmeans++", "sample"] | Float[Tensor, "n d"] = "kmeans++",
    generator: torch.Generator | None = None,
    chunk_size: int | None = None,
) -> Codebook:
    r"""Improve a codebook for a finite cloud by Lloyd's algorithm (k-means), with the Euclidean distance.

    .. math:: a(x) = \arg\min_i |x - c_i|^2, \qquad c_i \leftarrow \text{mean of } \{x : a(x) = i\}.

    Args:
        points: the cloud ``[m, d]``, float32 or float64.
        n: number of centres, from 1 to the number of distinct points.
        steps: number of updates; fewer are made if the centres stop moving.
        start: ``"kmeans++"`` (each next centre is a point drawn with probability proportional to its squared distance
            to those already chosen), ``"sample"`` (points without repetition), or the centres ``[n, d]`` themselves.
        generator: CPU generator; needed unless ``start`` holds the centres.
        chunk_size: number of points whose distances to all centres are held at once; not used by the tree.

    Returns:
        The codebook after the last step, on the dtype and device of ``points``. Every assignment is exact: a k-d tree
        of the centres for ``d <= 8`` on the CPU; otherwise a matrix product of the centred data, after which each point
        with two centres closer to a tie than the rounding error is decided from differences in float64. The distortion
        and the history are means of squared differences in float64. The history never increases, beyond the rounding
        of the centres to the dtype. A local minimum: it depends on the start.

        A centre that no point is assigned to, or that equals an earlier one (also in the start), moves to the point
        farthest from all the others: the centres are always distinct. On CUDA the order of summation, and with it the
        last digit, may differ between runs.

    Cost: per step :math:`O(m \log n)` with the tree, else :math:`O(m n d)`; memory :math:`O(m d)` plus the chunk.

    Raises:
        TypeError: ``points`` or ``start`` is not float32/float64, their dtypes differ, or ``generator`` is none.
        ValueError: NaN or infinity, fewer than ``n`` distinct points, a ``start`` of another shape or device, or no
            generator where one is needed.

    Source: Lloyd (1982), *Least squares quantization in PCM*; Arthur and Vassilvitskii (2007) for k-means++.

    >>> cloud = torch.linspace(0, 1, 1001, dtype=torch.float64)[:, None]
    >>> book = lloyd(cloud, 2, steps=50, generator=torch.Generator().manual_seed(0))
    >>> assert torch.allclose(book.points.sort(0).values, torch.tensor([[0.25], [0.75]]).double(), atol=1e-3)
    >>> assert abs(book.distortion - 1 / 48) < 1e-4
    """
    validation.points("points", points)
    if points.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"points must be float32 or float64, got {points.dtype}")
    validation.count("n", n)
    validation.count("steps", steps)
    if chunk_size is not None:
        validation.count("chunk_size", chunk_size)
    if n > len(points):
        raise ValueError(f"n must be at most the number of points ({len(points)}), got {n}")
    points = points.detach()
    _check_distinct(points, n)
    largest = float(points.abs().max())
    if isinstance(start, Tensor):
        validation.points("start", start)
        validation.matching("points", points, "start", start)
        if len(start) != n:
            raise ValueError(f"start must have n = {n} rows, got {len(start)}")
        start = start.detach()
        largest = max(largest, float(start.abs().max()))
    # A power of two near the size of the data: dividing by it is exact, and squares neither overflow nor vanish.
    unit = math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest > 0 else 1.0
    cloud = points.to(_wide(points)) / unit
    centres = start.to(cloud) / unit if isinstance(start, Tensor) else _draw(cloud, n, start, generator)

    def rounded(x: Tensor) -> Tensor:
        """The codebook that will be returned is the one that is measured, also in single precision."""
        return (x * unit).to(points.dtype).to(cloud) / unit

    cloud, nearest = _prepare(cloud, chunk_size)
    centres = _separate(centres, torch.ones(n, dtype=torch.bool, device=cloud.device), cloud, nearest)
    history = []
    while True:
        assigned, squared = nearest(centres)
        history.append(float(squared.mean()))
        if len(history) > steps:
            break
        moved = _update(cloud, assigned, n, nearest, rounded)
        if torch.equal(moved, centres):
            history += [history[-1]] * (steps + 1 - len(history))
            break
        centres = moved
    name = "given centres" if isinstance(start, Tensor) else start
    record = torch.tensor(history, dtype=torch.float64) * unit * unit
    return Codebook((centres * unit).to(points.dtype), float(record[-1]), f"Lloyd, {steps} steps from {name}", record)


def _draw(cloud: Tensor, n: int, start: str, generator: torch.Generator | None) -> Tensor:
    validation.choice("start", start, ("kmeans++", "sample"))
    if generator is None:
        raise ValueError(f"generator must be given for start={start!r}, got None")
    validation.generator("generator", generator)
    if start == "sample":
        return cloud[torch.randperm(len(cloud), generator=generator)[:n].to(cloud.device)]
    uniform = torch.rand(n, generator=generator, dtype=torch.float64).tolist()
    chosen = [int(uniform[0] * len(cloud))]
    gap = (cloud - cloud[chosen[0]]).square().sum(1)
    for u in uniform[1:]:
        mass = gap.cumsum(0)
        # The second bound is the last point with any mass: u * total may round up to the total.
        at = torch.minimum(torch.searchsorted(mass, u * mass[-1], right=True), torch.searchsorted(mass, mass[-1]))
        chosen.append(int(at))
        gap = torch.minimum(gap, (cloud - cloud[chosen[-1]]).square().sum(1))
    return cloud[chosen]


def _wide(points: Tensor) -> torch.dtype:
    return torch.float32 if points.device.type == "mps" else torch.float64  # MPS has no float64


def _prepare(cloud: Tensor, chunk_size: int | None) -> tuple[Tensor, Search]:
    """The cloud in the order in which it is searched, and the search of the nearest centre of each of its points."""
    if cloud.device.type != "cpu" or cloud.shape[1] > _TREE_DIM:
        return cloud, _by_product(cloud, chunk_size)

    # Sorted once here, not in every step: in the order of a tree's leaves, each query meets nodes still in the cache.
    cloud = cloud[torch.from_numpy(cKDTree(cloud.numpy(), leafsize=32, balanced_tree=False).indices)]
    queries = cloud.numpy()

    def by_tree(centres: Tensor) -> tuple[Tensor, Tensor]:
        tree = cKDTree(centres.numpy(), leafsize=8, balanced_tree=False)
        distances, indices = tree.query(queries, workers=torch.get_num_threads())
        return torch.from_numpy(indices), torch.from_numpy(distances).square_()

    return cloud, by_tree


def _by_product(cloud: Tensor, chunk_size: int | None) -> Search:
    """Nearest centres by one matrix product in float32, certified against its rounding, or else searched exactly."""
    mean = cloud.mean(0)
    queries = (cloud - mean).float()
    length = torch.linalg.vector_norm(queries, dim=1)
    eps = neighbours._precision(torch.float32)

    def search(centres: Tensor) -> tuple[Tensor, Tensor]:
        columns = (centres - mean).float()
        norm = columns.square().sum(1)
        # Missing columns of the last block are infinitely far away.
        columns = torch.nn.functional.pad(columns, (0, 0, 0, -len(norm) % _BLOCK)).T.contiguous()
        half = torch.nn.functional.pad(norm / 2, (0, columns.shape[1] - len(norm)), value=torch.inf)
        # Two scores cannot change their order if they differ by more than this (rounding of a product of length d).
        slack = (cloud.shape[1] + 8) * eps * (length + norm.max().sqrt()).square()
        rows = chunk_size or max(256, (1 << (18 if cloud.device.type == "cpu" else 26)) // columns.shape[1])
        assigned = torch.empty(len(cloud), dtype=torch.long, device=cloud.device)
        unsure = torch.empty(len(cloud), dtype=torch.bool, device=cloud.device)
        buffer = queries.new_empty(min(rows, len(queries)), columns.shape[1])
        for i in range(0, len(queries), rows):
            part = slice(i, i + rows)
            table = buffer[: len(queries[part])]
            torch.addmm(half, queries[part], columns, alpha=-1, out=table)
            tiles = table.view(len(table), -1, _BLOCK)
            least, block = (minima := tiles.amin(2)).min(1)
            tile = tiles.gather(1, block[:, None, None].expand(-1, 1, _BLOCK))[:, 0]
            assigned[part] = tile.argmin(1) + _BLOCK * block
            limit = (least + slack[part])[:, None]
            unsure[part] = (minima <= limit).sum(1) + (tile <= limit).sum(1) > 2
        again = unsure.nonzero()[:, 0]
        if len(again):
            assigned[again] = neighbours.nearest(centres, cloud[again]).indices[:, 0]
        pieces = zip(torch.split(cloud, rows), torch.split(assigned, rows), strict=True)
        return assigned, torch.cat([(x - centres[a]).square_().sum(1) for x, a in pieces])

    return search


def _update(cloud: Tensor, assigned: Tensor, n: int, nearest: Search, rounded: Callable[[Tensor], Tensor]) -> Tensor:
    """Means of the cells, with :func:`_separate` for the centres that have no cell."""
    size = torch.bincount(assigned, minlength=n)
    total = cloud.new_zeros(n, cloud.shape[1]).index_add_(0, assigned, cloud)
    return _separate(rounded(total / size.clamp_min(1)[:, None]), size > 0, cloud, nearest)


def _separate(centres: Tensor, used: Tensor, cloud: Tensor, nearest: Search) -> Tensor:
    """Put every centre that is not used, or equal to an earlier one, on the point farthest from all the others."""
    n = len(centres)
    distinct, label = torch.unique(centres, dim=0, return_inverse=True)
    if len(distinct) == n and bool(used.all()):
        return centres
    numbers = torch.arange(n, device=cloud.device)
    first = torch.full((len(distinct),), n, device=cloud.device)
    first.scatter_reduce_(0, label[used], numbers[used], "amin")
    kept = first[first < n]
    gap = nearest(centres[kept])[1]
    for i in numbers[~torch.isin(numbers, kept)].tolist():
        worst = gap.argmax()
        centres[i] = cloud[worst]
        gap = torch.minimum(gap, (cloud - cloud[worst]).square().sum(1))
    return centres


def _check_distinct(points: Tensor, n: int) -> None:
    # Mostly one coordinate tells the points apart; sorting whole rows is slow.
    if len(torch.unique(points[:, points.var(0, correction=0).argmax()])) < n:
        found = len(torch.unique(points, dim=0))
        if found < n:
            raise ValueError(f"points must hold at least n = {n} distinct points, got {found}")
