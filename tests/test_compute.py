"""The lowest floor: device, seeds and budget, and the one wording of every error message."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from lib import compute, validation

SETTINGS = ("LIB_DEVICE", "LIB_BUDGET", "LIB_SEED")


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compute, "_base_seed", 0)


# --- compute ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "mps", "device", "dtype", "budget"),
    [
        (True, True, "cuda", torch.float64, "gpu"),
        (False, True, "mps", torch.float32, "gpu"),
        (False, False, "cpu", torch.float64, "cpu"),
    ],
)
def test_device_is_the_fastest_there_is(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, device: str, dtype: torch.dtype, budget: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(compute, "_has_mps", lambda: mps)
    assert compute.device() == torch.device(device)
    assert compute.dtype() is dtype
    assert compute.budget(cpu="cpu", gpu="gpu") == budget


def test_settings_override_device_and_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LIB_DEVICE", "cpu")
    assert compute.device().type == "cpu"
    assert compute.budget(cpu=1, gpu=2) == 1
    monkeypatch.setenv("LIB_BUDGET", "gpu")
    assert compute.budget(cpu=1, gpu=2) == 2


def test_a_device_with_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LIB_DEVICE", "cuda:1")
    assert compute.device() == torch.device("cuda", 1)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("cuda", RuntimeError, "LIB_DEVICE=cuda but torch sees 0 CUDA devices"),
        ("cuda:3", RuntimeError, "LIB_DEVICE=cuda:3 but torch sees 0 CUDA devices"),
        ("mps", RuntimeError, "LIB_DEVICE=mps but torch has no MPS device here"),
        ("cpu:3", RuntimeError, "LIB_DEVICE=cpu:3 but only CUDA devices have numbers"),
        ("gpu", RuntimeError, "LIB_DEVICE='gpu' is not a device name that torch knows"),
        ("meta", ValueError, "LIB_DEVICE must be one of 'cuda', 'mps', 'cpu'; got 'meta'"),
    ],
)
def test_no_silent_fallback(monkeypatch: pytest.MonkeyPatch, name: str, error: type[Exception], message: str) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(compute, "_has_mps", lambda: False)
    monkeypatch.setenv("LIB_DEVICE", name)
    with pytest.raises(error) as caught:
        compute.device()
    assert str(caught.value) == message


@pytest.mark.bad_input
def test_budget_has_two_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIB_BUDGET", "tpu")
    with pytest.raises(ValueError, match="LIB_BUDGET must be one of 'cpu', 'gpu'; got 'tpu'"):
        compute.budget(cpu=1, gpu=2)


def test_setup_prints_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LIB_DEVICE", "cpu")
    compute.setup(5)
    assert capsys.readouterr().out == "device cpu | verdicts in float64 | CPU budget | seed 5\n"
    monkeypatch.setenv("LIB_SEED", "7")
    monkeypatch.setenv("LIB_BUDGET", "gpu")
    compute.setup(5)
    assert capsys.readouterr().out == "device cpu | verdicts in float64 | GPU budget | seed 7\n"


def test_streams_repeat_and_differ() -> None:
    def draws(seed: int, stream: int) -> torch.Tensor:
        compute.setup(seed)
        return torch.rand(4, dtype=torch.float64, generator=compute.generator(stream))

    first = draws(0, 1)
    assert torch.equal(first, draws(0, 1))
    # (0, 1) and (1, 0) too: a stream is a pair, not a sum.
    others = [draws(0, 2), draws(1, 1), draws(1, 0), draws(0, 0), draws(2, 1)]
    for index, other in enumerate(others):
        assert not torch.equal(first, other)
        assert not any(torch.equal(other, another) for another in others[:index])


def test_streams_are_uncorrelated() -> None:
    draws = torch.stack(
        [torch.randn(4000, dtype=torch.float64, generator=compute.generator(stream)) for stream in range(8)]
    )
    correlations = torch.corrcoef(draws) - torch.eye(8, dtype=torch.float64)
    assert correlations.abs().max() < 4.5 / math.sqrt(4000)


def test_generator_is_on_the_cpu_and_fresh() -> None:
    generator = compute.generator(3)
    assert generator.device.type == "cpu"
    torch.rand(1, generator=generator)
    assert not torch.equal(generator.get_state(), compute.generator(3).get_state())


def test_setup_seeds_third_parties() -> None:
    compute.setup(1)
    first = torch.rand(2)
    compute.setup(1)
    assert torch.equal(first, torch.rand(2))
    compute.setup(2)
    assert not torch.equal(first, torch.rand(2))


def test_library_seed_zero_is_a_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LIB_SEED", "0")
    compute.setup(5)
    assert capsys.readouterr().out.endswith("seed 0\n")


@pytest.mark.bad_input
@pytest.mark.parametrize("value", ["-1", "1.5", "one", " ", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT FIVE}"])
def test_bad_seed_in_the_environment(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("LIB_SEED", value)
    with pytest.raises(ValueError, match=f"LIB_SEED must be a whole number from 0, got '{value}'"):
        compute.setup(0)


@pytest.mark.bad_input
def test_the_largest_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    compute.setup(2**63 - 1)
    with pytest.raises(ValueError, match=r"^seed must be between 0 and 9223372036854775807"):
        compute.setup(2**63)
    monkeypatch.setenv("LIB_SEED", str(2**63))
    with pytest.raises(ValueError, match="LIB_SEED must be between 0 and 9223372036854775807"):
        compute.setup(0)


@pytest.mark.bad_input
@pytest.mark.parametrize("call", [compute.setup, compute.generator])
def test_bad_seed(call: Any) -> None:
    with pytest.raises(ValueError, match=r"seed must be (at least 0|between 0 and \d+), got -1"):
        call(-1)
    with pytest.raises(TypeError, match="seed must be an integer, got float"):
        call(1.0)


# --- validation -------------------------------------------------------------------------------------------------------

CLOUD = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], dtype=torch.float64)


def test_sound_values_come_back_as_they_are() -> None:
    assert validation.finite("x", CLOUD) is CLOUD
    assert validation.finite("x", torch.tensor(1.0), ndim=0).item() == 1.0
    assert validation.points("x", CLOUD, dim=2, min_rows=3) is CLOUD
    assert validation.count("k", 3, minimum=3, maximum=3) == 3
    assert validation.number("t", 2) == 2.0
    assert isinstance(validation.number("t", 2), float)
    assert validation.number("t", 0.0, at_least=0.0) == 0.0
    assert validation.choice("way", "up", ("up", "down")) == "up"
    validation.matching("x", CLOUD, "y", CLOUD[:1])
    stream = torch.Generator()
    assert validation.generator("generator", stream) is stream
    assert validation.generators("generators", (stream, stream)) == [stream, stream]
    assert validation.floating("dtype", torch.float32) is torch.float32


BAD: list[tuple[Any, type[Exception], str]] = [
    (
        lambda: validation.number("t", 10**400),
        ValueError,
        "t must be a number that fits a float, got an integer of 1329 bits",
    ),
    (
        lambda: validation.choice("way", np.ones(2), ("up", "down")),
        ValueError,
        "way must be one of 'up', 'down'; got array([1., 1.])",
    ),
    (
        lambda: validation.choice("way", torch.ones(2), (1, 2)),
        ValueError,
        "way must be one of 1, 2; got tensor([1., 1.])",
    ),
    (lambda: validation.generator("generator", None), TypeError, "generator must be a torch.Generator, got NoneType"),
    (lambda: validation.generators("g", [3]), TypeError, "g[0] must be a torch.Generator, got int"),
    (lambda: validation.generators("g", []), ValueError, "the number of g must be at least 1, got 0"),
    (lambda: validation.generators("g", None), TypeError, "g must be a sequence of torch.Generator, got NoneType"),
    (
        lambda: validation.floating("dtype", torch.int64),
        TypeError,
        "dtype must be a floating-point torch.dtype, got torch.int64",
    ),
    (lambda: validation.finite("x", [1.0]), TypeError, "x must be a torch.Tensor, got list"),
    (
        lambda: validation.finite("x", torch.tensor([1])),
        TypeError,
        "x must hold real floating-point numbers, got torch.int64",
    ),
    (
        lambda: validation.finite("x", torch.tensor([True])),
        TypeError,
        "x must hold real floating-point numbers, got torch.bool",
    ),
    (
        lambda: validation.finite("x", torch.tensor([1j])),
        TypeError,
        "x must hold real floating-point numbers, got torch.complex64",
    ),
    (lambda: validation.finite("x", CLOUD, ndim=1), ValueError, "x must have 1 axes, got shape (3, 2)"),
    (lambda: validation.finite("x", CLOUD, min_size=4), ValueError, "x must have at least 4 rows, got shape (3, 2)"),
    (lambda: validation.finite("x", torch.empty(0)), ValueError, "x must have at least 1 rows, got shape (0,)"),
    (lambda: validation.finite("x", torch.empty(2, 0)), ValueError, "x must not be empty, got shape (2, 0)"),
    (lambda: validation.finite("x", torch.tensor([math.nan])), ValueError, "x must be finite, got NaN or infinity"),
    (lambda: validation.finite("x", torch.tensor([-math.inf])), ValueError, "x must be finite, got NaN or infinity"),
    (lambda: validation.points("x", CLOUD[0]), ValueError, "x must have 2 axes, got shape (2,)"),
    (lambda: validation.points("x", CLOUD, dim=3), ValueError, "x must have 3 columns, got shape (3, 2)"),
    (lambda: validation.points("x", CLOUD, min_rows=5), ValueError, "x must have at least 5 rows, got shape (3, 2)"),
    (
        lambda: validation.matching("x", CLOUD, "y", CLOUD[:, :1]),
        ValueError,
        "y must have as many columns as x (2), got 1",
    ),
    (
        lambda: validation.matching("x", CLOUD, "y", CLOUD.float()),
        TypeError,
        "y must have the dtype of x (torch.float64), got torch.float32",
    ),
    (
        lambda: validation.matching("x", CLOUD, "y", CLOUD.to("meta")),
        ValueError,
        "y must be on the device of x (cpu), got meta",
    ),
    (lambda: validation.count("k", 1.0), TypeError, "k must be an integer, got float"),
    (lambda: validation.count("k", True), TypeError, "k must be an integer, got bool"),
    (lambda: validation.count("k", 0), ValueError, "k must be at least 1, got 0"),
    (lambda: validation.count("k", 5, maximum=4), ValueError, "k must be between 1 and 4, got 5"),
    (lambda: validation.number("t", "1"), TypeError, "t must be a real number, got str"),
    (lambda: validation.number("t", False), TypeError, "t must be a real number, got bool"),
    (lambda: validation.number("t", math.nan), ValueError, "t must be finite, got nan"),
    (lambda: validation.number("t", math.inf), ValueError, "t must be finite, got inf"),
    (lambda: validation.number("t", 0, above=0), ValueError, "t must be greater than 0, got 0"),
    (lambda: validation.number("t", -1, at_least=0), ValueError, "t must be at least 0, got -1"),
    (lambda: validation.number("t", 1.0, below=1.0), ValueError, "t must be less than 1.0, got 1.0"),
    (
        lambda: validation.choice("way", "left", ("up", "down")),
        ValueError,
        "way must be one of 'up', 'down'; got 'left'",
    ),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("call", "error", "message"), BAD, ids=[message for _, _, message in BAD])
def test_error_names_the_argument_what_came_and_what_is_allowed(
    call: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message
