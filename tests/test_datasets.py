"""Data sets: what is stated, what is read, and what is said when a file is missing or wrong."""

import gzip
import hashlib
import http.server
import io
import json
import os
import sys
import tarfile
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedlib import datasets
from fedlib.datasets import registry

PIL_Image = pytest.importorskip("PIL.Image")

EMBEDDED = ("mnist5k", "boston", "digits", "wine", "breast_cancer", "diabetes")
DATA = os.environ.get("FEDLIB_DATA")
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """Keep every test off the user's folders, off Debian's package and off proxies."""
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(registry, "_DEBIAN", tmp_path / "no-such-package")


def digest(content, algorithm="sha256"):
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def restate(monkeypatch, name, files, **changes):
    """Replace what a set states, to fit the small files that a test makes."""
    loader, info = registry.REGISTRY[name]
    checksums = {path: digest(content, "md5") for path, content in files.items()}
    monkeypatch.setitem(registry.REGISTRY, name, (loader, replace(info, checksums=checksums, **changes)))


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def put_all(root, files):
    for path, content in files.items():
        put(root / path, content)


# ---- packages, and what is stated ----


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_sets_match_their_stats(name):
    arrays, info = datasets.load(name), datasets.stats(name)
    assert arrays.stats == info and {"x", "y"} <= set(info.checksums)
    assert arrays.x.shape == (info.rows, *info.shape) and arrays.y.shape == (info.rows,)
    assert arrays.x_test is None and arrays.y_test is None and arrays.writer is None
    assert arrays.x.dtype == (np.uint8 if len(info.shape) == 3 else np.float32)
    assert arrays.y.dtype == (np.float32 if info.classes is None else np.int64)
    if info.classes:
        assert set(arrays.y) == set(range(info.classes))
    if len(info.shape) == 1:
        assert len(set(arrays.columns)) == info.shape[0]
    else:
        assert arrays.x.max() == 255 and arrays.x.min() == 0


def test_a_changed_package_is_said(monkeypatch):
    from sklearn import datasets as sklearn_datasets

    bunch = sklearn_datasets.load_wine()
    bunch.data[0, 0] += 1
    monkeypatch.setattr(sklearn_datasets, "load_wine", lambda: bunch)
    with pytest.raises(ValueError, match=r"wine: x has checksum .*, expected sha256:fdd1a1.*installed package"):
        datasets.load("wine")


def test_a_missing_package_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        datasets.load("wine")


def test_stats_are_complete():
    for info in map(datasets.stats, datasets.names()):
        assert info.rows > 0 and info.source.startswith("http") and info.licence
        assert info.checksums, "every set has something to verify"
        for value in info.checksums.values():
            algorithm, _, code = value.partition(":")
            assert len(bytes.fromhex(code)) == {"sha256": 32, "md5": 16}[algorithm]
    with pytest.raises(ValueError, match="unknown data set 'mnist5'; known: mnist5k, boston"):
        datasets.load("mnist5")


def test_torchvision_states_the_same_addresses_and_checksums():
    sets = pytest.importorskip("torchvision").datasets
    published = {
        "mnist": [(sets.MNIST.mirrors[0] + file, f"MNIST/raw/{file}", md5) for file, md5 in sets.MNIST.resources],
        "fashion_mnist": [
            (sets.FashionMNIST.mirrors[0] + file, f"FashionMNIST/raw/{file}", md5)
            for file, md5 in sets.FashionMNIST.resources
        ],
        "qmnist": [
            (url, f"QMNIST/raw/{url.rsplit('/', 1)[1]}", md5)
            for split in ("train", "test")
            for url, md5 in sets.QMNIST.resources[split]
        ],
    }
    for name, files in published.items():
        stated = {k: v for k, v in datasets.stats(name).checksums.items() if v.startswith("md5")}
        assert stated == {path: f"md5:{md5}" for _, path, md5 in files}
        assert [url for url, *_ in files] == [registry._ADDRESSES[name] + Path(path).name for path in stated]


# ---- digits and photos, on small generated files ----


def idx(array):
    code = {"uint8": 8, "int32": 12}[array.dtype.name]
    header = bytes([0, 0, code, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def make_digits(monkeypatch, name):
    """Files of a small set, by their paths, and the arrays that they hold."""
    arrays = []
    for count in (7, 4):
        arrays.append(RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8))
        labels = RNG.integers(0, 10, count).astype(np.uint8)
        if name == "qmnist":
            columns = [labels, labels * 0 + 4, np.arange(count) + 2100, *[labels] * 5]
            labels = np.stack(columns, 1).astype(np.int32)
        arrays.append(labels)
    paths = [path for path in datasets.stats(name).checksums if "/" in path]
    files = {path: gzip.compress(idx(array)) for path, array in zip(paths, arrays, strict=True)}
    restate(monkeypatch, name, files, rows=7, test_rows=4)
    return files, arrays


@pytest.mark.parametrize("name", ["mnist", "qmnist"])
def test_digits(monkeypatch, tmp_path, name):
    files, (x, y, x_test, y_test) = make_digits(monkeypatch, name)
    put_all(tmp_path, files)
    before = sorted(tmp_path.rglob("*"))
    arrays = datasets.load(name)
    assert sorted(tmp_path.rglob("*")) == before, "a load without download writes nothing"
    np.testing.assert_array_equal(arrays.x[:, 0], x)
    np.testing.assert_array_equal(arrays.x_test[:, 0], x_test)
    if name == "qmnist":
        np.testing.assert_array_equal(arrays.writer, y[:, 2])
        np.testing.assert_array_equal(arrays.writer_test, y_test[:, 2])
        assert arrays.writer.dtype == np.int64
        y, y_test = y[:, 0], y_test[:, 0]
    np.testing.assert_array_equal(arrays.y, y)
    np.testing.assert_array_equal(arrays.y_test, y_test)
    assert (arrays.x.dtype, arrays.y.dtype, arrays.y_test.dtype) == (np.uint8, np.int64, np.int64)


def test_qmnist_agrees_with_torchvision(monkeypatch, tmp_path):
    sets = pytest.importorskip("torchvision").datasets
    files, _ = make_digits(monkeypatch, "qmnist")
    put_all(tmp_path, files)
    put_all(tmp_path, {path[:-3]: gzip.decompress(content) for path, content in files.items()})
    theirs, ours = sets.QMNIST(tmp_path, what="test", compat=False), datasets.load("qmnist")
    np.testing.assert_array_equal(ours.writer_test, theirs.targets[:, 2].numpy())
    np.testing.assert_array_equal(ours.y_test, theirs.targets[:, 0].numpy())


def test_fashion_mnist_from_debian(monkeypatch, tmp_path):
    """Its archives have other headers, hence other checksums: the arrays are verified."""
    files, (x, *_) = make_digits(monkeypatch, "fashion_mnist")
    loader, info = registry.REGISTRY["fashion_mnist"]
    checksums = info.checksums | {"x": digest(x.tobytes())}
    monkeypatch.setitem(registry.REGISTRY, "fashion_mnist", (loader, replace(info, checksums=checksums)))
    monkeypatch.setattr(registry, "_DEBIAN", tmp_path / "debian")
    for path, content in files.items():
        put(tmp_path / "debian" / Path(path).name, gzip.compress(gzip.decompress(content), 1, mtime=1))
    np.testing.assert_array_equal(datasets.load("fashion_mnist", tmp_path / "empty", download=True).x[:, 0], x)
    put(tmp_path / "debian/train-images-idx3-ubyte.gz", gzip.compress(idx(x[::-1])))
    with pytest.raises(ValueError, match="fashion_mnist: x has checksum .*, expected"):
        datasets.load("fashion_mnist", tmp_path / "empty")


def make_cifar10(monkeypatch):
    x, y = RNG.integers(0, 256, (6, 2, 3072), dtype=np.uint8), RNG.integers(0, 10, (6, 2), dtype=np.uint8)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
            content = np.concatenate([y[number][:, None], x[number]], 1).tobytes()
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    files = {"cifar-10-binary.tar.gz": archive.getvalue()}
    restate(monkeypatch, "cifar10", files, rows=10, test_rows=2)
    return files, x.reshape(-1, 3, 32, 32), y.reshape(-1)


def test_cifar10(monkeypatch, tmp_path):
    files, x, y = make_cifar10(monkeypatch)
    put_all(tmp_path, files)
    arrays = datasets.load("cifar10")
    np.testing.assert_array_equal(np.concatenate([arrays.x, arrays.x_test]), x)
    np.testing.assert_array_equal(np.concatenate([arrays.y, arrays.y_test]), y)
    assert (len(arrays.x), arrays.x.dtype, arrays.y.dtype) == (10, np.uint8, np.int64)


def test_cifar10_is_verified_before_it_is_read(monkeypatch, tmp_path):
    (path,) = make_cifar10(monkeypatch)[0]
    put(tmp_path / path, b"another archive")
    with pytest.raises(ValueError, match=r"tar\.gz has checksum md5:\w+, expected md5:"):
        datasets.load("cifar10")


def test_cifar10_jpeg(monkeypatch, tmp_path):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:xz") as tar:
        names = ("train/truck/0000", "train/airplane/0001", "train/airplane/0000", "test/truck/0000")
        for number, name in enumerate(names):
            file = io.BytesIO()
            PIL_Image.fromarray(np.full((32, 32, 3), 50 * number, np.uint8)).save(file, "JPEG", quality=95)
            entry = tarfile.TarInfo(f"{name}.jpg")
            entry.size = len(file.getvalue())
            tar.addfile(entry, io.BytesIO(file.getvalue()))
    files = {"cifar10_jpeg.tar.xz": archive.getvalue()}
    restate(monkeypatch, "cifar10_jpeg", files, rows=3, test_rows=1, classes=2)
    put_all(tmp_path, files)
    arrays = datasets.load("cifar10_jpeg")
    assert arrays.x.shape == (3, 3, 32, 32) and arrays.x.dtype == np.uint8
    assert arrays.x[:, 0, 5, 5].tolist() == [100, 50, 0] and arrays.x_test[0, 0, 5, 5] == 150
    assert arrays.y.tolist() == [0, 0, 1] and arrays.y_test.tolist() == [1]


def test_mnist10k(monkeypatch, tmp_path):
    made, files = [], {}
    for name, rows in zip(datasets.stats("mnist10k").checksums, (5, 3), strict=True):
        x, writer = RNG.integers(0, 256, (rows, 28, 28), dtype=np.uint8), np.arange(rows, dtype=np.int16) + 40
        file = io.BytesIO()
        np.savez_compressed(file, x=x, y=np.arange(rows, dtype=np.uint8), writer=writer)
        made, files = [*made, (x, writer)], files | {name: file.getvalue()}
    restate(monkeypatch, "mnist10k", files, rows=5, test_rows=3)
    put_all(tmp_path, files)
    arrays, ((x, writer), (x_test, writer_test)) = datasets.load("mnist10k"), made
    np.testing.assert_array_equal(arrays.x[:, 0], x)
    np.testing.assert_array_equal(arrays.x_test[:, 0], x_test)
    np.testing.assert_array_equal(arrays.writer, writer)
    np.testing.assert_array_equal(arrays.writer_test, writer_test)
    assert arrays.y.dtype == arrays.writer.dtype == np.int64


def test_femnist300(monkeypatch, tmp_path):
    (x, y), writer, split = characters(6), np.array([0, 0, 0, 1, 1, 299], np.uint16), np.array([0, 1, 0, 0, 1, 0])
    file = io.BytesIO()
    np.savez_compressed(file, x=x, y=y.astype(np.uint8), writer=writer, split=split.astype(np.uint8))
    files = {name: file.getvalue() for name in datasets.stats("femnist300").checksums}
    restate(monkeypatch, "femnist300", files, rows=4, test_rows=2)
    put_all(tmp_path, files)
    arrays = datasets.load("femnist300")
    np.testing.assert_array_equal(arrays.x[:, 0], x[[0, 2, 3, 5]])
    np.testing.assert_array_equal(arrays.x_test[:, 0], x[[1, 4]])
    assert arrays.y.tolist() == y[[0, 2, 3, 5]].tolist() and arrays.y_test.tolist() == y[[1, 4]].tolist()
    assert arrays.writer.tolist() == [0, 0, 1, 299] and arrays.writer_test.tolist() == [0, 1]
    assert arrays.y.dtype == arrays.writer.dtype == arrays.writer_test.dtype == np.int64


# ---- UCI's tables ----

WINE = {
    "winequality-red.csv": b'"fixed acidity";"pH";"quality"\n7.4;3.5;3\n7.8;3.2;9\n',
    "winequality-white.csv": b'"fixed acidity";"pH";"quality"\n7;3;6\n',
}


def test_wine_quality(monkeypatch, tmp_path):
    restate(monkeypatch, "wine_quality", WINE, rows=3, shape=(2,))
    put_all(tmp_path, WINE)
    arrays = datasets.load("wine_quality")
    assert arrays.columns == ("fixed acidity", "pH") and arrays.x.dtype == np.float32
    np.testing.assert_array_equal(arrays.x, np.float32([[7.4, 3.5], [7.8, 3.2], [7, 3]]))
    assert arrays.y.tolist() == [0, 6, 3] and arrays.y.dtype == np.int64


def test_obesity(monkeypatch, tmp_path):
    lines = [
        "Gender,Age,FAVC,CAEC,CALC,MTRANS,NObeyesdad",
        "Female,21.5,no,Sometimes,no,Bike,Insufficient_Weight",
        "Male,30,yes,Always,Frequently,Walking,Obesity_Type_III",
    ]
    files = {"ObesityDataSet_raw_and_data_sinthetic.csv": "\n".join(lines).encode()}
    restate(monkeypatch, "obesity", files, rows=2, shape=(8,))
    put_all(tmp_path, files)
    arrays = datasets.load("obesity")
    names = ("Gender=Female", "Gender=Male", "Age", "FAVC", "CAEC", "CALC", "MTRANS=Bike", "MTRANS=Walking")
    assert arrays.columns == names
    np.testing.assert_array_equal(arrays.x, [[1, 0, 21.5, 0, 1, 0, 1, 0], [0, 1, 30, 1, 3, 2, 0, 1]])
    assert arrays.y.tolist() == [0, 6] and arrays.x.dtype == np.float32


# ---- FEMNIST: LEAF's JSON and Flower's parquet ----


def characters(count):
    """Draw images as FEMNIST's, with white paper, and their classes."""
    images = RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    images[:, :4] = 255
    return images, RNG.integers(0, 62, count)


def leaf_content(people):
    """Give the content of one of LEAF's files, made as LEAF makes it: pixels are divided by 255."""
    entries = {
        user: {"x": [(image.flatten() / 255).tolist() for image in images], "y": classes.tolist()}
        for user, (images, classes) in people.items()
    }
    return {"users": [*people], "num_samples": [len(y) for _, y in people.values()], "user_data": entries}


def put_leaf(path, content):
    put(path, json.dumps(content).encode())


LEAF_SPLITS = {  # number of rows by file and user; names in no order, and writers of different sizes
    "sample": [("train/b", "f9_04:3 f1_41:5"), ("train/a", "f3_02:1"), ("test/b", "f9_04:2 f1_41:1 f3_02:1")],
    "user": [("train/1", "f9_04:3 f1_41:5"), ("train/0", "f3_02:1"), ("test/0", "f2_02:2 f0_00:4")],
    "only train": [("train/all", "f9_04:2 f3_02:3")],
}


@pytest.mark.parametrize("mode", LEAF_SPLITS)
def test_leaf(tmp_path, mode):
    made = {}
    for name, users in LEAF_SPLITS[mode]:
        made[name] = {user: characters(int(size)) for user, size in (user.split(":") for user in users.split())}
        content = leaf_content(made[name]) | {"hierarchies": []}
        content["user_data"]["f5_55"] = {"x": [], "y": []}  # LEAF's split by sample leaves those whom it drops
        put_leaf(tmp_path / f"{name}_niid_1_keep_0_9.json", content)
    arrays = datasets.leaf(tmp_path)
    names = sorted({user for people in made.values() for user in people})
    for split, x, y, writer in [
        ("train", arrays.x, arrays.y, arrays.writer),
        ("test", arrays.x_test, arrays.y_test, arrays.writer_test),
    ]:
        people = [(user, rows) for name in sorted(made) if split in name for user, rows in made[name].items()]
        if not people:
            assert x is None and y is None and writer is None
            continue
        np.testing.assert_array_equal(x[:, 0], np.concatenate([images for _, (images, _) in people]))
        np.testing.assert_array_equal(y, np.concatenate([classes for _, (_, classes) in people]))
        assert [names[k] for k in writer] == [user for user, (_, classes) in people for _ in classes]
        assert (x.dtype, y.dtype, writer.dtype) == (np.uint8, np.int64, np.int64)
    info, test_rows = arrays.stats, 0 if arrays.y_test is None else len(arrays.y_test)
    assert (info.rows, info.test_rows, info.shape, info.classes) == (len(arrays.y), test_rows, (1, 28, 28), 62)
    assert info.source == "https://github.com/TalwalkarLab/leaf" and "BSD" in info.licence and info.note


def test_leaf_reads_every_level_whole(tmp_path):
    levels = np.resize(np.arange(256, dtype=np.uint8), (3, 28, 28))
    content = leaf_content({"f0000_14": (levels, np.array([0, 61, 10]))})
    content["user_data"]["f0000_14"]["x"][1] = np.round(levels[1].flatten() / 255, 4).tolist()
    content["user_data"]["f0000_14"]["x"][2] = [int(level > 127) for level in levels[2].flatten()]
    put_leaf(tmp_path / "train/a.json", content)
    levels[2] = np.where(levels[2] > 127, 255, 0)
    np.testing.assert_array_equal(datasets.leaf(tmp_path).x[:, 0], levels)


def test_some_writers_of_leaf(tmp_path):
    people = {name: characters(3) for name in ("f9_04", "f1_41", "f3_02")}
    put_leaf(tmp_path / "train/a.json", leaf_content({"f9_04": people["f9_04"], "f1_41": people["f1_41"]}))
    put_leaf(tmp_path / "test/a.json", leaf_content({"f3_02": people["f3_02"]}))
    arrays = datasets.leaf(tmp_path, writers=["f9_04", "f3_02"])
    np.testing.assert_array_equal(arrays.x[:, 0], people["f9_04"][0])
    np.testing.assert_array_equal(arrays.x_test[:, 0], people["f3_02"][0])
    assert arrays.writer.tolist() == [1] * 3 and arrays.writer_test.tolist() == [0] * 3
    assert (arrays.stats.rows, arrays.stats.test_rows) == (3, 3)
    with pytest.raises(ValueError, match="300 of the writers are in no file, such as f0424_27: get all of https"):
        datasets.leaf(tmp_path, writers=datasets.FEMNIST300)


def set_entry(key, value):
    def spoil(content):
        content["user_data"]["f1"][key] = value

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        set_entry("x", [[1.0] * 784, [1.0] * 783]),  # a pixel is missing
        set_entry("x", ["To be, or not", "to be"]),  # shakespeare, of LEAF too
        set_entry("x", [[0.5] * 784] * 2),  # no k / 255
        set_entry("x", [[0.0] * 784]),
        set_entry("y", [0, 62]),
        set_entry("y", [-1, 0]),
        set_entry("y", ["c", 0]),
        lambda content: content.pop("user_data"),
        lambda content: content["user_data"]["f1"].pop("y"),
        lambda content: content.update(user_data=["f0", "f1"]),
    ],
)
def test_leaf_errors(tmp_path, spoil):
    content = leaf_content({"f0": characters(1), "f1": characters(2)})
    put_leaf(tmp_path / "train/a.json", content)
    datasets.leaf(tmp_path)
    spoil(content)
    put_leaf(tmp_path / "test/b.json", content)
    with pytest.raises(ValueError, match=r"test/b\.json is damaged or not FEMNIST from https://"):
        datasets.leaf(tmp_path)


@pytest.mark.parametrize("damage", [lambda b: b[:-50], lambda b: b"", lambda b: b"\xff" + b, lambda b: b"[" * 10**5])
def test_damaged_leaf_files(tmp_path, damage):
    whole = json.dumps(leaf_content({"f1": characters(2)})).encode()
    put(tmp_path / "train/b.json", damage(whole))
    with pytest.raises(ValueError, match=r"train/b\.json is damaged or not FEMNIST"):
        datasets.leaf(tmp_path)


def test_leaf_without_training_files(tmp_path):
    put_leaf(tmp_path / "test/a.json", leaf_content({"f1": characters(2)}))
    with pytest.raises(FileNotFoundError, match=r"train holds no JSON file: expected train/\*\.json"):
        datasets.leaf(tmp_path)


def png(array):
    file = io.BytesIO()
    PIL_Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def put_flwr(path, images, classes, writers, **columns):
    """Write a file as Hugging Face's library does; ``columns`` replace its own."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {
        "image": arrow.array(
            [{"bytes": png(image), "path": f"{k}.png"} for k, image in enumerate(images)],
            arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())]),
        ),
        "writer_id": arrow.array(writers, arrow.string()),
        "hsf_id": arrow.array([0] * len(images), arrow.int64()),
        "character": arrow.array(classes, arrow.int64()),
    } | columns
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.table({key: v for key, v in table.items() if v is not None}), path)


def test_flwr_femnist(tmp_path):
    images, classes = characters(5)
    writers = ["f3_02", "f0_14", "f3_02", "f9_04", "f0_14"]
    for part, rows in ((1, slice(3, 5)), (0, slice(3))):
        path = tmp_path / f"data/train-0000{part}-of-00002.parquet"
        put_flwr(path, images[rows], classes[rows], writers[rows])
    arrays = datasets.flwr_femnist(tmp_path)
    np.testing.assert_array_equal(arrays.x, images[:, None])
    np.testing.assert_array_equal(arrays.y, classes)
    assert arrays.writer.tolist() == [1, 0, 1, 2, 0]
    assert (arrays.x.dtype, arrays.y.dtype, arrays.writer.dtype) == (np.uint8, np.int64, np.int64)
    assert arrays.x_test is None and arrays.y_test is None and arrays.writer_test is None
    assert (arrays.stats.rows, arrays.stats.test_rows, arrays.stats.classes) == (5, 0, 62)
    some = datasets.flwr_femnist(tmp_path, writers=["f9_04", "f3_02"])
    np.testing.assert_array_equal(some.x, images[[0, 2, 3], None])
    assert some.writer.tolist() == [0, 0, 1] and some.stats.rows == 3
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"holds 1 files data/train-\*\.parquet: copy all of one version"):
        datasets.flwr_femnist(tmp_path)


@pytest.mark.parametrize(
    "columns",
    [
        lambda x: {"character": None},
        lambda x: {"character": [1, 62, 3]},
        lambda x: {"character": [1, 2, None]},
        lambda x: {"image": [{"bytes": b} for b in (x, b"text", x)]},
        lambda x: {"image": [{"bytes": x}, {"bytes": x}, None]},
        lambda x: {"image": [{"bytes": b} for b in (x, x, png(np.zeros((28, 27), np.uint8)))]},
        lambda x: {"writer_id": ["a", None, "b"]},
    ],
)
def test_flwr_femnist_errors(tmp_path, columns):
    images, classes = characters(3)
    path = tmp_path / "data/train-00000-of-00001.parquet"
    put_flwr(path, images, classes, ["a", "b", "c"], **columns(png(images[0])))
    with pytest.raises(ValueError, match=r"of-00001\.parquet is damaged or not FEMNIST from https://"):
        datasets.flwr_femnist(tmp_path)
    put(path, b"PAR1")
    with pytest.raises(ValueError, match=r"of-00001\.parquet is damaged or not FEMNIST from https://"):
        datasets.flwr_femnist(tmp_path)


# ---- the real files ----


@pytest.mark.skipif(not DATA, reason="needs the real files: FEDLIB_DATA is not set")
@pytest.mark.parametrize("name", [name for name in datasets.names() if name not in EMBEDDED])
def test_real_files(monkeypatch, name):
    monkeypatch.undo()  # the real folder, and Debian's package
    try:
        arrays = datasets.load(name)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    info = datasets.stats(name)
    assert arrays.x.shape == (info.rows, *info.shape)
    assert set(arrays.y) == set(range(info.classes))
    if info.test_rows:
        assert arrays.x_test.shape == (info.test_rows, *info.shape) and len(arrays.y_test) == info.test_rows
    if name == "obesity":
        assert len({column.split("=")[0] for column in arrays.columns}) == 16
        assert arrays.x[0, :5].tolist() == [1, 0, 21, np.float32(1.62), 64] and arrays.y[0] == 1
    if name == "wine_quality":
        assert arrays.y[:3].tolist() == [2, 2, 2] and len(arrays.columns) == 11
    if name == "mnist10k":
        assert len(set(arrays.writer)) == 298 and len(set(arrays.writer_test)) == 297
    if name == "femnist300":
        everybody = np.bincount(np.concatenate([arrays.writer, arrays.writer_test]))
        assert len(everybody) == len(datasets.FEMNIST300) == 300 and (everybody >= 100).sum() == 272
        y = np.concatenate([arrays.y, arrays.y_test])
        assert round(everybody.mean()) == 153 and round(100 * (y < 10).mean()) == 71  # as book/data.md says
    if name == "cifar10_jpeg":
        assert np.bincount(arrays.y).tolist() == [5000] * 10
        assert np.bincount(arrays.y_test).tolist() == [1000] * 10


@pytest.fixture
def leaf_sample(monkeypatch, tmp_path):
    """Twelve of femnist300's writers in files as LEAF writes them."""
    monkeypatch.undo()
    path = Path(DATA) / "femnist_leaf_json_sample.tar.xz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / "femnist_leaf_sample"


def images_of(arrays, names):
    """Of each writer, by name, all images and classes of both splits as bytes, in order of their values."""
    rows = {name: [] for name in names}
    for x, y, writers in (
        (arrays.x, arrays.y, arrays.writer),
        (arrays.x_test, arrays.y_test, arrays.writer_test),
    ):
        for image, label, writer in zip(x, y, writers, strict=True):
            rows[names[writer]].append(image.tobytes() + bytes([label]))
    return {name: sorted(some) for name, some in rows.items()}


@pytest.mark.skipif(not DATA, reason="needs the real files: FEDLIB_DATA is not set")
def test_real_files_of_leaf(leaf_sample):
    """They hold the images of femnist300, and of each writer one more: the first, which LEAF repeats."""
    files = [*leaf_sample.glob("*/*.json")]
    names = sorted({name for file in files for name in json.loads(file.read_text())["users"]})
    arrays = datasets.leaf(leaf_sample)
    assert (len(arrays.y), len(arrays.y_test), len(names)) == (1329, 154, 12)
    assert (arrays.x == 255).mean() > 0.5, "the paper is white"
    found, ours = images_of(arrays, names), images_of(datasets.load("femnist300"), datasets.FEMNIST300)
    for name, images in found.items():
        twice = [a for a, b in zip(images, images[1:], strict=False) if a == b]
        assert len(twice) == 1 and sorted([*ours[name], *twice]) == images
    few = names[3:5]
    assert images_of(datasets.leaf(leaf_sample, writers=few), few) == {name: found[name] for name in few}


@pytest.mark.skipif(not DATA, reason="needs the real files: FEDLIB_DATA is not set")
def test_real_images_in_flowers_files(monkeypatch, tmp_path):
    """The same images, written as Flower's copy has them."""
    monkeypatch.undo()
    names, arrays = datasets.FEMNIST300, datasets.load("femnist300")
    rows = np.flatnonzero(arrays.writer < 4)
    writers = [names[k] for k in arrays.writer[rows]]
    put_flwr(tmp_path / "data/train-00000-of-00001.parquet", arrays.x[rows, 0], arrays.y[rows], writers)
    read = datasets.flwr_femnist(tmp_path, writers=names[:4])
    np.testing.assert_array_equal(read.x, arrays.x[rows])
    np.testing.assert_array_equal(read.y, arrays.y[rows])
    np.testing.assert_array_equal(read.writer, arrays.writer[rows])


# ---- missing and wrong files ----


@pytest.mark.parametrize("given", ["root", "variable", "neither"])
@pytest.mark.parametrize("name", ["qmnist", "mnist10k"])
def test_missing_files(monkeypatch, tmp_path, name, given):
    root = tmp_path / "home/.cache/fedlib" if given == "neither" else tmp_path / given
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEDLIB_DATA", str(root)) if given == "variable" else monkeypatch.delenv("FEDLIB_DATA")
    with pytest.raises(FileNotFoundError) as caught:
        datasets.load(name, root if given == "root" else None)
    message = str(caught.value)
    assert message.startswith(f"{root}{os.sep}") and "download=True" in message
    assert f"FEDLIB_DATA (now: {root if given == 'variable' else 'not set'})" in message
    assert not root.exists()


@pytest.mark.parametrize("name", [name for name in datasets.names() if name not in EMBEDDED])
def test_wrong_files(tmp_path, name):
    file, expected = next(iter(datasets.stats(name).checksums.items()))
    put(tmp_path / file, b"half a fi")
    got = digest(b"half a fi", expected.split(":")[0])
    with pytest.raises(ValueError) as caught:
        datasets.load(name)
    assert f"{tmp_path / file} has checksum {got}, expected {expected}: delete it" in str(caught.value)


# ---- downloads, from a server on this machine ----


@pytest.fixture
def server():
    """Serve ``pages``: path to content, or to a function of the request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append(self.path)
            page = self.server.pages.get(self.path)
            if callable(page):
                page(self)
            elif page is None:
                self.send_error(404)
            else:
                self.send_response(200)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.pages, running.asked, running.url = {}, [], f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def truncated(request):
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b"content")


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_download(monkeypatch, server, tmp_path, capfd):
    files, (x, *_) = make_digits(monkeypatch, "mnist")
    server.pages = {f"/{Path(path).name}": content for path, content in files.items()}
    monkeypatch.setitem(registry._ADDRESSES, "mnist", f"{server.url}/")
    with pytest.raises(FileNotFoundError):
        datasets.load("mnist")
    assert not server.asked, "nothing is downloaded unless it is asked for"
    np.testing.assert_array_equal(datasets.load("mnist", download=True).x[:, 0], x)
    assert {path.relative_to(tmp_path).as_posix() for path in files_in(tmp_path)} == set(files)
    assert len(server.asked) == 4 and "100%" in capfd.readouterr().err
    datasets.load("mnist", download=True)
    assert len(server.asked) == 4, "nothing is fetched twice"
    put(tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz", b"damaged")
    datasets.load("mnist", download=True)
    assert server.asked[4:] == ["/t10k-labels-idx1-ubyte.gz"], "only the damaged file is fetched again"


@pytest.mark.parametrize(
    ("page", "kind", "words"),
    [(b"changed", ValueError, "hash"), (truncated, ConnectionError, "could not"), (None, ConnectionError, "404")],
)
def test_a_failed_download_leaves_nothing_behind_and_keeps_the_old_file(
    monkeypatch, server, tmp_path, page, kind, words
):
    files, *_ = make_cifar10(monkeypatch)
    (name,) = files
    server.pages[f"/{name}"] = page
    monkeypatch.setitem(registry._ADDRESSES, "cifar10", f"{server.url}/")
    for before in ([], [b"old"]):
        if before:
            put(tmp_path / name, b"old")
        with pytest.raises(kind, match=words):
            datasets.load("cifar10", download=True)
        assert [path.read_bytes() for path in files_in(tmp_path)] == before


def test_download_of_a_zip_file(monkeypatch, server, tmp_path):
    restate(monkeypatch, "wine_quality", WINE, rows=3, shape=(2,))
    monkeypatch.setitem(registry._ADDRESSES, "wine_quality", f"{server.url}/wine+quality.zip#")

    def bundle(files):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return file.getvalue()

    wrong = bundle(dict.fromkeys(WINE, b"other"))
    pages = [(b"<html>moved</html>", ConnectionError), (bundle({"readme": b""}), ConnectionError), (wrong, ValueError)]
    for page, kind in pages:
        server.pages["/wine+quality.zip"] = page
        with pytest.raises(kind):
            datasets.load("wine_quality", download=True)
        assert not files_in(tmp_path)
    server.pages["/wine+quality.zip"] = bundle(WINE)
    assert datasets.load("wine_quality", download=True).y.tolist() == [0, 6, 3]
    assert {path.name: path.read_bytes() for path in files_in(tmp_path)} == WINE
    assert datasets.load("wine_quality").y.tolist() == [0, 6, 3]
