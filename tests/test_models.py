"""Initialisation, independence of ensemble members, and the invariance of the convolutional network."""

import math

import pytest
import torch

from lib.models import ACTIVATIONS, GAINS, EnsembleMLP, mlp


def generators(k: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in range(k)]


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_gains_keep_the_second_moment(activation: str) -> None:
    z = torch.linspace(-12, 12, 200001, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    moment = torch.trapezoid(ACTIVATIONS[activation](z) ** 2 * density, z)
    assert abs(GAINS[activation] - float(moment) ** -0.5) < 1e-12


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_wide_mlp_has_outputs_of_unit_second_moment(activation: str) -> None:
    generator = torch.Generator().manual_seed(0)
    f = mlp([20, 400, 400, 400], generator=generator, activation=activation)
    with torch.no_grad():
        outputs = f(torch.randn(500, 20, generator=generator))
    assert abs(float(outputs.square().mean()) - 1) < 0.15


def test_mlp_is_the_composition_of_its_layers() -> None:
    f = mlp([2, 7, 3], generator=torch.Generator().manual_seed(3), activation="tanh")
    w1, b1, w2, b2 = (p.detach() for p in f.parameters())
    x = torch.tensor([[0.3, -0.8]])
    assert [type(layer).__name__ for layer in f] == ["Linear", "Tanh", "Linear"]
    assert torch.allclose(f(x), torch.tanh(x @ w1.T + b1) @ w2.T + b2, atol=1e-6)
    assert not b1.any()
    assert not b2.any()


def test_constructors_leave_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    mlp([2, 3, 1], generator=torch.Generator().manual_seed(0))
    EnsembleMLP([2, 3, 1], generators=generators(2))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_ensemble_members_are_the_single_networks(activation: str) -> None:
    ensemble = EnsembleMLP([3, 11, 6, 2], generators=generators(4), activation=activation)
    x = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(9))
    for k, generator in enumerate(generators(4)):
        alone = mlp([3, 11, 6, 2], generator=generator, activation=activation)
        assert torch.allclose(ensemble(x)[k], alone(x[k]), atol=1e-6)
        assert torch.allclose(ensemble(x[k])[k], alone(x[k]), atol=1e-6)


def test_gradient_of_a_member_reaches_no_other() -> None:
    ensemble = EnsembleMLP([3, 5, 2], generators=generators(3))
    ensemble(torch.ones(4, 3))[1].square().sum().backward()
    for name, p in ensemble.named_parameters():
        gradient = p.grad.unflatten(0, (3, -1)).flatten(1).abs().amax(1)
        assert gradient[0] == gradient[2] == 0, name
        assert gradient[1] > 0 or "biases" in name, name


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mlp([3], generator=torch.Generator()), ValueError, "sizes"),
        (lambda: mlp([3, 0], generator=torch.Generator()), ValueError, "sizes"),
        (lambda: mlp([3, 2.0], generator=torch.Generator()), TypeError, "sizes"),
        (lambda: mlp([3, 2], generator=torch.Generator(), activation="sine"), ValueError, "activation"),
        (lambda: EnsembleMLP([3, 2], generators=[]), ValueError, "generators"),
        (lambda: mlp([3, 2], generator=None), TypeError, "generator must be a torch.Generator, got NoneType"),
        (lambda: EnsembleMLP([3, 2], generators=[None]), TypeError, r"generators\[0\] must be a torch.Generator"),
        (lambda: EnsembleMLP([3, 2], generators=generators(2))(torch.ones(3)), ValueError, "x must have shape"),
        (lambda: EnsembleMLP([3, 2], generators=generators(2))(torch.ones(4, 2)), ValueError, "x must have shape"),
        (lambda: EnsembleMLP([3, 2], generators=generators(2))(torch.ones(3, 4, 3)), ValueError, r"\[2, b, 3\]"),
        (lambda: EnsembleMLP([3, 2], generators=generators(2))(torch.ones(4, 3).double()), TypeError, "x must be"),
        (lambda: EnsembleMLP([3], generators=generators(1)), ValueError, "sizes"),
        (lambda: EnsembleMLP([3, 2], generators=generators(1), activation="sine"), ValueError, "activation"),
    ],
)
def test_bad_input_is_named(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
