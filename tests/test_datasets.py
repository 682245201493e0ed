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
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedlib import datasets
from fedlib.datasets import registry

PIL_Image = pytest.importorskip("PIL.Image")

EMBEDDED = ("mnist5k", "boston", "digits", "wine", "breast_cancer", "diabetes")
FROM_FILES = [name for name in datasets.names() if name not in EMBEDDED]
DATA = os.environ.get("FEDLIB_DATA")
RNG = np.random.default_rng(0)
needs_data = pytest.mark.skipif(not DATA, reason="needs the real files: FEDLIB_DATA is not set")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """Keep every test off the user's folders, off Debian's package and off proxies."""
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(registry, "_DEBIAN", tmp_path / "no-such-package")


@pytest.fixture
def restate(monkeypatch):
    """Replace what a set states, to fit the small files that a test makes."""

    def change(name, files, more=(), **changes):
        loader, info = registry.REGISTRY[name]
        checksums = {path: digest(content, "md5") for path, content in files.items()} | dict(more)
        monkeypatch.setitem(registry.REGISTRY, name, (loader, replace(info, checksums=checksums, **changes)))

    return change


@pytest.fixture
def load_small(restate, tmp_path):
    """Load a set from small files."""

    def load(name, files, **changes):
        restate(name, files, **changes)
        put(tmp_path, files)
        return datasets.load(name)

    return load


def digest(content, algorithm="sha256"):
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def put(root, files):
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


def written(save, *arguments, **more):
    """What a function that saves to a file writes."""
    file = io.BytesIO()
    save(file, *arguments, **more)
    return file.getvalue()


def packed(files, mode):
    """An archive of files, by their names."""
    archive = io.BytesIO()
    if mode == "zip":
        with zipfile.ZipFile(archive, "w") as opened:
            for name, content in files.items():
                opened.writestr(name, content)
        return archive.getvalue()
    with tarfile.open(fileobj=archive, mode=mode) as opened:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            opened.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def check(arrays, kind=np.uint8, **wanted):
    """The arrays hold just this; images are wanted without their one channel."""
    for field in ("x", "y", "writer"):
        for name in (field, f"{field}_test"):
            found, right = getattr(arrays, name), wanted.get(name)
            if right is None:
                assert found is None
            else:
                assert found.dtype == (kind if field == "x" else np.int64)
                np.testing.assert_array_equal(found[:, 0] if np.ndim(right) == 3 else found, right)


# ---- packages, and what is stated ----


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_sets_match_their_stats(name):
    arrays, info = datasets.load(name), datasets.stats(name)
    assert arrays.stats == info and {"x", "y"} <= set(info.checksums)
    assert arrays.x.shape == (info.rows, *info.shape) and arrays.y.shape == (info.rows,)
    assert arrays.x_test is None and arrays.y_test is None and arrays.writer is None
    assert arrays.y.dtype == (np.float32 if info.classes is None else np.int64)
    assert not info.classes or set(arrays.y) == set(range(info.classes))
    if len(info.shape) == 1:
        assert len(set(arrays.columns)) == info.shape[0] and arrays.x.dtype == np.float32
    else:
        assert arrays.x.max() == 255 and arrays.x.min() == 0 and arrays.x.dtype == np.uint8


def test_a_changed_or_missing_package_is_said(monkeypatch):
    from sklearn import datasets as sklearn_datasets

    bunch = sklearn_datasets.load_wine()
    bunch.data[0, 0] += 1
    monkeypatch.setattr(sklearn_datasets, "load_wine", lambda: bunch)
    with pytest.raises(ValueError, match=r"wine: x has checksum .*, expected sha256:fdd1a1.*installed package"):
        datasets.load("wine")
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


def test_torchvision_states_the_same_addresses_and_checksums():
    sets = pytest.importorskip("torchvision").datasets
    published = {"QMNIST": sets.QMNIST.resources["train"] + sets.QMNIST.resources["test"]}
    for kind in (sets.MNIST, sets.FashionMNIST):
        published[kind.__name__] = [(kind.mirrors[0] + file, md5) for file, md5 in kind.resources]
    for name, folder in (("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST"), ("qmnist", "QMNIST")):
        stated = {k: v for k, v in datasets.stats(name).checksums.items() if v.startswith("md5")}
        assert stated == {f"{folder}/raw/{Path(url).name}": f"md5:{md5}" for url, md5 in published[folder]}
        assert [url for url, _ in published[folder]] == [registry._ADDRESSES[name] + Path(path).name for path in stated]


# ---- digits and photos, on small generated files ----


def idx(array):
    code = {"uint8": 8, "int32": 12}[array.dtype.name]
    header = bytes([0, 0, code, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


FEW = {"rows": 7, "test_rows": 4}


def digits(name):
    """Files of a small set, by their paths, and the arrays that they hold."""
    arrays = []
    for count in FEW.values():
        labels = RNG.integers(0, 10, count).astype(np.uint8)
        if name == "qmnist":
            columns = [labels, labels * 0 + 4, np.arange(count) + 2100, *[labels] * 5]
            labels = np.stack(columns, 1).astype(np.int32)
        arrays += [RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8), labels]
    paths = [path for path in datasets.stats(name).checksums if "/" in path]
    return {path: gzip.compress(idx(array)) for path, array in zip(paths, arrays, strict=True)}, arrays


@pytest.mark.parametrize("name", ["mnist", "qmnist"])
def test_digits(load_small, tmp_path, name):
    files, (x, y, x_test, y_test) = digits(name)
    arrays = load_small(name, files, **FEW)
    assert set(files_in(tmp_path)) == {tmp_path / path for path in files}, "a load without download writes nothing"
    labels = {"y": y, "y_test": y_test}
    if name == "qmnist":
        labels = {"y": y[:, 0], "y_test": y_test[:, 0], "writer": y[:, 2], "writer_test": y_test[:, 2]}
        sets = pytest.importorskip("torchvision").datasets
        put(tmp_path, {path[:-3]: gzip.decompress(content) for path, content in files.items()})
        theirs = sets.QMNIST(tmp_path, what="test", compat=False).targets.numpy()
        assert np.array_equal(arrays.y_test, theirs[:, 0]) and np.array_equal(arrays.writer_test, theirs[:, 2])
    check(arrays, x=x, x_test=x_test, **labels)


def test_fashion_mnist_from_debian(monkeypatch, restate, tmp_path):
    """Its archives have other headers, hence other checksums: the arrays are verified."""
    files, (x, *_) = digits("fashion_mnist")
    restate("fashion_mnist", files, {"x": digest(x.tobytes())}, **FEW)
    monkeypatch.setattr(registry, "_DEBIAN", tmp_path)
    put(tmp_path, {Path(k).name: gzip.compress(gzip.decompress(v), 1, mtime=1) for k, v in files.items()})
    np.testing.assert_array_equal(datasets.load("fashion_mnist", tmp_path / "empty", download=True).x[:, 0], x)
    put(tmp_path, {"train-images-idx3-ubyte.gz": gzip.compress(idx(x[::-1]))})
    with pytest.raises(ValueError, match="fashion_mnist: x has checksum .*, expected"):
        datasets.load("fashion_mnist", tmp_path / "empty")


def test_cifar10(load_small):
    x, y = RNG.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8), RNG.integers(0, 10, 12, dtype=np.uint8)
    batches = [rows.tobytes() for rows in np.concatenate([y.reshape(6, 2, 1), x.reshape(6, 2, -1)], 2)]
    names = [f"cifar-10-batches-bin/{name}.bin" for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")]
    files = {"cifar-10-binary.tar.gz": packed(dict(zip(names, batches, strict=True)), "w:gz")}
    arrays = load_small("cifar10", files, rows=10, test_rows=2)
    check(arrays, x=x[:10], y=y[:10], x_test=x[10:], y_test=y[10:])


def test_cifar10_jpeg(load_small):
    names = ("train/truck/0000", "train/airplane/0001", "train/airplane/0000", "test/truck/0000")
    grey = [np.full((32, 32, 3), 50 * number, np.uint8) for number in range(4)]
    photos = [written(PIL_Image.fromarray(g).save, "JPEG", quality=95) for g in grey]
    archive = packed({f"{name}.jpg": photo for name, photo in zip(names, photos, strict=True)}, "w:xz")
    arrays = load_small("cifar10_jpeg", {"cifar10_jpeg.tar.xz": archive}, rows=3, test_rows=1, classes=2)
    order = [grey[k].transpose(2, 0, 1) for k in (2, 1, 0, 3)]
    check(arrays, x=order[:3], y=[0, 0, 1], x_test=order[3:], y_test=[1])


def test_mnist10k(load_small):
    files, wanted = {}, {}
    for name, rows, split in zip(datasets.stats("mnist10k").checksums, (5, 3), ("", "_test"), strict=True):
        made = {"x": RNG.integers(0, 256, (rows, 28, 28), dtype=np.uint8), "y": np.arange(rows, dtype=np.uint8)}
        made["writer"] = np.arange(rows, dtype=np.int16) + 40
        files[name] = written(np.savez_compressed, **made)
        wanted |= {field + split: array for field, array in made.items()}
    check(load_small("mnist10k", files, rows=5, test_rows=3), **wanted)


def test_femnist300(load_small):
    (x, y), writer, split = characters(6), np.array([0, 0, 0, 1, 1, 299], np.uint16), np.uint8([0, 1, 0, 0, 1, 0])
    (name,) = datasets.stats("femnist300").checksums
    files = {name: written(np.savez_compressed, x=x, y=y.astype(np.uint8), writer=writer, split=split)}
    train, test = [0, 2, 3, 5], [1, 4]
    parts = {"x": x[train], "y": y[train], "x_test": x[test], "y_test": y[test]}
    check(load_small("femnist300", files, rows=4, test_rows=2), writer=[0, 0, 1, 299], writer_test=[0, 1], **parts)


# ---- UCI's tables ----

WINE = {
    "winequality-red.csv": b'"fixed acidity";"pH";"quality"\n7.4;3.5;3\n7.8;3.2;9\n',
    "winequality-white.csv": b'"fixed acidity";"pH";"quality"\n7;3;6\n',
}


def test_wine_quality(load_small):
    arrays = load_small("wine_quality", WINE, rows=3, shape=(2,))
    assert arrays.columns == ("fixed acidity", "pH")
    check(arrays, np.float32, x=np.float32([[7.4, 3.5], [7.8, 3.2], [7, 3]]), y=[0, 6, 3])


def test_obesity(load_small):
    lines = b"""Gender,Age,FAVC,CAEC,CALC,MTRANS,NObeyesdad
Female,21.5,no,Sometimes,no,Bike,Insufficient_Weight
Male,30,yes,Always,Frequently,Walking,Obesity_Type_III"""
    arrays = load_small("obesity", {"ObesityDataSet_raw_and_data_sinthetic.csv": lines}, rows=2, shape=(8,))
    names = ("Gender=Female", "Gender=Male", "Age", "FAVC", "CAEC", "CALC", "MTRANS=Bike", "MTRANS=Walking")
    assert arrays.columns == names
    check(arrays, np.float32, x=[[1, 0, 21.5, 0, 1, 0, 1, 0], [0, 1, 30, 1, 3, 2, 0, 1]], y=[0, 6])


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
    put(path.parent, {path.name: json.dumps(content).encode()})


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
    arrays, wanted = datasets.leaf(tmp_path), {}
    names = sorted({user for people in made.values() for user in people})
    for split, suffix in (("train", ""), ("test", "_test")):
        people = [(user, rows) for name in sorted(made) if split in name for user, rows in made[name].items()]
        if people:
            wanted["x" + suffix] = np.concatenate([images for _, (images, _) in people])
            wanted["y" + suffix] = np.concatenate([classes for _, (_, classes) in people])
            wanted["writer" + suffix] = [names.index(user) for user, (_, classes) in people for _ in classes]
    check(arrays, **wanted)
    info = arrays.stats
    sizes = len(wanted["y"]), len(wanted.get("y_test", ()))
    assert (info.rows, info.test_rows, info.shape, info.classes) == (*sizes, (1, 28, 28), 62)
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
    (x, y), (x_test, y_test) = people["f9_04"], people["f3_02"]
    check(arrays, x=x, y=y, writer=[1] * 3, x_test=x_test, y_test=y_test, writer_test=[0] * 3)
    assert (arrays.stats.rows, arrays.stats.test_rows) == (3, 3)
    with pytest.raises(ValueError, match="300 of the writers are in no file, such as f0424_27: get all of https"):
        datasets.leaf(tmp_path, writers=datasets.FEMNIST300)


def entry(**changes):
    return lambda content: content["user_data"]["f1"].update(changes)


SPOILT = {
    "a pixel is missing": entry(x=[[1.0] * 784, [1.0] * 783]),
    "shakespeare, of LEAF too": entry(x=["To be, or not", "to be"]),
    "no k / 255": entry(x=[[0.5] * 784] * 2),
    "an image is missing": entry(x=[[0.0] * 784]),
    "a class too large": entry(y=[0, 62]),
    "a class below zero": entry(y=[-1, 0]),
    "a letter for a class": entry(y=["c", 0]),
    "no data": lambda content: content.pop("user_data"),
    "a list of users": lambda content: content.update(user_data=["f0", "f1"]),
}
DAMAGED = {"cut off": lambda b: b[:-50], "empty": lambda b: b"", "no text": lambda b: b"\xff" + b}
DAMAGED["nested too deeply"] = lambda b: b"[" * 10**5
BAD_FILES = [(spoil, bytes) for spoil in SPOILT.values()] + [(dict, damage) for damage in DAMAGED.values()]


@pytest.mark.parametrize(("spoil", "damage"), BAD_FILES, ids=[*SPOILT, *DAMAGED])
def test_leaf_errors(tmp_path, spoil, damage):
    content = leaf_content({"f0": characters(1), "f1": characters(2)})
    put_leaf(tmp_path / "test/a.json", content)
    with pytest.raises(FileNotFoundError, match=r"train holds no JSON file: expected train/\*\.json"):
        datasets.leaf(tmp_path)
    put_leaf(tmp_path / "train/a.json", content)
    datasets.leaf(tmp_path)
    spoil(content)
    put(tmp_path, {"test/b.json": damage(json.dumps(content).encode())})
    with pytest.raises(ValueError, match=r"test/b\.json is damaged or not FEMNIST from https://"):
        datasets.leaf(tmp_path)


def put_flwr(path, images, classes, writers, **columns):
    """Write a file as Hugging Face's library does; ``columns`` replace its own."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    photos = [{"bytes": png(image), "path": f"{k}.png"} for k, image in enumerate(images)]
    table = {"image": photos, "writer_id": writers, "hsf_id": [0] * len(images), "character": classes} | columns
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.table({key: v for key, v in table.items() if v is not None}), path)


def test_flwr_femnist(tmp_path):
    images, classes = characters(5)
    writers = ["f3_02", "f0_14", "f3_02", "f9_04", "f0_14"]
    for part, rows in ((1, slice(3, 5)), (0, slice(3))):
        path = tmp_path / f"data/train-0000{part}-of-00002.parquet"
        put_flwr(path, images[rows], classes[rows], writers[rows])
    arrays = datasets.flwr_femnist(tmp_path)
    check(arrays, x=images, y=classes, writer=[1, 0, 1, 2, 0])
    assert (arrays.stats.rows, arrays.stats.test_rows, arrays.stats.classes) == (5, 0, 62)
    some = datasets.flwr_femnist(tmp_path, writers=["f9_04", "f3_02"])
    check(some, x=images[[0, 2, 3]], y=classes[[0, 2, 3]], writer=[0, 0, 1])
    assert some.stats.rows == 3
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"holds 1 files data/train-\*\.parquet: copy all of one version"):
        datasets.flwr_femnist(tmp_path)


def png(image):
    return written(PIL_Image.fromarray(image).save, "PNG")


PNG, NARROW = ({"bytes": png(np.zeros((28, width), np.uint8))} for width in (28, 27))
BAD_COLUMNS = [{"character": c} for c in (None, [1, 62, 3], [1, 2, None])] + [{"writer_id": ["a", None, "b"]}]
BAD_COLUMNS += [{"image": [PNG, {"bytes": b"text"}, PNG]}, {"image": [PNG, PNG, None]}, {"image": [PNG, PNG, NARROW]}]


@pytest.mark.parametrize("columns", [*BAD_COLUMNS, None])
def test_flwr_femnist_errors(tmp_path, columns):
    path = tmp_path / "data/train-00000-of-00001.parquet"
    if columns:
        put_flwr(path, *characters(3), ["a", "b", "c"], **columns)
    else:  # no table at all
        put(path.parent, {path.name: b"PAR1"})
    with pytest.raises(ValueError, match=r"of-00001\.parquet is damaged or not FEMNIST from https://"):
        datasets.flwr_femnist(tmp_path)


# ---- the real files ----


def writers_of_femnist300(arrays):
    """As book/data.md says."""
    everybody = np.bincount(np.concatenate([arrays.writer, arrays.writer_test]))
    assert len(everybody) == len(datasets.FEMNIST300) == 300 and (everybody >= 100).sum() == 272
    y = np.concatenate([arrays.y, arrays.y_test])
    return round(everybody.mean()) == 153 and round(100 * (y < 10).mean()) == 71


KNOWN = {  # of what the files hold
    "obesity": lambda a: [*a.x[0, :5], a.y[0]] == [1, 0, 21, np.float32(1.62), 64, 1],
    "wine_quality": lambda a: a.y[:3].tolist() == [2, 2, 2],
    "mnist10k": lambda a: len(set(a.writer)) == 298 and len(set(a.writer_test)) == 297,
    "femnist300": writers_of_femnist300,
    "cifar10_jpeg": lambda a: (*np.bincount(a.y), *np.bincount(a.y_test)) == (5000,) * 10 + (1000,) * 10,
}


@needs_data
@pytest.mark.parametrize("name", FROM_FILES)
def test_real_files(monkeypatch, name):
    monkeypatch.undo()  # the real folder, and Debian's package
    try:
        arrays = datasets.load(name)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    info = datasets.stats(name)
    assert arrays.x.shape == (info.rows, *info.shape) and set(arrays.y) == set(range(info.classes))
    if info.test_rows:
        assert arrays.x_test.shape == (info.test_rows, *info.shape) and len(arrays.y_test) == info.test_rows
    assert name not in KNOWN or KNOWN[name](arrays)


def counted(arrays, names):
    """How often each writer, image and class occurs in both splits."""
    splits = (zip(*(getattr(arrays, f + s) for f in ("writer", "x", "y")), strict=True) for s in ("", "_test"))
    return Counter((names[writer], image.tobytes(), int(label)) for split in splits for writer, image, label in split)


@needs_data
def test_real_files_of_leaf(monkeypatch, tmp_path):
    """Twelve of femnist300's writers as LEAF writes them: of each one image more, the first, which LEAF repeats."""
    monkeypatch.undo()
    path, root = Path(DATA) / "femnist_leaf_json_sample.tar.xz", tmp_path / "femnist_leaf_sample"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with tarfile.open(path) as opened:
        opened.extractall(tmp_path, filter="data")
    names = sorted({name for file in root.glob("*/*.json") for name in json.loads(file.read_text())["users"]})
    found, ours = counted(datasets.leaf(root), names), counted(datasets.load("femnist300"), datasets.FEMNIST300)
    assert set(found) == {row for row in ours if row[0] in names} and len(names) == 12
    assert sorted(name for (name, *_), times in (found - ours).items() for _ in range(times)) == names


# ---- missing and wrong files ----


@pytest.mark.parametrize("given", ["root", "variable", "neither"])
def test_missing_files(monkeypatch, tmp_path, given):
    root = tmp_path / "home/.cache/fedlib" if given == "neither" else tmp_path / given
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEDLIB_DATA", str(root)) if given == "variable" else monkeypatch.delenv("FEDLIB_DATA")
    for name in ("qmnist", "mnist10k"):
        with pytest.raises(FileNotFoundError) as caught:
            datasets.load(name, root if given == "root" else None)
        message = str(caught.value)
        assert message.startswith(f"{root}{os.sep}") and "download=True" in message
        assert f"FEDLIB_DATA (now: {root if given == 'variable' else 'not set'})" in message
    assert not root.exists()


@pytest.mark.parametrize("name", FROM_FILES)
def test_wrong_files(tmp_path, name):
    """They are verified before they are read."""
    file, expected = next(iter(datasets.stats(name).checksums.items()))
    put(tmp_path, {file: b"half a fi"})
    got = digest(b"half a fi", expected.split(":")[0])
    with pytest.raises(ValueError) as caught:
        datasets.load(name)
    assert f"{tmp_path / file} has checksum {got}, expected {expected}: delete it" in str(caught.value)


# ---- downloads, from a server on this machine ----


@pytest.fixture
def server(monkeypatch, tmp_path_factory):
    """Serve the files of a folder, ``pages``, in place of a set's address; ``asked`` are those that were asked for."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def send_header(self, name, value):
            super().send_header(name, int(value) + running.lost if name == "Content-Length" else value)

        def log_request(self, *_):
            running.asked.append(self.path)

    pages = tmp_path_factory.mktemp("pages")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=pages)) as running:
        running.pages, running.asked, running.lost = pages, [], 0
        url = f"http://127.0.0.1:{running.server_port}/"
        for name, rest in (("mnist", ""), ("cifar10", ""), ("wine_quality", "wine+quality.zip#")):
            monkeypatch.setitem(registry._ADDRESSES, name, url + rest)
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_download(restate, server, tmp_path, capfd):
    files, (x, *_) = digits("mnist")
    restate("mnist", files, **FEW)
    put(server.pages, {Path(path).name: content for path, content in files.items()})
    with pytest.raises(FileNotFoundError):
        datasets.load("mnist")
    assert not server.asked, "nothing is downloaded unless it is asked for"
    np.testing.assert_array_equal(datasets.load("mnist", download=True).x[:, 0], x)
    assert {path.relative_to(tmp_path).as_posix() for path in files_in(tmp_path)} == set(files)
    assert len(server.asked) == 4 and "100%" in capfd.readouterr().err
    datasets.load("mnist", download=True)
    assert len(server.asked) == 4, "nothing is fetched twice"
    put(tmp_path, {"MNIST/raw/t10k-labels-idx1-ubyte.gz": b"damaged"})
    datasets.load("mnist", download=True)
    assert server.asked[4:] == ["/t10k-labels-idx1-ubyte.gz"], "only the damaged file is fetched again"


FAILED = [(b"changed", 0, ValueError, "hash"), (b"content", 993, ConnectionError, "could not")]
FAILED += [(None, 0, ConnectionError, "404")]


@pytest.mark.parametrize("before", [{}, {"cifar-10-binary.tar.gz": b"old"}], ids=["nothing", "an old file"])
@pytest.mark.parametrize(("page", "lost", "kind", "words"), FAILED)
def test_a_failed_download_leaves_things_as_they_were(restate, server, tmp_path, page, lost, kind, words, before):
    name = "cifar-10-binary.tar.gz"
    restate("cifar10", {name: b"the right one"})
    put(server.pages, {name: page} if page else {})
    server.lost = lost
    put(tmp_path, before)
    with pytest.raises(kind, match=words):
        datasets.load("cifar10", download=True)
    assert {path.name: path.read_bytes() for path in files_in(tmp_path)} == before


def test_download_of_a_zip_file(restate, server, tmp_path):
    restate("wine_quality", WINE, rows=3, shape=(2,))
    wrong = {ValueError: [packed(dict.fromkeys(WINE, b"other"), "zip")]}
    wrong[ConnectionError] = [b"<html>moved</html>", packed({"readme": b""}, "zip")]
    for kind, page in ((kind, page) for kind, pages in wrong.items() for page in pages):
        put(server.pages, {"wine+quality.zip": page})
        with pytest.raises(kind):
            datasets.load("wine_quality", download=True)
        assert not files_in(tmp_path)
    put(server.pages, {"wine+quality.zip": packed(WINE, "zip")})
    assert datasets.load("wine_quality", download=True).y.tolist() == [0, 6, 3]
    assert {path.name: path.read_bytes() for path in files_in(tmp_path)} == WINE
    assert datasets.load("wine_quality").y.tolist() == [0, 6, 3]
