"""CelebA: files of the published layout, who is drawn, and what is said of wrong files."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from book.experiments import faces, fedcg_graph
from book.experiments.faces import celeba_clients, client_statistics, identities, split_users

PIL_Image = pytest.importorskip("PIL.Image")

# The 40 attributes are in the published order of names; the seven here are enough for all that is read by name.
NAMES = ("5_o_Clock_Shadow", "Attractive", "Heavy_Makeup", "High_Cheekbones", "Mouth_Slightly_Open", "Smiling", "Wavy")
SIZES = {2880: 9, 17: 5, 3: 4, 905: 6, 44: 12, 8: 5, 1: 1, 6369: 7, 71: 8, 10: 5, 500: 6, 4: 5}  # photos of celebrities


@pytest.fixture
def made(request, monkeypatch, tmp_path):
    """A small CelebA of the published layout: a mouth that is light where someone smiles; and its checksums."""
    random, width, height = np.random.RandomState(0), 18, 22
    folder = tmp_path / getattr(request, "param", "celeba")
    (folder / "img_align_celeba").mkdir(parents=True)
    persons = random.permutation(np.repeat(list(SIZES), list(SIZES.values())))
    attributes = random.randint(0, 2, (len(persons), len(NAMES)))
    photos = [f"{row + 1:06}.jpg" for row in range(len(persons))]
    for photo, known in zip(photos, attributes, strict=True):
        pixels = random.randint(0, 128, (height, width, 3))
        pixels[2 * height // 3 :] += 100 * known[NAMES.index("Smiling")]
        PIL_Image.fromarray(pixels.astype(np.uint8)).save(folder / "img_align_celeba" / photo, quality=95)
    known = [photo + "".join(f" {2 * v - 1:2}" for v in row) for photo, row in zip(photos, attributes, strict=True)]
    files = {"identity_CelebA.txt": [f"{photo} {person}" for photo, person in zip(photos, persons, strict=True)]}
    # The published file has a blank after the names, and pads numbers.
    files["list_attr_celeba.txt"] = [str(len(photos)), " ".join(NAMES) + " ", *known]
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n")
        code = hashlib.md5((folder / name).read_bytes()).hexdigest()
        monkeypatch.setitem(faces.STATS.checksums, name, f"md5:{code}")
    return SimpleNamespace(folder=folder, photos=photos, persons=persons, attributes=attributes)


def as_leaf(made, row):
    """The lines of LEAF's models/celeba/cnn.py that read a photo."""
    with PIL_Image.open(made.folder / "img_align_celeba" / made.photos[row]) as image:
        return np.array(image.resize((84, 84)).convert("RGB")).transpose(2, 0, 1)


def test_published_numbers():
    info, sets = faces.STATS, pytest.importorskip("torchvision").datasets
    assert (info.rows, info.shape, info.classes) == (202_599, (3, 84, 84), 2) and "non-commercial" in info.licence
    published = {file: f"md5:{md5}" for _, md5, file in sets.CelebA.file_list}
    assert info.checksums == {file: published[file] for file in ("identity_CelebA.txt", "list_attr_celeba.txt")}


@pytest.mark.parametrize("made", ["celeba", "celeba/data/raw"], ids=["torchvision", "leaf"], indirect=True)
def test_clients(made):
    arrays, other = (celeba_clients(fraction=(0.3, 0.4), seed=seed) for seed in (3, 4))
    train, test = set(arrays.writer.tolist()), set(arrays.writer_test.tolist())
    assert (len(train), len(test)) == (3, 4) and not train & test
    assert train | test <= {person for person, size in SIZES.items() if size >= 5}
    for part, suffix in ((train, ""), (test, "_test")):
        rows = np.flatnonzero(np.isin(made.persons, list(part)))  # all photos of a celebrity, in the files' order
        smiling, photos = made.attributes[rows, NAMES.index("Smiling")], np.stack([as_leaf(made, row) for row in rows])
        wanted = {"writer": (made.persons[rows], np.int64), "y": (smiling, np.int64), "x": (photos, np.uint8)}
        for field, (right, kind) in wanted.items():
            found = getattr(arrays, field + suffix)
            assert found.dtype == kind
            np.testing.assert_array_equal(found, right)
    assert (arrays.stats.rows, arrays.stats.test_rows) == (len(arrays.y), len(arrays.y_test))
    np.testing.assert_array_equal(arrays.x_test, celeba_clients(fraction=(0.3, 0.4), seed=3).x_test)
    assert set(other.writer) != train


# ---- errors of files ----


@pytest.mark.parametrize("missing", ["identity_CelebA.txt", "list_attr_celeba.txt", "img_align_celeba"])
def test_missing_files(made, tmp_path, missing):
    (made.folder / missing).rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError) as caught:
        celeba_clients()
    message = str(caught.value)
    assert message.startswith(str(made.folder / missing)) and "is not there" in message
    assert "non-commercial research only" in message and "mmlab.ie.cuhk.edu.hk" in message
    assert "celeba/img_align_celeba/*.jpg" in message
    if missing != "identity_CelebA.txt":
        np.testing.assert_array_equal(identities(), made.persons)  # needs one file


@pytest.mark.parametrize("damage", [lambda b: b[:-200], lambda b: b"", lambda b: b"no photo"])
def test_damaged_photos(made, damage):
    path = made.folder / "img_align_celeba" / made.photos[5]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"000006\.jpg cannot be read as an image"):
        celeba_clients(fraction=(0.5, 0.5), min_rows=1)
    for file in faces.STATS.checksums:
        content = (made.folder / file).read_text()
        (made.folder / file).write_text(content + "\n")
        with pytest.raises(ValueError, match=rf"{file} has checksum md5:\w+, expected md5:\w+.*delete it"):
            celeba_clients()
        (made.folder / file).write_text(content)


# ---- users ----


def test_split_users():
    users = np.repeat(np.arange(100) * 7, np.arange(1, 101))
    train, validation, test = split_users(users, seed=1)
    assert (len(train), len(validation), len(test)) == (60, 20, 20)
    assert set(train) | set(validation) | set(test) == set(users.tolist())
    assert all((np.diff(group) > 0).all() for group in (train, validation, test))
    np.testing.assert_array_equal(train, split_users(users[::-1], seed=1)[0])
    assert set(train) != set(split_users(users, seed=2)[0])
    np.testing.assert_array_equal(train, split_users(users, (0.6,), seed=1)[0])
    ten, twenty = split_users(users, (0.1, 0.2), min_rows=11)
    assert (len(ten), len(twenty)) == (9, 18) and min(*ten, *twenty) >= 70 and not set(ten) & set(twenty)
    assert [len(group) for group in split_users(np.arange(9), (1 / 3, 1 / 3, 1 / 3))] == [3, 3, 3]


def test_errors_of_shares():
    for shares in ((), (0.5, 0.6), (0.0, 0.5), (float("nan"),)):
        with pytest.raises(ValueError, match="shares must be above 0 and at most 1 together"):
            split_users(np.arange(9), shares)
    with pytest.raises(ValueError, match="9 of 9 users have 1 rows or more, too few for shares"):
        split_users(np.arange(9), (0.01, 0.5))
    with pytest.raises(ValueError, match="0 of 9 users have 2 rows or more"):
        split_users(np.arange(9), min_rows=2)


def test_client_statistics():
    sizes = np.array([size for size in SIZES.values() if size >= 5])
    row = client_statistics(np.repeat(list(SIZES), list(SIZES.values())), min_rows=5)
    expected = {"clients": len(sizes), "samples": sizes.sum(), "mean": sizes.mean(), "stdev": sizes.std()}
    assert row == pytest.approx(expected)
    with pytest.raises(ValueError, match="no user has 99 rows or more"):
        client_statistics(np.arange(3), min_rows=99)


@pytest.mark.parametrize("made", ["celeba", "celeba/data/raw"], ids=["torchvision", "leaf"], indirect=True)
def test_the_papers_experiment_finds_the_files(made, monkeypatch):
    monkeypatch.setattr(fedcg_graph, "on_new_clients", lambda *run: {"clients": len(run[3])})
    settings = {"seed": 0, "CelebA": {"fraction": (0.5, 0.5), "domains": 2}}
    figures = fedcg_graph.measure_paper(settings, lambda _, measure, *arguments: measure(*arguments))
    assert figures["CelebA"]["clients"] == 5
