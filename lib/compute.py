"""Where and how the book computes: device, precision, seeds and the work budget."""

import os
import re
from typing import TypeVar

import numpy as np
import torch

from lib.validation import choice, count

Work = TypeVar("Work")

# The seed that `setup` chose; every generator of a chapter descends from it.
_base_seed = 0


def device() -> torch.device:
    """The device for large work: CUDA, then MPS, then the CPU.

    The environment variable ``LIB_DEVICE`` (``cuda``, ``cuda:1``, ``mps``, ``cpu``) overrides the choice.

    Raises:
        RuntimeError: ``LIB_DEVICE`` names a device that this machine does not have; there is no silent fallback.

    >>> device().type in {"cuda", "mps", "cpu"}
    True
    """
    wanted = os.environ.get("LIB_DEVICE")
    if not wanted:
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu")
    try:
        chosen = torch.device(wanted)
    except RuntimeError as error:
        raise RuntimeError(f"LIB_DEVICE={wanted!r} is not a device name that torch knows") from error
    choice("LIB_DEVICE", chosen.type, ("cuda", "mps", "cpu"))
    if chosen.type != "cuda" and chosen.index is not None:
        raise RuntimeError(f"LIB_DEVICE={wanted} but only CUDA devices have numbers")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise RuntimeError(f"LIB_DEVICE={wanted} but torch sees {torch.cuda.device_count()} CUDA devices")
    if chosen.type == "mps" and not _has_mps():
        raise RuntimeError("LIB_DEVICE=mps but torch has no MPS device here")
    return chosen


def _has_mps() -> bool:
    return torch.backends.mps.is_available()


def dtype() -> torch.dtype:
    """The precision of verdicts on :func:`device`: float64, or float32 on MPS, which has no float64."""
    return torch.float32 if device().type == "mps" else torch.float64


def setup(seed: int) -> None:
    """Seed everything a chapter draws and print one line: device, precision, budget, seed.

    ``LIB_SEED`` overrides ``seed``, so that the same chapter can be run again with other draws.

    Raises:
        ValueError: ``LIB_SEED`` or ``seed`` is not a whole number from 0 to 2**63 - 1.
    """
    global _base_seed
    override = os.environ.get("LIB_SEED")
    if override and not re.fullmatch("[0-9]+", override):
        raise ValueError(f"LIB_SEED must be a whole number from 0, got {override!r}")
    name, value = ("LIB_SEED", int(override)) if override else ("seed", seed)
    _base_seed = count(name, value, minimum=0, maximum=2**63 - 1)
    # Library code takes explicit generators; this seeds only what third parties draw by themselves.
    torch.manual_seed(_base_seed)
    np.random.seed(_base_seed % 2**32)  # noqa: NPY002 - the legacy state is what third parties use
    size = budget(cpu="CPU", gpu="GPU")
    print(f"device {device()} | verdicts in {str(dtype()).removeprefix('torch.')} | {size} budget | seed {_base_seed}")


def generator(seed: int) -> torch.Generator:
    """A CPU generator for stream ``seed`` of the chapter; draws are made on the CPU and then moved.

    Streams with different numbers, and the same stream under another :func:`setup` seed, are independent.

    >>> bool((torch.rand(3, generator=generator(1)) == torch.rand(3, generator=generator(1))).all())
    True
    """
    sequence = np.random.SeedSequence((_base_seed, count("seed", seed, minimum=0)))
    return torch.Generator().manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> 1))


def budget(*, cpu: Work, gpu: Work) -> Work:
    """Return ``cpu`` or ``gpu``, the size of the work for the device; ``LIB_BUDGET=cpu|gpu`` overrides.

    >>> budget(cpu=1, gpu=2) in (1, 2)
    True
    """
    wanted = os.environ.get("LIB_BUDGET")
    if wanted:
        choice("LIB_BUDGET", wanted, ("cpu", "gpu"))
    else:
        wanted = "cpu" if device().type == "cpu" else "gpu"
    return cpu if wanted == "cpu" else gpu
