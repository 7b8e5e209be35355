"""The training loop of the book: a readable gradient descent on whatever loss a chapter states."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lib import validation
from lib.validation import choice, count, number

Batch = TypeVar("Batch")
Model = TypeVar("Model", bound=nn.Module)


def fit(
    model: Model,
    loss: Callable[[Model, Batch], Tensor],
    *,
    batches: Iterable[Batch],
    steps: int,
    lr: float,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    optimizer: Literal["adam", "sgd"] = "adam",
    schedule: Literal["cosine"] | None = None,
) -> Float[Tensor, "steps *members"]:
    r"""Train ``model`` in place by ``steps`` gradient steps and return the loss of every step.

    .. math:: \theta_{t+1}=\theta_t-\eta_t\,\mathrm{precondition}\Big(\nabla_\theta\sum_kL_k(\theta_t;B_t)\Big)
        -\eta_t\lambda\theta_t,\qquad \eta_t=\eta\ \text{ or }\ \tfrac\eta2\Big(1+\cos\frac{\pi t}{T}\Big)

    The loss may be a scalar or one number per ensemble member; members are *summed*, so that the gradient of a member
    does not depend on how many others there are. Both optimizers act elementwise, hence ensembles stay independent.

    Args:
        model: any module; its parameters with ``requires_grad`` are updated.
        loss: maps ``(model, batch)`` to a scalar or to ``[K]`` losses.
        batches: at least ``steps`` batches, for example :func:`index_batches`; each is handed to ``loss`` as it is.
        steps: the number :math:`T` of updates, at least 1.
        lr: the learning rate :math:`\eta`, above 0.
        weight_decay: the decoupled decay :math:`\lambda`, from 0: it multiplies the weights directly, not the gradient.
        momentum: for ``"sgd"`` only, in [0, 1).
        optimizer: ``"adam"`` is AdamW with torch's betas and epsilon.
        schedule: ``"cosine"`` lets the rate fall to 0 along half a cosine; ``None`` keeps it.

    Returns:
        The losses before each update, ``[T]`` or ``[T, K]``, detached.

    Raises:
        TypeError: a number of the wrong type.
        ValueError: a number out of range, an unknown choice, momentum with Adam, too few batches, or a loss that is no
            longer finite, or parameters after the last step (the run has diverged; the message names the step).

    Source: Loshchilov and Hutter 2019 (AdamW); 2017, equation 5 (cosine), without restarts.

    Gradient descent on :math:`\tfrac12\theta^2` contracts by :math:`1-\eta` in every step:

    >>> class One(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.theta = nn.Parameter(torch.ones((), dtype=torch.float64))
    >>> model, half_square = One(), lambda model, batch: model.theta.square() / 2
    >>> history = fit(model, half_square, batches=[None] * 3, steps=3, lr=0.1, optimizer="sgd")
    >>> abs(float(model.theta.detach()) - 0.9**3) < 1e-12 and abs(float(history[2]) - 0.9**4 / 2) < 1e-12
    True
    """
    steps = count("steps", steps)
    lr = number("lr", lr, above=0.0)
    weight_decay = number("weight_decay", weight_decay, at_least=0.0)
    momentum = number("momentum", momentum, at_least=0.0, below=1.0)
    choice("schedule", schedule, ("cosine", None))
    parameters = [p for p in model.parameters() if p.requires_grad]
    update: torch.optim.Optimizer
    if choice("optimizer", optimizer, ("adam", "sgd")) == "adam":
        if momentum:
            raise ValueError(f"momentum must be 0 with optimizer 'adam', got {momentum}")
        # One fused kernel per step: small networks would otherwise spend a third of their time in the optimizer.
        update = torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay, fused=True)
    else:
        update = torch.optim.SGD(parameters, lr=lr, momentum=momentum)
    history = []
    stream = iter(batches)
    for step in range(steps):
        rate = lr if schedule is None else lr * (1 + math.cos(math.pi * step / steps)) / 2
        update.param_groups[0]["lr"] = rate
        try:
            batch = next(stream)
        except StopIteration:
            raise ValueError(f"batches must yield at least steps={steps} batches, got {step}") from None
        value = loss(model, batch)
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"the loss must stay finite, got {value.detach().tolist()} at step {step}; lower lr={lr}")
        update.zero_grad()
        value.sum().backward()  # type: ignore[no-untyped-call]
        if optimizer == "sgd" and weight_decay:
            # torch's SGD couples the decay to the momentum; the definition above does not.
            with torch.no_grad():
                for p in parameters:
                    p.mul_(1 - rate * weight_decay)
        update.step()
        history.append(value.detach())
    if not all(bool(torch.isfinite(p).all()) for p in parameters):
        raise ValueError(f"the parameters must stay finite, got NaN or infinity after step {steps - 1}; lower lr={lr}")
    return torch.stack(history)


def index_batches(
    n: int, *, batch: int, generators: Sequence[torch.Generator], block: int = 64
) -> Iterator[Int[Tensor, "members batch"]]:
    """Endless batches of row numbers, drawn uniformly with replacement, one independent stream per member.

    Args:
        n: the number of rows to draw from, at least 1.
        batch: rows per batch, at least 1.
        generators: one CPU generator per member; a member's draws do not depend on the other members.
        block: batches drawn at a time; it changes the speed only.

    Returns:
        An iterator of ``[K, batch]`` integer tensors on the CPU.

    Raises:
        TypeError: a size that is no integer, or a generator that is none.
        ValueError: a size below 1, no generator.

    >>> rows = next(index_batches(5, batch=100, generators=[torch.Generator().manual_seed(k) for k in range(2)]))
    >>> tuple(rows.shape), sorted(set(rows.flatten().tolist())) == [0, 1, 2, 3, 4]
    ((2, 100), True)
    """
    n, batch, block = count("n", n), count("batch", batch), count("block", block)
    streams = validation.generators("generators", generators)

    def draw() -> Iterator[Tensor]:
        while True:
            rows = torch.stack([torch.randint(n, (block, batch), generator=g) for g in streams], 1)
            yield from rows

    return draw()
