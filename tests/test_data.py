"""Every source serves the same images, and every way in which a source can be broken is an error that says so."""

import gzip
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from lib import data

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
needs_debian = pytest.mark.skipif(
    not (DEBIAN / "train-images-idx3-ubyte.gz").is_file(), reason="Debian's dataset-fashion-mnist is not installed"
)


def idx(array):
    """The IDX file of an array of bytes."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.tobytes()


@pytest.fixture
def arrays():
    """Two small splits in shuffled order of classes; the first two pixels are the class and the file position."""
    rng = np.random.default_rng(0)
    out = {}
    for stem, n in (("train", 40), ("t10k", 20)):
        labels = rng.permutation(np.repeat(np.arange(10), n // 10)).astype(np.uint8)
        images = rng.integers(0, 256, (n, 28, 28)).astype(np.uint8)
        images[:, 0, 0], images[:, 0, 1] = labels, np.arange(n)
        out[f"{stem}-images-idx3-ubyte"], out[f"{stem}-labels-idx1-ubyte"] = images, labels
    return out


@pytest.fixture
def files(arrays):
    return {name: idx(array) for name, array in arrays.items()}


@pytest.fixture
def sandbox(files, tmp_path, monkeypatch):
    """No source but the shipped subset, an empty cache, and the checksums of the small files."""
    for name in ("LIB_DATA_DIR", "LIB_DATA_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LIB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(data, "_DEBIAN", tmp_path / "debian")
    monkeypatch.setattr(data, "_DIGESTS", {name: hashlib.sha256(raw).hexdigest() for name, raw in files.items()})
    return tmp_path


def fill(folder, files, *, pack=gzip.compress, suffix=".gz"):
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (folder / f"{name}{suffix}").write_bytes(pack(raw))
    return folder


@pytest.fixture
def server():
    """A loopback mirror: ``served`` maps a file name to bytes, to a status code, or to (bytes, announced length)."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.rsplit("/", 1)[-1]
            requests.append(name)
            if barrier := waiting.pop(name, None):
                waiting[name] = barrier
                barrier.wait(timeout=60)
            answer = served.get(name, 404)
            if isinstance(answer, int):
                self.send_error(answer)
                return
            body, length = answer if isinstance(answer, tuple) else (answer, len(answer))
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    served, requests, waiting = {}, [], {}
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    httpd.url, httpd.served, httpd.requests, httpd.waiting = (
        f"http://127.0.0.1:{httpd.server_port}/mirror", served, requests, waiting,
    )  # fmt: skip
    yield httpd
    httpd.shutdown()
    httpd.server_close()
    thread.join()


@pytest.fixture
def mirror(server, files):
    server.served.update({f"{name}.gz": gzip.compress(raw) for name, raw in files.items()})
    return server


# The order and the values


def test_order_is_one_image_of_each_class_in_turn(sandbox, arrays, files, capsys):
    fill(sandbox / "debian", files)
    images, labels = data.fashion_mnist("train")
    assert images.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert labels.tolist() == 4 * list(range(10))
    position = (images[:, 0, 1] * 255).round().long()
    source = arrays["train-images-idx3-ubyte"]
    assert torch.equal(images, torch.from_numpy(source.astype(np.float32) / np.float32(255))[position])
    for c in range(10):  # within a class the order of the file is kept, and nothing is missing
        assert position[labels == c].tolist() == np.flatnonzero(arrays["train-labels-idx1-ubyte"] == c).tolist()
    assert capsys.readouterr().out == "Fashion-MNIST: 40 of 60000 train images, source: Debian package\n"


@pytest.mark.parametrize(("split", "available"), [("train", 2000), ("test", 1000)])
def test_shipped_subset(sandbox, split, available, capsys):
    images, labels = data.fashion_mnist(split)
    assert images.shape == (available, 28, 28)
    assert float(images.min()) == 0
    assert float(images.max()) == 1
    assert labels.tolist() == available // 10 * list(range(10))
    # The mean and standard deviation of the complete set are 0.2860 and 0.3530.
    assert abs(float(images.mean()) - 0.2860) < 0.01
    assert abs(float(images.std()) - 0.3530) < 0.01
    half, half_labels = data.fashion_mnist(split, available // 2)
    assert torch.equal(half, images[: available // 2])
    assert torch.equal(half_labels, labels[: available // 2])
    assert capsys.readouterr().out.endswith("source: subset shipped with lib\n")


@needs_debian
@pytest.mark.parametrize(("split", "available"), [("train", 2000), ("test", 1000)])
def test_shipped_subset_is_a_prefix_of_the_complete_set(split, available, monkeypatch, tmp_path):
    monkeypatch.delenv("LIB_DATA_URL", raising=False)
    monkeypatch.setenv("LIB_DATA_DIR", str(DEBIAN))
    complete = data.fashion_mnist(split)
    assert complete[0].shape[0] == {"train": 60000, "test": 10000}[split]
    if split == "train":
        assert abs(float(complete[0].double().mean()) - 0.28604) < 1e-5
    monkeypatch.delenv("LIB_DATA_DIR")
    monkeypatch.setenv("LIB_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(data, "_DEBIAN", tmp_path)
    subset = data.fashion_mnist(split)
    assert torch.equal(subset[0], complete[0][:available])
    assert torch.equal(subset[1], complete[1][:available])


def test_shipped_files_are_small_and_licensed():
    assert data._SUBSET.stat().st_size < 1.31e6
    notice = data._SUBSET.with_name("NOTICE.md").read_text(encoding="utf-8")
    assert "Copyright © 2017 Zalando SE" in notice
    assert hashlib.sha256(data._SUBSET.read_bytes()).hexdigest() in notice


def test_digits_are_those_of_scikit_learn():
    images, labels = data.digits()
    bunch = load_digits()
    assert images.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert np.array_equal(images.numpy() * 16, bunch.images)
    assert np.array_equal(labels.numpy(), bunch.target)


# The order of the sources


def test_order_of_sources(sandbox, files, mirror, monkeypatch, capsys):
    seen = []

    def source():
        data.fashion_mnist("test", 10)
        seen.append(capsys.readouterr().out.split("source: ")[1].strip())

    source()
    assert mirror.requests == []  # nothing is downloaded that was not asked for
    monkeypatch.setenv("LIB_DATA_URL", mirror.url)
    source()
    monkeypatch.delenv("LIB_DATA_URL")
    source()
    fill(sandbox / "debian", files)
    source()
    monkeypatch.setenv("LIB_DATA_DIR", str(fill(sandbox / "mine", files, pack=bytes, suffix="")))
    source()
    assert seen == ["subset shipped with lib", "download", "user cache", "Debian package", "LIB_DATA_DIR"]


def test_all_sources_serve_the_same_images(sandbox, files, mirror, monkeypatch):
    fill(sandbox / "debian", files)
    debian = data.fashion_mnist("train", 20)
    monkeypatch.setattr(data, "_DEBIAN", sandbox / "absent")
    monkeypatch.setenv("LIB_DATA_URL", mirror.url)
    downloaded = data.fashion_mnist("train", 20)
    monkeypatch.setenv("LIB_DATA_DIR", str(fill(sandbox / "mine", files, pack=bytes, suffix="")))
    unpacked = data.fashion_mnist("train", 20)
    for other in (downloaded, unpacked):
        assert torch.equal(debian[0], other[0])
        assert torch.equal(debian[1], other[1])


def test_debian_folder_with_missing_files_is_passed_over(sandbox, files, capsys):
    fill(sandbox / "debian", {name: raw for name, raw in files.items() if "labels" in name})
    data.fashion_mnist("test", 10)
    assert "shipped" in capsys.readouterr().out


# Downloads


def test_download_once(sandbox, mirror, files, capsys):
    folder = data.download_fashion_mnist(base_url=mirror.url + "/")
    assert folder == sandbox / "cache"
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{name}.gz" for name in files)
    assert len(mirror.requests) == 4
    data.download_fashion_mnist(base_url=mirror.url)
    data.fashion_mnist("train", 10, download=True)
    assert len(mirror.requests) == 4
    assert "user cache" in capsys.readouterr().out


def test_download_replaces_a_damaged_file(sandbox, mirror, files):
    name = "t10k-labels-idx1-ubyte"
    fill(sandbox / "cache", files)
    path = sandbox / "cache" / f"{name}.gz"
    path.write_bytes(path.read_bytes()[:-9])
    data.download_fashion_mnist(base_url=mirror.url)
    assert mirror.requests == [f"{name}.gz"]
    assert gzip.decompress(path.read_bytes()) == files[name]


@needs_debian
def test_download_of_the_real_test_images(server, tmp_path, monkeypatch):
    names = [name for name in data._DIGESTS if name.startswith("t10k")]
    server.served.update({f"{name}.gz": (DEBIAN / f"{name}.gz").read_bytes() for name in names})
    monkeypatch.setattr(data, "_DIGESTS", {name: data._DIGESTS[name] for name in names})
    monkeypatch.setattr(data, "_DEBIAN", tmp_path / "absent")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("LIB_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("LIB_DATA_URL", server.url)
    monkeypatch.delenv("LIB_DATA_DIR", raising=False)
    images, labels = data.fashion_mnist("test")
    assert images.shape == (10_000, 28, 28)
    assert torch.bincount(labels).tolist() == [1000] * 10


def test_two_processes_download_at_once(sandbox, mirror, files):
    barrier = threading.Barrier(2)  # the first file is served when both processes have asked for it
    mirror.waiting["train-images-idx3-ubyte.gz"] = barrier
    code = (
        "import json, os; from lib import data; data._DIGESTS = json.loads(os.environ['DIGESTS']); "
        f"data.download_fashion_mnist(base_url={mirror.url!r})"
    )
    environment = os.environ | {"DIGESTS": json.dumps(data._DIGESTS)}
    workers = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], errors
    assert sorted(path.name for path in (sandbox / "cache").iterdir()) == sorted(f"{name}.gz" for name in files)
    for name, raw in files.items():
        assert gzip.decompress((sandbox / "cache" / f"{name}.gz").read_bytes()) == raw


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (404, ConnectionError, r"could not download http://127.*/train-labels-idx1-ubyte.gz: .*404.*LIB_DATA_URL"),
        (503, ConnectionError, "503"),
        ("short", ConnectionError, "IncompleteRead"),
        ("cut", ValueError, "train-labels-idx1-ubyte.gz is damaged or incomplete"),
        ("flipped", ValueError, "damaged"),
        ("other", ValueError, "not Fashion-MNIST: SHA-256"),
        ("page", ValueError, "not Fashion-MNIST: SHA-256"),
    ],
)
def test_broken_mirror_leaves_no_file(sandbox, mirror, files, answer, error, message):
    name = "train-labels-idx1-ubyte"
    good = gzip.compress(files[name])
    answers = {
        "short": (good, len(good) + 10),
        "cut": good[:-12],
        "flipped": good[:20] + bytes([good[20] ^ 255]) + good[21:],
        "other": gzip.compress(files[name] + b"x"),
        "page": b"<html>Sign in to this network</html>",
    }
    mirror.served[f"{name}.gz"] = answers.get(answer, answer)
    with pytest.raises(error, match=message):
        data.download_fashion_mnist(base_url=mirror.url)
    assert [path.name for path in (sandbox / "cache").iterdir()] == ["train-images-idx3-ubyte.gz"]


@pytest.mark.bad_input
def test_unreachable_mirror_is_no_silent_fallback(sandbox, server, monkeypatch):
    server.server_close()
    monkeypatch.setenv("LIB_DATA_URL", server.url)
    with pytest.raises(ConnectionError, match="could not download http://127"):
        data.fashion_mnist("test", 10)


@pytest.mark.bad_input
def test_cache_that_is_no_folder(sandbox, mirror):
    (sandbox / "cache").write_text("a file where the folder should be")
    with pytest.raises(OSError, match=r"cannot write .*; set LIB_CACHE_DIR"):
        data.download_fashion_mnist(base_url=mirror.url)


@pytest.mark.bad_input
def test_cache_without_space_leaves_no_part(sandbox, mirror, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=r"cannot write .*No space left.*LIB_CACHE_DIR"):
        data.download_fashion_mnist(base_url=mirror.url)
    assert list((sandbox / "cache").iterdir()) == []


@pytest.mark.bad_input
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write into a read-only folder")
def test_read_only_cache(sandbox, mirror):
    (sandbox / "cache").mkdir(mode=0o500)
    with pytest.raises(OSError, match=r"cannot write .*LIB_CACHE_DIR"):
        data.download_fashion_mnist(base_url=mirror.url)


# Broken folders and bad arguments


@pytest.mark.bad_input
def test_explicit_folder_must_be_complete(sandbox, files, monkeypatch):
    monkeypatch.setenv("LIB_DATA_DIR", str(sandbox / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"LIB_DATA_DIR .*nowhere.* lacks t10k-images-idx3-ubyte\[.gz\], t10k"):
        data.fashion_mnist("test", 10)
    fill(sandbox / "nowhere", {name: raw for name, raw in files.items() if "images" in name})
    with pytest.raises(FileNotFoundError, match=r"lacks train-labels-idx1-ubyte\[.gz\]; "):
        data.fashion_mnist("train", 10)


@pytest.mark.bad_input
@pytest.mark.parametrize("damage", [lambda raw: raw[:-12], lambda raw: gzip.compress(b"other"), lambda raw: b""])
def test_damaged_file_is_named(sandbox, files, damage):
    fill(sandbox / "debian", files)
    path = sandbox / "debian" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte.gz is damaged"):
        data.fashion_mnist("test", 10)
    assert data.fashion_mnist("train", 10)[0].shape == (10, 28, 28)  # the other split does not suffer


@pytest.mark.bad_input
def test_damaged_subset(sandbox, monkeypatch):
    monkeypatch.setattr(data, "_SUBSET_DIGESTS", data._SUBSET_DIGESTS | {"test_images": 64 * "0"})
    with pytest.raises(ValueError, match=r"test images in .* are damaged"):
        data.fashion_mnist("test", 10)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("validation",), ValueError, "split must be one of 'train', 'test'; got 'validation'"),
        (("train", 15), ValueError, "size must be a multiple of 10 .*, got 15"),
        (("train", 0), ValueError, "size must be at least 10, got 0"),
        (("train", -10), ValueError, "size must be at least 10, got -10"),
        (("train", 10.0), TypeError, "size must be an integer, got float"),
        (("train", True), TypeError, "size must be an integer, got bool"),
        (("train", 5000), ValueError, "at most 2000 for the train images of the subset .*got 5000; .*python -m lib.d"),
    ],
)
def test_bad_arguments(sandbox, arguments, error, message):
    with pytest.raises(error, match=message):
        data.fashion_mnist(*arguments)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/x", "/usr/share", "file:///etc", "http://", "http://[::1", "http://a:b/", "http://a b/"]
)
def test_bad_address(sandbox, url, monkeypatch):
    monkeypatch.setenv("LIB_DATA_URL", url)
    with pytest.raises(ValueError, match=r"LIB_DATA_URL.* must start with http"):
        data.fashion_mnist("test", 10)


@pytest.mark.bad_input
def test_arguments_of_the_wrong_type(sandbox):
    with pytest.raises(TypeError, match="base_url must be a string, got bytes"):
        data.download_fashion_mnist(base_url=b"http://127.0.0.1")
    with pytest.raises(TypeError, match="download must be a bool, got str"):
        data.fashion_mnist("test", 10, download="no")


def test_folders_may_start_with_the_home_folder(sandbox, files, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(sandbox))
    monkeypatch.setenv("LIB_CACHE_DIR", "~/cache")
    fill(sandbox / "cache", files)
    data.fashion_mnist("test", 10)
    monkeypatch.setenv("LIB_DATA_DIR", "~/cache")
    data.fashion_mnist("test", 10)
    assert [line.split("source: ")[1] for line in capsys.readouterr().out.splitlines()] == [
        "user cache",
        "LIB_DATA_DIR",
    ]


# The key of the build cache


def test_data_digest_changes_with_the_data_only(sandbox, files, monkeypatch):
    digests = [data.data_digest()]
    assert data.data_digest() == digests[0]
    fill(sandbox / "cache", {name: raw for name, raw in files.items() if "t10k" in name})
    digests.append(data.data_digest())
    fill(sandbox / "cache", files)
    digests.append(data.data_digest())
    os.utime(sandbox / "cache" / "t10k-labels-idx1-ubyte.gz", ns=(1, 1))
    assert data.data_digest() == digests[-1]  # the content is what its checksum says
    monkeypatch.setenv("LIB_DATA_DIR", str(sandbox / "cache"))  # the printed line differs, so the key must
    digests.append(data.data_digest())
    monkeypatch.setenv("LIB_DATA_DIR", str(sandbox / "absent"))
    digests.append(data.data_digest())
    assert digests[-1] == digests[0]
    subset = sandbox / "subset.npz"
    subset.write_bytes(data._SUBSET.read_bytes() + b"\0")
    monkeypatch.setattr(data, "_SUBSET", subset)
    digests.append(data.data_digest())
    assert len(set(digests)) == 5


def test_data_digest_survives_the_download_that_was_asked_for(sandbox, mirror, monkeypatch):
    subset = data.data_digest()
    monkeypatch.setenv("LIB_DATA_URL", mirror.url)
    before = data.data_digest()
    data.fashion_mnist("test", 10)
    assert subset != before == data.data_digest()
