"""Data sets that several chapters read: Fashion-MNIST and scikit-learn's digits, the same images from every source.

The images of Fashion-MNIST come in one fixed order: the first of class 0, ..., the first of class 9, the second of
class 0, and so on. The subset shipped beside this file is a prefix of that order, so ``fashion_mnist(split, size=k)``
returns the same images on every machine. A chapter therefore asks for a ``size`` that the subset has (2,000 for
training, 1,000 for testing): what it concludes cannot depend on who served the data.
"""

import gzip
import hashlib
import http.client
import os
import re
import tempfile
import urllib.parse
import urllib.request
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
import platformdirs
import torch
from jaxtyping import Float, Int64, UInt8
from sklearn.datasets import load_digits
from torch import Tensor

from lib.validation import choice, count

Split = Literal["train", "test"]
Images = UInt8[np.ndarray, "n 28 28"]
Labels = UInt8[np.ndarray, " n"]

_CLASSES = 10
_TOTAL = {"train": 60_000, "test": 10_000}
_STEM = {"train": "train", "test": "t10k"}
_MIRROR = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_SUBSET = Path(__file__).with_name("datasets") / "fashion_mnist_subset.npz"
_HOW = (
    "for the complete set install Debian's package dataset-fashion-mnist, or run `python -m lib.data` once, "
    "or set LIB_DATA_DIR to a folder with the four IDX files"
)

# SHA-256 of the decompressed files: mirrors pack the same bytes into different gzip streams.
_DIGESTS = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
# SHA-256 of the bytes of the four arrays in the shipped subset.
_SUBSET_DIGESTS = {
    "train_images": "b5fa3456b5f9479594e2e802c50d08500db310b557b0955d78d5a2423ee08812",
    "train_labels": "19efeabbd5fed476d80e2ce2609cdc76c23b9694a1631c6371599ab362810a91",
    "test_images": "e9f89eb06e8c2328785b00abd588a8528d881d7f062acd7b17be736dfe20f1f5",
    "test_labels": "793e48347f02ec9f49b10d30a93de91d185c4cfb957f09d953b1576548404082",
}


def fashion_mnist(
    split: Split, size: int | None = None, *, download: bool = False
) -> tuple[Float[Tensor, "n 28 28"], Int64[Tensor, " n"]]:
    r"""Return images and labels of Fashion-MNIST, class-balanced, in an order that no source changes.

    With :math:`i_c(j)` the position of the :math:`j`-th image of class :math:`c` in the original file, entry
    :math:`10\,j + c` of the result is image :math:`i_c(j)`, for :math:`c = 0, \dots, 9` and :math:`j = 0, 1, \dots`.

    The first of these sources that has the files serves, and one printed line says which:

    1. the folder that ``LIB_DATA_DIR`` names (set but incomplete is an error, never a fallback);
    2. Debian's package ``dataset-fashion-mnist``;
    3. the user's cache, where an earlier download lies (``LIB_CACHE_DIR`` names another folder);
    4. a download into that cache, only if ``download`` is true or ``LIB_DATA_URL`` is set
       (:func:`download_fashion_mnist`): nothing is downloaded that was not asked for;
    5. the subset shipped with ``lib``: 2,000 training and 1,000 test images.

    Args:
        split: ``"train"`` (60,000 images) or ``"test"`` (10,000 images).
        size: number of images, a multiple of 10; the first ``size`` in the order above. ``None``: all that the
            source has, so that the number depends on the source.
        download: download the complete set if no folder has it.

    Returns:
        Images, float32 ``[n, 28, 28]`` in [0, 1] (grey value / 255), and labels, int64 ``[n]`` in 0..9, on the CPU.
        The bytes are verified by SHA-256 and are exactly the published ones. About 0.5 s and 0.3 GB for ``"train"``
        from a complete source, 0.05 s from the shipped subset.

    Raises:
        TypeError: ``size`` is not an integer, or ``download`` not a bool.
        ValueError: ``split`` or ``size`` is not allowed, the source has fewer than ``size`` images, or a file is
            damaged (its checksum differs).
        FileNotFoundError: ``LIB_DATA_DIR`` is set and the files are not all there.
        ConnectionError: the download failed.
        OSError: the cache folder cannot be written.

    Source: Xiao, Rasul and Vollgraf (2017), *Fashion-MNIST: a novel image dataset for benchmarking machine learning
    algorithms*; MIT licence.

    >>> images, labels = fashion_mnist("test", size=20)  # doctest: +ELLIPSIS
    Fashion-MNIST: 20 of 10000 test images, source: ...
    >>> assert images.shape == (20, 28, 28) and labels.tolist() == 2 * list(range(10))
    """
    choice("split", split, ("train", "test"))
    if not isinstance(download, bool):
        raise TypeError(f"download must be a bool, got {type(download).__name__}")
    if size is not None and count("size", size, minimum=_CLASSES) % _CLASSES:
        raise ValueError(f"size must be a multiple of {_CLASSES} (the classes are balanced), got {size}")
    images, labels, source = _load(split, download)
    if size is not None and size > len(labels):
        raise ValueError(
            f"size must be at most {len(labels)} for the {split} images of the {source}, got {size}; {_HOW}"
        )
    images, labels = images[:size], labels[:size]
    print(f"Fashion-MNIST: {len(labels)} of {_TOTAL[split]} {split} images, source: {source}")
    return torch.from_numpy(images.astype(np.float32) / np.float32(255)), torch.from_numpy(labels.astype(np.int64))


def digits() -> tuple[Float[Tensor, "n 8 8"], Int64[Tensor, " n"]]:
    """Return scikit-learn's 1,797 handwritten digits, in the order of the package.

    Returns:
        Images, float32 ``[1797, 8, 8]`` in [0, 1] (grey value / 16, exact), and labels, int64 ``[1797]`` in 0..9.
        Nothing is downloaded: the data are part of scikit-learn. About 0.02 s.

    Source: Alpaydin and Kaynak (1998), *Optical recognition of handwritten digits*, UCI repository (the test set).

    >>> images, labels = digits()
    >>> assert images.shape == (1797, 8, 8) and images.max() == 1 and labels[:10].tolist() == list(range(10))
    """
    bunch = load_digits()
    return torch.from_numpy(bunch.images / 16).float(), torch.from_numpy(bunch.target).long()


def download_fashion_mnist(*, base_url: str | None = None, cache: str | Path | None = None) -> Path:
    """Download the four files of Fashion-MNIST (31 MB) into the user's cache and return the folder.

    Files that are already there and undamaged are kept; damaged ones are replaced. A file appears in the folder
    only when it is complete and its SHA-256 is right, so that an interrupted or parallel run leaves no broken file.

    Args:
        base_url: ``http(s)`` address of a folder with the four ``.gz`` files; by default ``LIB_DATA_URL``, and
            otherwise the address that the authors publish (plain http; the checksums guard the content).
        cache: the folder; by default ``LIB_CACHE_DIR``, and otherwise the platform's cache folder.

    Raises:
        TypeError: ``base_url`` is not a string.
        ValueError: the address is not http(s) or malformed, or what it serves is not Fashion-MNIST (wrong checksum, not
            gzip).
        ConnectionError: a file could not be fetched completely; the message names the address.
        OSError: the folder cannot be written; the message names ``LIB_CACHE_DIR``.
    """
    if base_url is not None and not isinstance(base_url, str):
        raise TypeError(f"base_url must be a string, got {type(base_url).__name__}")
    base = base_url or os.environ.get("LIB_DATA_URL") or _MIRROR
    if not _is_address(base):
        raise ValueError(f"base_url (or LIB_DATA_URL) must start with http:// or https:// and a host, got {base!r}")
    folder = _cache() if cache is None else Path(cache)
    for name in _DIGESTS:
        path = folder / f"{name}.gz"
        if not _is_valid(path, name):
            _store(path, _fetch(f"{base.rstrip('/')}/{name}.gz", name))
    return folder


def data_digest() -> str:
    """Return a short hash of the data that :func:`fashion_mnist` would read now, for the key of a build cache.

    It covers the content of the shipped subset and, for each split, which source serves. A download that
    ``LIB_DATA_URL`` asks for counts as the cache that it fills, so that a run that downloads does not change the hash.
    The files of a complete source do not enter: their checksums leave them no choice, and :func:`fashion_mnist`
    compares these at every reading. Takes about 5 ms, and never fails because of a missing file.

    >>> assert data_digest() == data_digest() and len(data_digest()) == 16
    """
    digest = hashlib.sha256(_SUBSET.read_bytes())
    otherwise = "user cache" if os.environ.get("LIB_DATA_URL") else "subset"
    for split in _STEM:
        complete = (source for source, folder in _folders() if all(_find(folder, name) for name in _names(split)))
        digest.update(f"{split} {next(complete, otherwise)}\n".encode())
    return digest.hexdigest()[:16]


def _load(split: Split, download: bool) -> tuple[Images, Labels, str]:
    names = _names(split)
    for source, folder in _folders():
        paths = [_find(folder, name) for name in names]
        if all(paths):
            images, labels = (_read(path, name) for path, name in zip(paths, names, strict=True) if path)
            return *_interleave(images, labels), source
        if source == "LIB_DATA_DIR":
            missing = ", ".join(f"{name}[.gz]" for path, name in zip(paths, names, strict=True) if path is None)
            raise FileNotFoundError(f"LIB_DATA_DIR is set to {str(folder)!r} but lacks {missing}; correct or unset it")
    if download or os.environ.get("LIB_DATA_URL"):
        folder = download_fashion_mnist()
        images, labels = (_read(folder / f"{name}.gz", name) for name in names)
        return *_interleave(images, labels), "download"
    return *_read_subset(split), "subset shipped with lib"


def _names(split: str) -> list[str]:
    return [f"{_STEM[split]}-images-idx3-ubyte", f"{_STEM[split]}-labels-idx1-ubyte"]


def _is_address(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # read to be checked
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and re.fullmatch("[!-~]+", url) is not None


def _folders() -> list[tuple[str, Path]]:
    """Folders that may hold the complete set, in the order in which they are asked."""
    explicit = os.environ.get("LIB_DATA_DIR")
    if explicit:
        return [("LIB_DATA_DIR", Path(explicit).expanduser())]
    return [("Debian package", _DEBIAN), ("user cache", _cache())]


def _cache() -> Path:
    explicit = os.environ.get("LIB_CACHE_DIR")
    return Path(explicit).expanduser() if explicit else platformdirs.user_cache_path("generalization-measured")


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _interleave(images: Images, labels: Labels) -> tuple[Images, Labels]:
    """The order that :func:`fashion_mnist` documents: one image of each class in turn."""
    position = np.stack([np.flatnonzero(labels == c) for c in range(_CLASSES)], axis=1).ravel()
    return images[position], labels[position]


def _read(path: Path, name: str) -> UInt8[np.ndarray, "..."]:
    """The array in the IDX file ``name``, which lies at ``path``, verified."""
    raw = _decode(path.read_bytes(), name, origin=str(path))
    if "images" in name:
        return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28)
    return np.frombuffer(raw, np.uint8, offset=8)


def _decode(raw: bytes, name: str, *, origin: str) -> bytes:
    """Decompress if needed, then compare with the published checksum; the header needs no other check."""
    try:
        data = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{origin} is damaged or incomplete ({error}); delete it, then {_HOW}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != _DIGESTS[name]:
        raise ValueError(
            f"{origin} is damaged or not Fashion-MNIST: SHA-256 of the decompressed bytes is {found[:16]}..., "
            f"must be {_DIGESTS[name][:16]}...; delete it, then {_HOW}"
        )
    return data


def _is_valid(path: Path, name: str) -> bool:
    try:
        _decode(path.read_bytes(), name, origin=str(path))
    except (OSError, ValueError):
        return False
    return True


def _read_subset(split: Split) -> tuple[Images, Labels]:
    with np.load(_SUBSET, allow_pickle=False) as archive:
        arrays = {kind: archive[f"{split}_{kind}"] for kind in ("images", "labels")}
    for kind, array in arrays.items():
        if hashlib.sha256(array.tobytes()).hexdigest() != _SUBSET_DIGESTS[f"{split}_{kind}"]:
            raise ValueError(f"the {split} {kind} in {_SUBSET} are damaged (wrong SHA-256); install lib again")
    return arrays["images"], arrays["labels"]


def _fetch(url: str, name: str) -> bytes:
    """The bytes at ``url`` as they came, after a check that they are the file ``name``."""
    try:
        # read() without a size is the only form that notices a body shorter than its Content-Length.
        with urllib.request.urlopen(url, timeout=60) as response:
            raw: bytes = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionError(f"could not download {url}: {error}; set LIB_DATA_URL to another mirror") from error
    _decode(raw, name, origin=url)
    return raw


def _store(path: Path, raw: bytes) -> None:
    """Write ``raw`` at ``path``, all of it or nothing; safe beside other processes that do the same."""
    part: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, suffix=".part", delete=False) as handle:
            part = Path(handle.name)
            handle.write(raw)
        part.chmod(0o644)
        os.replace(part, path)
    except OSError as error:
        raise OSError(f"cannot write {path} ({error}); set LIB_CACHE_DIR to a folder that can be written") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


if __name__ == "__main__":
    print(f"Fashion-MNIST is complete in {download_fashion_mnist()}")
