"""Diffusion models: the sampler, the ideal denoiser with or without symmetry, and trained denoisers."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lib import validation
from lib.models import EnsembleMLP
from lib.training import fit
from lib.validation import choice, count, finite, floating, matching, number, points

Denoiser = Callable[[Tensor, float], Tensor]
Group = Literal["axis", "phase", "antipodal"]

# Largest error of a logit that float32 arithmetic may cause before the ideal denoiser computes in float64.
_LOGIT_ERROR = 1e-6


def noise_levels(high: float, low: float, steps: int) -> Float[Tensor, " steps"]:
    r"""Noise levels in geometric progression from ``high`` down to ``low``.

    .. math:: \sigma_t=\sigma_{\rm high}\,(\sigma_{\rm low}/\sigma_{\rm high})^{t/(T-1)},\qquad t=0,\dots,T-1

    Args:
        high: the first level, above ``low``, in the unit of the data.
        low: the last level, above 0.
        steps: the number :math:`T` of levels, at least 2.

    Returns:
        Decreasing levels in float64; the ends are exact.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: ``low`` not in (0, high), fewer than two steps, or too many for the levels to differ.

    >>> noise_levels(4.0, 0.25, 5).tolist()
    [4.0, 2.0, 1.0, 0.5, 0.25]
    """
    low, steps = number("low", low, above=0.0), count("steps", steps, minimum=2)
    high = number("high", high, above=low)
    levels = torch.logspace(math.log2(high), math.log2(low), steps, base=2, dtype=torch.float64)
    levels[0], levels[-1] = high, low
    if not bool((levels[1:] < levels[:-1]).all()):
        raise ValueError(f"steps must leave room for different levels between {low} and {high}, got {steps}")
    return levels


def start_noise(
    n: int, dim: int, *, sigma: float, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "n dim"]:
    r"""Starting points of the sampler: pure noise :math:`x_T\sim\mathcal N(0,\sigma^2I)`.

    This is the law of :math:`x_0+\sigma\epsilon` only in the limit of large :math:`\sigma`; for data of radius
    :math:`R` the means differ by at most :math:`R`, so take :math:`\sigma\ge 10R` or so.

    Args:
        n: number of points, at least 1.
        dim: number of coordinates, at least 1.
        sigma: the first noise level, above 0, in the unit of the data.
        generator: CPU generator; the draw is in float64, then cast.
        dtype: precision of the result.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: an argument out of range.

    >>> tuple(start_noise(5, 3, sigma=10.0, generator=torch.Generator().manual_seed(0)).shape)
    (5, 3)
    """
    shape = (count("n", n), count("dim", dim))
    sigma = number("sigma", sigma, above=0.0)
    validation.generator("generator", generator)
    floating("dtype", dtype)
    return (sigma * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def sample(
    denoiser: Denoiser, start: Float[Tensor, "*batch d"], *, sigmas: Float[Tensor, " steps"], path: bool = False
) -> Float[Tensor, "*shape d"]:
    r"""Follow the probability-flow ODE from ``start`` down the noise levels and return the last denoised points.

    .. math:: x_{t+1}=\hat x_0(x_t,\sigma_t)+\frac{\sigma_{t+1}}{\sigma_t}\big(x_t-\hat x_0(x_t,\sigma_t)\big),
        \qquad \text{result }\ \hat x_0(x_T,\sigma_T)

    Deterministic; this is the DDIM step, which is the Euler step of :math:`dx/d\sigma=(x-\hat x_0)/\sigma`.

    Args:
        denoiser: maps ``(x, sigma)`` to the posterior mean of the clean point, in the shape of ``x``.
        start: points at noise level ``sigmas[0]``, for example :func:`start_noise`; any leading axes.
        sigmas: positive, strictly decreasing levels :math:`\sigma_1>\dots>\sigma_T` in the unit of the data.
        path: return the denoised points of all levels, stacked along a new first axis.

    Returns:
        Points in the shape of ``start``, or ``[T, *start.shape]`` with ``path``. For the ideal denoiser they lie on the
        data set (on its orbits) up to the last noise level.

    Cost: ``T`` calls of the denoiser.

    Raises:
        TypeError: ``start``, ``sigmas`` or an output of the denoiser is no real floating tensor, or the denoiser
            changes the dtype.
        ValueError: NaN or infinity, levels not positive and strictly decreasing, a denoiser that changes the shape.

    Source: Song, Meng and Ermon 2021, equation 12 with zero variance, in the variables of Karras et al. 2022.

    For a single data point the sampler returns that point:

    >>> point = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    >>> start = start_noise(7, 2, sigma=10.0, generator=torch.Generator().manual_seed(0))
    >>> out = sample(ideal_denoiser(point), start, sigmas=noise_levels(10.0, 0.01, 8))
    >>> bool(torch.allclose(out, point.expand(7, 2), atol=1e-12))
    True
    """
    x = finite("start", start)
    finite("sigmas", sigmas, ndim=1)
    if not bool((sigmas > 0).all()) or not bool((sigmas[1:] < sigmas[:-1]).all()):
        raise ValueError(f"sigmas must be positive and strictly decreasing, got {sigmas.tolist()}")
    levels = sigmas.tolist()
    kept = []
    for level, following in zip(levels, [*levels[1:], None], strict=True):
        clean = finite("the output of denoiser", denoiser(x, level))
        if clean.shape != x.shape:
            raise ValueError(f"denoiser must keep the shape {tuple(x.shape)}, got {tuple(clean.shape)}")
        if clean.dtype != x.dtype:
            raise TypeError(f"denoiser must keep the dtype {x.dtype}, got {clean.dtype}")
        if path:
            kept.append(clean)
        if following is not None:
            x = torch.lerp(clean, x, following / level)
    return torch.stack(kept) if path else clean


def ideal_denoiser(
    data: Float[Tensor, "n d"],
    *,
    group: Group | Float[Tensor, "g d d"] | None = None,
    chunk_size: int | None = None,
) -> Denoiser:
    r"""The denoiser that training would reach with unlimited capacity: the posterior mean given the data set.

    .. math:: \hat x_0(x,\sigma)=\sum_iw_ix_i,\qquad w=\mathrm{softmax}_i\Big(-\frac{\|x-x_i\|^2}{2\sigma^2}\Big)
        =\mathrm{softmax}_i\,\frac1{\sigma^2}\Big\langle(x,1),\big(x_i,-\tfrac12\|x_i\|^2\big)\Big\rangle

    for :math:`x=x_i+\sigma\epsilon` with :math:`i` uniform. The second form holds because :math:`\|x\|^2` is the same
    for all :math:`i`: **the ideal denoiser is attention** with queries :math:`(x,1)`, keys
    :math:`(x_i,-\tfrac12\|x_i\|^2)`, values :math:`x_i` and scale :math:`1/\sigma^2`; that is how it is computed.
    With a ``group`` the data are replaced by their orbits, each with its invariant measure:

    * a tensor of orthogonal matrices: the finite group's orbit :math:`\{gx_i\}`; ``"antipodal"`` is :math:`\{I,-I\}`;
    * ``"axis"``: rotations of :math:`\mathbb R^3` about the last axis; ``"phase"``: :math:`z\mapsto e^{i\alpha}z` on
      :math:`\mathbb C^{d/2}`, real and imaginary parts adjacent. Write :math:`x=(u,v)` with :math:`u` the complex
      coordinates that turn and :math:`v` those that stay, :math:`\langle a,b\rangle=\sum_j\bar a_jb_j` and
      :math:`\kappa_i=|\langle u_i,u\rangle|/\sigma^2`. The integral over the angle is a Bessel function:

    .. math:: \hat x_0=\sum_iw_i\Big(\frac{I_1}{I_0}(\kappa_i)\,
        \frac{\langle u_i,u\rangle}{|\langle u_i,u\rangle|}\,u_i,\;v_i\Big),\qquad
        w_i\propto\exp\Big(-\frac{\|u\|^2+\|u_i\|^2-2|\langle u_i,u\rangle|+\|v-v_i\|^2}{2\sigma^2}\Big)
        \,e^{-\kappa_i}I_0(\kappa_i)

    Args:
        data: the training points, ``[n, d]``, n from 1, in any unit.
        group: ``None``, a name above, or matrices ``[g, d, d]``.
        chunk_size: noisy points handled at a time; the result does not depend on it. By default a chunk holds about
            two million pairs of a noisy and a data point.

    Returns:
        ``denoise(x, sigma)``: the posterior means ``[m, d]`` of noisy points ``x`` ``[m, d]`` at the level ``sigma``
        above 0 (unit of the data). It raises ``TypeError`` / ``ValueError`` for an ``x`` that does not match the data.

    Exact: the closed form up to rounding. A logit is of size :math:`\|x_i\|^2/\sigma^2`, a million at
    :math:`\sigma=10^{-3}`, where float32 would be wrong in the first digit of the weights: float32 input is therefore
    computed in float64 unless the rounding error of the logits stays below 1e-6, and the result is cast back (not on
    MPS, which has no float64).

    Cost: :math:`O(mnd)` time (:math:`g` times that for a finite group); attention keeps no ``[m, n]`` matrix on the
    CPU, the continuous groups hold a few ``[chunk_size, n]`` ones.

    Raises:
        TypeError: ``data`` or ``group`` of the wrong type, or ``group`` in another dtype than ``data``.
        ValueError: non-finite data, a dimension that the group does not act on, or matrices that are no finite group of
            orthogonal matrices.

    Source: Kamb and Ganguli 2025 (ideal score machine, equivariant score machine); the Bessel forms are derived here.

    Two points :math:`\pm1` on the line give a hyperbolic tangent:

    >>> x = torch.linspace(-3, 3, 7, dtype=torch.float64)[:, None]
    >>> denoise = ideal_denoiser(torch.tensor([[1.0], [-1.0]], dtype=torch.float64))
    >>> bool(torch.allclose(denoise(x, 0.5), torch.tanh(x / 0.5**2), atol=1e-12))
    True
    """
    data = points("data", data)
    if chunk_size is not None:
        count("chunk_size", chunk_size)
    if isinstance(group, Tensor):
        return _attention(data, _orbits(data, group), chunk_size)
    choice("group", group, (None, "axis", "phase", "antipodal"))
    dim = data.shape[1]
    if group == "antipodal":
        return _attention(data, torch.cat([data, -data]), chunk_size)
    if group == "axis":
        if dim != 3:
            raise ValueError(f"group 'axis' needs data with 3 columns, got shape {tuple(data.shape)}")
        return _circle_orbits(data, 2, chunk_size)
    if group == "phase":
        if dim % 2:
            raise ValueError(f"group 'phase' needs an even number of columns, got shape {tuple(data.shape)}")
        return _circle_orbits(data, dim, chunk_size)
    return _attention(data, data, chunk_size)


@dataclass(frozen=True)
class TrainedDenoisers:
    """An ensemble of :math:`K` independently trained denoisers; call it as ``denoise(x, sigma)``.

    Attributes:
        model: the networks :math:`F_k` inside the preconditioning.
        scale: root mean square coordinate of each member's data, ``[K, 1, 1]``.
        sigma_range: the least and the largest noise level of the training.
        symmetry: ``"axis"`` if every member commutes with rotations about the last axis, else ``None``.
        history: the weighted loss of every step and member, ``[steps, K]``.
    """

    model: EnsembleMLP
    scale: Float[Tensor, "members 1 1"]
    sigma_range: tuple[float, float]
    symmetry: Literal["axis"] | None
    history: Float[Tensor, "steps members"]

    def __call__(self, x: Float[Tensor, "*members m d"], sigma: float) -> Float[Tensor, "members m d"]:
        """Denoised points of every member for ``x`` ``[K, m, d]``, or for ``[m, d]`` that all members see.

        Raises:
            TypeError: ``x`` or ``sigma`` of the wrong type.
            ValueError: ``x`` of another shape or not finite in float32, or ``sigma`` outside the range of the training.
        """
        finite("x", x)
        members = self.model.members
        dim = 3 if self.symmetry else self.model.weights[0].shape[1] - 1
        if x.ndim not in (2, 3) or x.shape[-1] != dim or (x.ndim == 3 and x.shape[0] != members):
            raise ValueError(f"x must have shape [m, {dim}] or [{members}, m, {dim}], got {tuple(x.shape)}")
        low, high = self.sigma_range
        # The ends of a geometric progression may miss the range by one rounding.
        if not low * (1 - 1e-9) <= number("sigma", sigma, above=0.0) <= high * (1 + 1e-9):
            raise ValueError(f"sigma must be between {low} and {high}, the range of the training; got {sigma}")
        noisy = finite("x in float32", x.to(self.scale.dtype)).expand(members, -1, -1)
        level = torch.full_like(noisy[..., :1], sigma)
        with torch.no_grad():
            skip, out, _ = _preconditioning(self.scale, level)
            return (skip * noisy + out * _network(self, noisy, level)).to(x.dtype)

    def _repr_html_(self) -> str:
        loss = self.history[-len(self.history) // 10 :].mean(0)
        return (
            f"{self.model.members} trained denoisers, symmetry {self.symmetry}, noise {self.sigma_range[0]:g} to "
            f"{self.sigma_range[1]:g}; mean loss over the last tenth {float(loss.min()):.3g} to {float(loss.max()):.3g}"
        )


def train_denoisers(
    data: Float[Tensor, "members n d"],
    *,
    generators: Sequence[torch.Generator],
    symmetry: Literal["axis"] | None = None,
    sigma_range: tuple[float, float] = (0.05, 3.0),
    width: int = 64,
    depth: int = 3,
    steps: int = 2000,
    batch: int = 128,
    lr: float = 1e-2,
) -> TrainedDenoisers:
    r"""Train :math:`K` denoising networks side by side, each on its own data set.

    .. math:: D(x,\sigma)=c_{\rm skip}x+c_{\rm out}F\Big(c_{\rm in}x,\ \log\sigma\Big),\quad
        c_{\rm skip}=\frac{s^2}{\sigma^2+s^2},\ c_{\rm out}=\frac{\sigma s}{\sqrt{\sigma^2+s^2}},\
        c_{\rm in}=\frac1{\sqrt{\sigma^2+s^2}}

    .. math:: L=\mathbb E_{i,\epsilon,\sigma}\ \frac{\|D(x_i+\sigma\epsilon,\sigma)-x_i\|^2}{c_{\rm out}^2}

    with :math:`s` the root mean square coordinate of the data, :math:`\log\sigma` uniform over the range, and fresh
    noise in every step. The minimiser over all functions is :func:`ideal_denoiser` of the same data: what separates a
    trained network from it is its capacity and its training.

    With ``symmetry="axis"`` a member commutes with every rotation about the last axis, by construction: with height
    :math:`h` and radius vector :math:`u` (:math:`|u|=\rho`) the network sees only :math:`(h,\rho,\log\sigma)` and

    .. math:: F=\Big(b(h,\rho)\,\frac u{\sqrt{\rho^2+4\sigma^4/s^2}},\ a(h,\rho)\Big).

    The root keeps the map smooth on the axis, with the slope of :math:`I_1/I_0`. A component along the third direction,
    :math:`e_\varphi`, is not needed: the orbits of the data are circles, hence symmetric under reflections in planes
    through the axis, and so is the ideal denoiser.

    Args:
        data: one training set per member, ``[K, n, d]``, roughly centred; ``d = 3`` with a symmetry.
        generators: one CPU generator per member, for its weights, then its rows, noise levels and noise; a member's
            result does not depend on the other members.
        symmetry: ``None`` or ``"axis"``.
        sigma_range: least and largest noise level, in the unit of the data.
        width: units of each hidden layer, at least 1.
        depth: number of hidden layers (ReLU), at least 1.
        steps: updates of Adam, with a rate that falls along half a cosine.
        batch: noisy points per member and step; rows are drawn with replacement.
        lr: the first learning rate.

    Returns:
        The ensemble, a callable ``denoise(x, sigma)`` for :func:`sample`, with the history of the loss.

    Estimated, not exact: how near to the ideal denoiser a run comes has to be measured, for example by sampling both
    from the same noise. Networks compute in float32; the result has the dtype of the input.

    Cost: about 6 K batch (depth - 1) width^2 operations per step.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: an argument out of range, not one generator per member, data that are all zero, or a diverged loss.

    Source: Karras et al. 2022, equations 7 and 8 and table 1 (preconditioning, loss weight); the equivariant form is
    derived here.

    A single data point is learned to within the last noise level:

    >>> point = torch.tensor([[[0.0, 0.6, 0.8]]])
    >>> trained = train_denoisers(point, generators=[torch.Generator().manual_seed(0)], width=16, steps=200)
    >>> start = start_noise(50, 3, sigma=3.0, generator=torch.Generator().manual_seed(1), dtype=torch.float32)
    >>> out = sample(trained, start.expand(1, 50, 3), sigmas=noise_levels(3.0, 0.05, 10))
    >>> bool((out - point).norm(dim=-1).median() < 0.05)
    True
    """
    finite("data", data, ndim=3)
    members, n, dim = data.shape
    generators = validation.generators("generators", generators)
    if len(generators) != members:
        raise ValueError(f"generators must hold one generator per member ({members}), got {len(generators)}")
    if len(set(map(id, generators))) < members:
        raise ValueError("generators must be different objects, got one twice")
    if choice("symmetry", symmetry, (None, "axis")) and dim != 3:
        raise ValueError(f"symmetry 'axis' needs data with 3 columns, got shape {tuple(data.shape)}")
    if len(sigma_range) != 2:
        raise ValueError(f"sigma_range must hold the least and the largest level, got {sigma_range}")
    low = number("sigma_range[0]", sigma_range[0], above=0.0)
    high = number("sigma_range[1]", sigma_range[1], above=low)
    width, depth, batch = count("width", width), count("depth", depth), count("batch", batch)
    clean = finite("data in float32", data.detach().float())
    scale = clean.square().mean((1, 2), keepdim=True).sqrt()
    if not bool((scale > 0).all()):
        raise ValueError("data must not be all zero in any member")
    inputs, outputs = (3, 2) if symmetry else (dim + 1, dim)
    model = EnsembleMLP([inputs, *[width] * depth, outputs], generators=generators).to(data.device)
    shell = TrainedDenoisers(model, scale, (low, high), symmetry, clean.new_zeros(0, members))

    def loss(_: EnsembleMLP, drawn: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        rows, level, noise = (part.to(clean.device) for part in drawn)
        target = clean.gather(1, rows.expand(-1, -1, dim))
        noisy = target + level * noise
        skip, out = _preconditioning(scale, level)[:2]
        return (_network(shell, noisy, level) - (target - skip * noisy) / out).square().sum(2).mean(1)

    batches = _noise_batches(n, dim, batch, (low, high), generators)
    history = fit(model, loss, batches=batches, steps=steps, lr=lr, schedule="cosine")
    return TrainedDenoisers(model, scale, (low, high), symmetry, history)


def _preconditioning(scale: Tensor, level: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    total = level.square() + scale.square()
    return scale.square() / total, level * scale / total.sqrt(), total.rsqrt()


def _network(denoisers: TrainedDenoisers, noisy: Tensor, level: Tensor) -> Tensor:
    """The network inside the preconditioning, made equivariant if the denoisers are."""
    model = denoisers.model
    low, high = denoisers.sigma_range
    # log sigma, shifted and scaled to unit variance under its uniform law.
    time = (2 * (level / low).log() / math.log(high / low) - 1) * math.sqrt(3)
    shrink = _preconditioning(denoisers.scale, level)[2]
    if denoisers.symmetry is None:
        plain: Tensor = model(torch.cat([shrink * noisy, time], -1))
        return plain
    u, height = noisy[..., :2], noisy[..., 2:]
    square = u.square().sum(-1, keepdim=True)
    invariant: Tensor = model(torch.cat([shrink * square.sqrt(), shrink * height, time], -1))
    direction = u / (square + 4 * level**4 / denoisers.scale.square()).sqrt()
    return torch.cat([invariant[..., :1] * direction, invariant[..., 1:]], -1)


def _noise_batches(
    n: int, dim: int, batch: int, sigma_range: tuple[float, float], generators: Sequence[torch.Generator]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Endless batches of row numbers ``[K, b, 1]``, noise levels ``[K, b, 1]`` and noise ``[K, b, d]``."""
    low, high = sigma_range
    block = 64  # batches drawn at a time: a draw per step and member would cost as much as the step
    while True:
        draws = [
            (
                torch.randint(n, (block, batch, 1), generator=g),
                low * (high / low) ** torch.rand(block, batch, 1, generator=g),
                torch.randn(block, batch, dim, generator=g),
            )
            for g in generators
        ]
        rows, levels, noise = (torch.stack(parts, 1) for parts in zip(*draws, strict=True))
        yield from zip(rows, levels, noise, strict=True)


def _attention(data: Tensor, atoms: Tensor, chunk_size: int | None) -> Denoiser:
    """Softmax attention over ``atoms``; see :func:`ideal_denoiser`."""
    # Differences of logits are all that counts, so the origin is free: the centre makes the logits smallest.
    centre = atoms.double().mean(0) if _has_float64(data) else atoms.mean(0)
    centred = atoms.to(centre.dtype) - centre
    half_norms = centred.square().sum(1, keepdim=True) / 2
    radius = math.sqrt(2 * float(half_norms.max()))
    # One key or value per row; the kernel wants equal widths, and it is fastest for a multiple of 8.
    width = -(-(data.shape[1] + 1) // 8) * 8
    keys, values = _padded(torch.cat([centred, -half_norms], 1), width), _padded(centred, width)
    cast = {keys.dtype: (keys, values)}
    if data.dtype == torch.float32:
        cast[torch.float32] = (keys.float(), values.float())

    def denoise(x: Tensor, sigma: float) -> Tensor:
        sigma = _check_noisy(data, x, sigma)
        shifted = x.to(centre.dtype) - centre
        reach = float(torch.linalg.vector_norm(shifted, dim=1).max())
        error = torch.finfo(torch.float32).eps * radius * (reach + radius / 2) / sigma**2
        dtype = torch.float32 if error < _LOGIT_ERROR and data.dtype == torch.float32 else centre.dtype
        key, value = cast[dtype]
        query = _padded(torch.cat([shifted, torch.ones_like(shifted[:, :1])], 1), width).to(dtype)
        rows = chunk_size or max(1, 2**21 // len(atoms))
        parts = [
            F.scaled_dot_product_attention(part[None, None], key[None, None], value[None, None], scale=sigma**-2)
            for part in torch.split(query, rows)
        ]
        mean = torch.cat(parts, 2)[0, 0, :, : data.shape[1]]
        return (mean + centre).to(x.dtype)

    return denoise


def _circle_orbits(data: Tensor, turning: int, chunk_size: int | None) -> Denoiser:
    """Orbits under simultaneous rotation of the first ``turning`` coordinates, taken in pairs; the others stay."""
    # A copy: the caller may change the data later.
    atoms = data.detach().to(torch.float64 if _has_float64(data) else data.dtype, copy=True)
    # The origin of the coordinates that stay is free: the centre makes the logits smallest.
    u, centre = atoms[:, :turning], atoms[:, turning:].mean(0)
    v = atoms[:, turning:] - centre
    quarter_turn = _times_i(u)
    half_norms = (u.square().sum(1) + v.square().sum(1)) / 2

    def denoise(x: Tensor, sigma: float) -> Tensor:
        sigma = _check_noisy(data, x, sigma)
        rows = chunk_size or max(1, 2**21 // len(atoms))
        return torch.cat([_chunk(part, sigma) for part in torch.split(x.to(atoms.dtype), rows)]).to(x.dtype)

    def _chunk(x: Tensor, sigma: float) -> Tensor:
        # <u_i, u> in polar form; the real inner product with i*u_i is its imaginary part.
        real, imaginary = x[:, :turning] @ u.T, x[:, :turning] @ quarter_turn.T
        modulus = torch.hypot(real, imaginary)
        logits = modulus + (x[:, turning:] - centre) @ v.T - half_norms
        # At small noise a logit is too large to differ from itself minus ``drop``; its distance from the best is not.
        logits = (logits - logits.amax(1, keepdim=True)) / sigma**2
        # log(e^-k I0(k)) lies in [-log(1 + 2 pi k) / 2, 0], so an orbit this far below the best has a weight below
        # e^-45; leaving it out saves most of the Bessel functions, which are the slow part at small noise.
        drop = 45 + math.log1p(2 * math.pi * float(modulus.max()) / sigma**2) / 2
        kept = logits >= -drop
        kappa = modulus[kept] / sigma**2
        bessel = torch.special.i0e(kappa)
        logits = torch.full_like(logits, -math.inf).masked_scatter_(kept, logits[kept] + bessel.log())
        weights = torch.softmax(logits, 1)
        # I1/I0(kappa) over the modulus; its limit at modulus 0 is 1 / (2 sigma^2).
        ratio = torch.where(kappa > 1e-10, torch.special.i1e(kappa) / (bessel * kappa), 0.5) / sigma**2
        turned = torch.zeros_like(logits).masked_scatter_(kept, ratio * weights[kept])
        return torch.cat([(turned * real) @ u + (turned * imaginary) @ quarter_turn, weights @ v + centre], 1)

    return denoise


def _times_i(u: Tensor) -> Tensor:
    """Multiply adjacent (real, imaginary) pairs by the imaginary unit."""
    return torch.stack([-u[..., 1::2], u[..., ::2]], -1).flatten(-2)


def _orbits(data: Tensor, group: Tensor) -> Tensor:
    """All images of the data, after the check that the matrices form a finite group of orthogonal matrices."""
    finite("group", group, ndim=3)
    dim = data.shape[1]
    if group.shape[1:] != (dim, dim):
        raise ValueError(f"group must have shape [g, {dim}, {dim}] to act on data, got {tuple(group.shape)}")
    matching("data", data, "group", group)
    tolerance = 1e3 * dim * torch.finfo(group.dtype).eps
    identity = torch.eye(dim, dtype=group.dtype, device=group.device)
    if float((group @ group.mT - identity).abs().max()) > tolerance:
        raise ValueError("group must hold orthogonal matrices, got one with g g^T different from the identity")
    # A generic vector is moved to different places by different matrices; products must land on the same places.
    probe = torch.randn(dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(group)
    images = group @ probe
    exact = "donot_use_mm_for_euclid_dist"
    if len(group) > 1 and float(F.pdist(images).min()) < tolerance:
        raise ValueError("group must hold every matrix once, got a repeated one")
    for matrix in group:
        nearest = torch.cdist(images @ matrix.T, images, compute_mode=exact).amin(1)
        if float(nearest.max()) > tolerance * dim:
            raise ValueError("group must be closed under products, got matrices whose product is missing")
    return (data @ group.mT).flatten(0, 1)


def _check_noisy(data: Tensor, x: Tensor, sigma: float) -> float:
    points("x", x, dim=data.shape[1])
    matching("data", data, "x", x)
    return number("sigma", sigma, above=0.0)


def _has_float64(data: Tensor) -> bool:
    return data.device.type != "mps"


def _padded(rows: Tensor, width: int) -> Tensor:
    return F.pad(rows, (0, width - rows.shape[1]))
