"""Checks of arguments: one wording for every error, naming the argument, what came and what is allowed."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def finite(name: str, value: Any, *, ndim: int | None = None, min_size: int = 1) -> Tensor:
    """Return ``value`` if it is a real floating tensor without NaN or infinity.

    Args:
        name: name of the argument, as the caller's user knows it.
        value: what the user passed.
        ndim: the number of axes that is allowed; any number if omitted.
        min_size: the least number of entries along the first axis.

    Raises:
        TypeError: ``value`` is no tensor, or integer, boolean or complex.
        ValueError: wrong number of axes, too few entries, NaN or infinity.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if not value.is_floating_point():
        raise TypeError(f"{name} must hold real floating-point numbers, got {value.dtype}")
    if ndim is not None and value.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {tuple(value.shape)}")
    if value.ndim and value.shape[0] < min_size:
        raise ValueError(f"{name} must have at least {min_size} rows, got shape {tuple(value.shape)}")
    if value.numel() == 0:
        raise ValueError(f"{name} must not be empty, got shape {tuple(value.shape)}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return value


def points(name: str, value: Any, *, dim: int | None = None, min_rows: int = 1) -> Tensor:
    """Return ``value`` if it is an ``[n, dim]`` cloud of finite points; errors as in :func:`finite`."""
    tensor = finite(name, value, ndim=2, min_size=min_rows)
    if dim is not None and tensor.shape[1] != dim:
        raise ValueError(f"{name} must have {dim} columns, got shape {tuple(tensor.shape)}")
    return tensor


def matching(first: str, a: Tensor, second: str, b: Tensor) -> None:
    """Require that two clouds live in one space: the same columns, dtype and device."""
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"{second} must have as many columns as {first} ({a.shape[-1]}), got {b.shape[-1]}")
    if a.dtype != b.dtype:
        raise TypeError(f"{second} must have the dtype of {first} ({a.dtype}), got {b.dtype}")
    if a.device != b.device:
        raise ValueError(f"{second} must be on the device of {first} ({a.device}), got {b.device}")


def count(name: str, value: Any, *, minimum: int = 1, maximum: int | None = None) -> int:
    """Return ``value`` if it is an integer in ``[minimum, maximum]``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if value < minimum or (maximum is not None and value > maximum):
        allowed = f"at least {minimum}" if maximum is None else f"between {minimum} and {maximum}"
        raise ValueError(f"{name} must be {allowed}, got {value}")
    return value


def number(
    name: str, value: Any, *, above: float | None = None, at_least: float | None = None, below: float | None = None
) -> float:
    """Return ``value`` as a float if it is finite and in the stated range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a real number, got {type(value).__name__}")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise ValueError(f"{name} must be a number that fits a float, got an integer of {value.bit_length()} bits")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    if above is not None and not value > above:
        raise ValueError(f"{name} must be greater than {above}, got {value}")
    if at_least is not None and not value >= at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    if below is not None and not value < below:
        raise ValueError(f"{name} must be less than {below}, got {value}")
    return float(value)


def choice(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return ``value`` if it is one of ``allowed``."""
    try:
        known = value in allowed
    except (TypeError, ValueError, RuntimeError):  # an array has no single truth value
        known = False
    if not known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
    return value


def generator(name: str, value: Any) -> torch.Generator:
    """Return ``value`` if it is a random generator: no draw may fall back to the global one."""
    if not isinstance(value, torch.Generator):
        raise TypeError(f"{name} must be a torch.Generator, got {type(value).__name__}")
    return value


def generators(name: str, value: Any) -> list[torch.Generator]:
    """Return ``value`` as a list if it is a sequence of one or more random generators."""
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a sequence of torch.Generator, got {type(value).__name__}")
    count(f"the number of {name}", len(value))
    return [generator(f"{name}[{i}]", one) for i, one in enumerate(value)]


def floating(name: str, value: Any) -> torch.dtype:
    """Return ``value`` if it is a real floating dtype."""
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise TypeError(f"{name} must be a floating-point torch.dtype, got {value!r}")
    return value
