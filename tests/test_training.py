"""The training loop against closed forms, scalar references and a member trained alone."""

import itertools
import math

import pytest
import torch
from torch import nn

from lib.models import EnsembleMLP
from lib.training import fit, index_batches


def generators(k: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in range(k)]


class Scalars(nn.Module):
    def __init__(self, *values: float) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(values, dtype=torch.float64))


def half_square(model: Scalars, batch: object) -> torch.Tensor:
    return model.theta.square() / 2


def run(model: nn.Module, loss=half_square, **options: object) -> torch.Tensor:
    return fit(model, loss, batches=itertools.repeat(None), **{"steps": 10, "lr": 0.1, "optimizer": "sgd", **options})


def test_gradient_descent_contracts_by_one_minus_lr() -> None:
    model = Scalars(1.0, -2.0)
    history = run(model)
    assert torch.allclose(model.theta.detach(), 0.9**10 * torch.tensor([1.0, -2.0], dtype=torch.float64), atol=1e-14)
    powers = 0.81 ** torch.arange(10, dtype=torch.float64)
    assert torch.allclose(history, powers[:, None] * torch.tensor([0.5, 2.0], dtype=torch.float64), atol=1e-14)
    assert not history.requires_grad


def test_cosine_schedule_multiplies_the_rates() -> None:
    model = Scalars(1.0)
    run(model, schedule="cosine")
    expected = math.prod(1 - 0.1 * (1 + math.cos(math.pi * t / 10)) / 2 for t in range(10))
    assert abs(float(model.theta.detach()) - expected) < 1e-14


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_weight_decay_is_decoupled(optimizer: str) -> None:
    """Without a gradient both optimizers shrink a weight by 1 - lr * decay per step."""
    model = Scalars(1.0)
    run(model, lambda model, batch: 0 * model.theta.sum(), optimizer=optimizer, weight_decay=0.5)
    assert abs(float(model.theta.detach()) - 0.95**10) < 1e-12


def test_momentum_is_the_heavy_ball() -> None:
    model, theta, velocity = Scalars(1.0), 1.0, 0.0
    run(model, momentum=0.8)
    for _ in range(10):
        velocity = 0.8 * velocity + theta
        theta -= 0.1 * velocity
    assert abs(float(model.theta.detach()) - theta) < 1e-13


def test_adam_against_its_scalar_recursion() -> None:
    model, theta, m, v = Scalars(1.0), 1.0, 0.0, 0.0
    run(model, optimizer="adam", weight_decay=0.2)
    for t in range(1, 11):
        gradient = theta
        theta -= 0.1 * 0.2 * theta
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        theta -= 0.1 * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
    assert abs(float(model.theta.detach()) - theta) < 1e-12


def test_frozen_parameters_stay() -> None:
    model = Scalars(1.0)
    model.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
    run(model, weight_decay=0.5)
    assert float(model.frozen) == 1.0


def test_batches_are_handed_over_in_order() -> None:
    seen = []

    def loss(model: Scalars, batch: int) -> torch.Tensor:
        seen.append(batch)
        return model.theta.square().sum()

    history = fit(Scalars(1.0), loss, batches=range(100), steps=4, lr=0.1)
    assert seen == [0, 1, 2, 3]
    assert history.shape == (4,)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_ensemble_learns_and_a_member_trains_as_if_alone(optimizer: str) -> None:
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(5))
    y = torch.sin(2 * x[:, :1]) * x[:, 1:]

    def loss(model: EnsembleMLP, rows: torch.Tensor) -> torch.Tensor:
        return (model(x[rows]) - y[rows]).square().mean((1, 2))

    def train(streams: list[torch.Generator]) -> tuple[EnsembleMLP, torch.Tensor]:
        model = EnsembleMLP([2, 30, 1], generators=streams)
        batches = index_batches(50, batch=16, generators=streams)
        return model, fit(model, loss, batches=batches, steps=150, lr=0.02, optimizer=optimizer, schedule="cosine")

    together, history = train(generators(3))
    alone, own = train(generators(3)[2:])
    assert bool((history[-30:].mean(0) < 0.7 * history[:10].mean(0)).all())
    assert torch.allclose(together(x)[2], alone(x)[0], atol=1e-4)
    assert torch.allclose(history[:50, 2], own[:50, 0], atol=1e-5)


def test_index_batches_are_uniform_and_independent_of_block_and_of_other_members() -> None:
    def first(count: int, streams: list[torch.Generator], **options: int) -> torch.Tensor:
        return torch.stack(list(itertools.islice(index_batches(7, batch=100, generators=streams, **options), count)))

    rows = first(200, generators(2))
    assert rows.shape == (200, 2, 100)
    assert torch.equal(first(200, generators(2)[1:])[:, 0], rows[:, 1])
    assert not torch.equal(rows[:, 0], rows[:, 1])
    assert torch.equal(first(10, generators(2), block=3), rows[:10])
    counts = torch.bincount(rows[:, 0].flatten(), minlength=7).double()
    # A count of 20000 draws has the standard deviation sqrt(20000 * 6) / 7; five of them are allowed.
    assert float((counts - 20000 / 7).abs().max()) < 5 * math.sqrt(20000 * 6) / 7


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"steps": 0}, ValueError, "steps"),
        ({"steps": 1.0}, TypeError, "steps"),
        ({"lr": 0.0}, ValueError, "lr"),
        ({"lr": "fast"}, TypeError, "lr"),
        ({"weight_decay": -1.0}, ValueError, "weight_decay"),
        ({"momentum": 1.0}, ValueError, "momentum"),
        ({"momentum": 0.9, "optimizer": "adam"}, ValueError, "momentum"),
        ({"optimizer": "lbfgs"}, ValueError, "optimizer"),
        ({"schedule": "linear"}, ValueError, "schedule"),
        ({"loss": lambda model, batch: model.theta.sum() / 0}, ValueError, "step 0"),
    ],
)
def test_bad_input_is_named(options, error, message) -> None:
    with pytest.raises(error, match=message):
        run(Scalars(1.0), **options)


@pytest.mark.bad_input
def test_bad_batches_are_named() -> None:
    with pytest.raises(ValueError, match="batches must yield at least steps=3"):
        fit(Scalars(1.0), half_square, batches=[None] * 2, steps=3, lr=0.1)
    with pytest.raises(ValueError, match="batch must"):
        index_batches(5, batch=0, generators=generators(1))
    with pytest.raises(ValueError, match="n must"):
        index_batches(0, batch=1, generators=generators(1))
    with pytest.raises(ValueError, match="generators"):
        index_batches(5, batch=1, generators=[])
    with pytest.raises(TypeError, match=r"generators\[1\] must be a torch.Generator, got int"):
        index_batches(5, batch=1, generators=[*generators(1), 0])
    with pytest.raises(TypeError, match="generators must be a sequence"):
        index_batches(5, batch=1, generators=None)


@pytest.mark.bad_input
def test_divergence_in_the_last_step_is_named() -> None:
    with pytest.raises(ValueError, match=r"parameters must stay finite.* after step 0; lower lr"):
        fit(Scalars(1e150), half_square, batches=[None], steps=1, lr=1e300, optimizer="sgd")
