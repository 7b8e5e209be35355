"""Small networks that several chapters share, alone or as an ensemble of independent members trained side by side."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from lib import validation
from lib.validation import choice, count

Activation = Literal["relu", "tanh", "silu"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh, "silu": F.silu}
# 1 / sqrt(E phi(z)^2) for z ~ N(0, 1): with weights of variance gain^2 / fan_in the second moment stays one.
GAINS = {"relu": math.sqrt(2), "tanh": 1.592537419722831, "silu": 1.676532470331091}


def mlp(sizes: Sequence[int], *, generator: torch.Generator, activation: Activation = "relu") -> nn.Sequential:
    r"""A fully connected network, initialised from an explicit generator.

    .. math:: f(x) = W_L\,\phi(\cdots\phi(W_1x+b_1)\cdots)+b_L,\qquad
        W_\ell\sim\mathcal N\!\left(0,\frac{g_\ell^2}{\text{fan-in}}\right),\; b_\ell=0

    The gain is :math:`g_1=1` and :math:`g_\ell=(\mathbb E\,\phi(z)^2)^{-1/2}`, :math:`z\sim\mathcal N(0,1)`, after that
    (:math:`\sqrt2` for ReLU): for inputs of unit second moment every layer has unit second moment in the infinite-width
    limit. torch's own layers draw from the global generator, which no chapter may depend on.

    Args:
        sizes: widths from the input to the output, two or more of them, each at least 1.
        generator: CPU generator of the weights, drawn in float64 and stored in float32.
        activation: the nonlinearity between the layers; none after the last.

    Returns:
        A ``torch.nn.Sequential`` of linear layers and activations: ``[b, sizes[0]]`` to ``[b, sizes[-1]]``.

    Raises:
        TypeError: a width is no integer, or ``generator`` no generator.
        ValueError: fewer than two widths, a width below 1, an unknown activation.

    Source: K. He et al. 2015, equation 10, for ReLU; Glorot and Bengio 2010 for the principle.

    >>> f = mlp([3, 5, 2], generator=torch.Generator().manual_seed(0))
    >>> tuple(f(torch.zeros(4, 3)).shape), sum(p.numel() for p in f.parameters()) == (3 + 1) * 5 + (5 + 1) * 2
    ((4, 2), True)
    """
    sizes = _widths(sizes)
    validation.generator("generator", generator)
    layer_types = {"relu": nn.ReLU, "tanh": nn.Tanh, "silu": nn.SiLU}
    activation = choice("activation", activation, tuple(layer_types))
    layers: list[nn.Module] = []
    for depth, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        # Built without memory first, so that the constructor draws nothing from the global generator.
        linear = nn.Linear(fan_in, fan_out, device="meta").to_empty(device="cpu")
        with torch.no_grad():
            linear.weight.copy_(_draw((fan_in, fan_out), fan_in, depth, activation, generator).T)
            linear.bias.zero_()
        layers += [linear, layer_types[activation]()]
    return nn.Sequential(*layers[:-1])


class EnsembleMLP(nn.Module):
    r""":math:`K` independent networks of the kind of :func:`mlp`, evaluated together by batched products.

    .. math:: f_k(x_k) = W_L^{(k)}\phi(\cdots\phi(W_1^{(k)}x_k+b_1^{(k)})\cdots)+b_L^{(k)},\qquad k=1,\dots,K

    No parameter is shared and every operation acts per member, so under a loss that is a sum over members and an
    elementwise optimizer (SGD, Adam, AdamW) each member trains as if it were alone; a small network is too small to
    keep a core busy by itself, so :math:`K` of them cost much less than :math:`K` times one.

    Args:
        sizes: widths from the input to the output, as in :func:`mlp`.
        generators: one CPU generator per member; member ``k`` draws the same weights as
            ``mlp(sizes, generator=generators[k])``, whatever the other members are.
        activation: the nonlinearity between the layers.

    Raises:
        TypeError: a width is no integer, or a generator is none.
        ValueError: bad widths, no generator, an unknown activation.

    >>> streams = [torch.Generator().manual_seed(k) for k in range(3)]
    >>> f = EnsembleMLP([2, 8, 1], generators=streams)
    >>> x = torch.ones(4, 2)
    >>> alone = mlp([2, 8, 1], generator=torch.Generator().manual_seed(1))
    >>> bool(torch.allclose(f(x)[1], alone(x)))
    True
    """

    def __init__(
        self, sizes: Sequence[int], *, generators: Sequence[torch.Generator], activation: Activation = "relu"
    ) -> None:
        super().__init__()
        sizes = _widths(sizes)
        self.members = len(validation.generators("generators", generators))
        self.activation: Activation = choice("activation", activation, tuple(ACTIVATIONS))
        draws = [
            [_draw(pair, pair[0], depth, activation, g) for depth, pair in enumerate(itertools.pairwise(sizes))]
            for g in generators
        ]
        self.weights = nn.ParameterList([nn.Parameter(torch.stack(layer)) for layer in zip(*draws, strict=True)])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(self.members, 1, size)) for size in sizes[1:]])

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "members b o"]:
        """Outputs ``[K, b, o]`` for inputs ``[K, b, d]``, or for one batch ``[b, d]`` that all members see.

        Raises:
            TypeError: ``x`` is no tensor, or of another dtype than the weights.
            ValueError: ``x`` of another shape.
        """
        dim, dtype = self.weights[0].shape[1], self.weights[0].dtype
        if not isinstance(x, Tensor) or x.dtype != dtype:
            raise TypeError(f"x must be a tensor of {dtype}, got {getattr(x, 'dtype', type(x).__name__)}")
        if x.ndim not in (2, 3) or x.shape[-1] != dim or (x.ndim == 3 and x.shape[0] != self.members):
            raise ValueError(f"x must have shape [b, {dim}] or [{self.members}, b, {dim}], got {tuple(x.shape)}")
        x = x.expand(self.members, -1, -1)
        phi = ACTIVATIONS[self.activation]
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, phi(x) if depth else x, weight)
        return x


def _widths(sizes: Sequence[int]) -> list[int]:
    if len(sizes) < 2:
        raise ValueError(f"sizes must hold at least 2 numbers, got {list(sizes)}")
    return [count("each of sizes", size) for size in sizes]


def _draw(
    shape: tuple[int, ...], fan_in: int, depth: int, activation: Activation, generator: torch.Generator
) -> Tensor:
    """One weight tensor with variance gain^2 / fan_in; only the first layer sees inputs instead of activations."""
    gain = GAINS[activation] if depth else 1.0
    draw = torch.randn(shape, generator=generator, dtype=torch.float64) * (gain / math.sqrt(fan_in))
    return draw.float()
