"""CelebA: files of the published layout, what is said of wrong ones, and the network against plain loops."""

import hashlib
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fedlib
from fedlib import datasets
from fedlib.algorithms import FedAvg, FedCG
from fedlib.client.domain_net import DomainClassifier
from fedlib.datasets import faces
from fedlib.datasets.faces import (
    PAPER_ATTRIBUTES,
    CelebACNN,
    CelebANet,
    attribute_domains,
    celeba_clients,
    client_statistics,
    identities,
    load,
    scores_by_client,
    split_users,
)
from fedlib.losses import cross_entropy
from fedlib.params import count
from fedlib.partition import by_user
from fedlib.server.domain_graph import DomainGCN, hamming

PIL_Image = pytest.importorskip("PIL.Image")
torchvision = pytest.importorskip("torchvision")

# The 40 attributes are in the published order of names; the seven here are enough for all that is read by name.
NAMES = ("5_o_Clock_Shadow", "Attractive", "Heavy_Makeup", "High_Cheekbones", "Mouth_Slightly_Open", "Smiling")
NAMES += ("Wavy_Hair",)
SIZES = {2880: 9, 17: 5, 3: 4, 905: 6, 44: 12, 8: 5, 1: 1, 6369: 7, 71: 8, 10: 5, 500: 6, 4: 5}  # photos of celebrities


def make_celeba(root, sizes=SIZES, size=(18, 22), seed=0, place="celeba"):
    """Write a small CelebA of the published layout: a mouth that is light where someone smiles, all else noise."""
    random = np.random.RandomState(seed)
    folder = root / place
    (folder / "img_align_celeba").mkdir(parents=True)
    persons = random.permutation(np.repeat(list(sizes), list(sizes.values())))
    attributes = random.randint(0, 2, (len(persons), len(NAMES)))
    photos = [f"{row + 1:06}.jpg" for row in range(len(persons))]
    for photo, known in zip(photos, attributes, strict=True):
        pixels = random.randint(0, 128, (size[1], size[0], 3))
        pixels[2 * size[1] // 3 :] += 100 * known[NAMES.index("Smiling")]
        PIL_Image.fromarray(pixels.astype(np.uint8)).save(folder / "img_align_celeba" / photo, quality=95)
    lines = [f"{photo} {person}" for photo, person in zip(photos, persons, strict=True)]
    (folder / "identity_CelebA.txt").write_text("\n".join(lines) + "\n")
    lines = [str(len(photos)), " ".join(NAMES) + " "]  # the published file has this blank, and pads numbers
    for photo, row in zip(photos, attributes, strict=True):
        lines.append(photo + "".join(f" {2 * value - 1:2}" for value in row))
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    return SimpleNamespace(folder=folder, photos=photos, persons=persons, attributes=attributes)


def state_checksums(monkeypatch, made):
    """Make the statement fit the small files."""
    files = {name: (made.folder / name).read_bytes() for name in faces.STATS.checksums}
    md5 = {name: f"md5:{hashlib.md5(content).hexdigest()}" for name, content in files.items()}
    monkeypatch.setattr(faces, "STATS", replace(faces.STATS, rows=len(made.photos), checksums=md5))


@pytest.fixture
def made(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDLIB_DATA", raising=False)
    small = make_celeba(tmp_path)
    state_checksums(monkeypatch, small)
    return small


def as_leaf(made, photo):
    """The lines of LEAF's models/celeba/cnn.py that read a photo."""
    with PIL_Image.open(made.folder / "img_align_celeba" / photo) as image:
        return np.array(image.resize((84, 84)).convert("RGB"))


# ---- files ----


def test_load(made, tmp_path, capfd):
    arrays = load(tmp_path)
    assert arrays.x.shape == (len(made.photos), 3, 84, 84) and arrays.x.dtype == np.uint8
    for row in (0, len(made.photos) - 1):
        np.testing.assert_array_equal(arrays.x[row].transpose(1, 2, 0), as_leaf(made, made.photos[row]))
    np.testing.assert_array_equal(arrays.y, made.attributes[:, NAMES.index("Smiling")])
    np.testing.assert_array_equal(arrays.writer, made.persons)
    np.testing.assert_array_equal(arrays.attributes, made.attributes)
    assert arrays.columns == NAMES and arrays.x_test is None and arrays.attributes_test is None
    assert (arrays.y.dtype, arrays.writer.dtype, arrays.attributes.dtype) == (np.int64, np.int64, np.uint8)
    assert arrays.stats == faces.STATS and isinstance(arrays, datasets.Arrays)
    streams = capfd.readouterr()
    assert "celeba: 100%" in streams.err and not streams.out


def test_published_numbers():
    info = faces.STATS
    assert (info.rows, info.shape, info.classes) == (202_599, (3, 84, 84), 2) and "non-commercial" in info.licence
    published = {file: f"md5:{md5}" for _, md5, file in torchvision.datasets.CelebA.file_list}
    assert info.checksums == {file: published[file] for file in ("identity_CelebA.txt", "list_attr_celeba.txt")}


@pytest.mark.parametrize("place", ["celeba", "celeba/data/raw"], ids=["torchvision", "leaf"])
def test_clients(monkeypatch, tmp_path, place):
    made = make_celeba(tmp_path, place=place)
    state_checksums(monkeypatch, made)
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    arrays = celeba_clients(fraction=(0.3, 0.4), seed=3)
    enough = [person for person, size in SIZES.items() if size >= 5]
    train, test = set(arrays.writer.tolist()), set(arrays.writer_test.tolist())
    assert (len(train), len(test)) == (3, 4) and not train & test and train | test <= set(enough)
    for part, x, y, known, persons in [
        (train, arrays.x, arrays.y, arrays.attributes, arrays.writer),
        (test, arrays.x_test, arrays.y_test, arrays.attributes_test, arrays.writer_test),
    ]:
        rows = np.flatnonzero(np.isin(made.persons, list(part)))  # all photos of a celebrity, in the files' order
        np.testing.assert_array_equal(persons, made.persons[rows])
        np.testing.assert_array_equal(known, made.attributes[rows])
        np.testing.assert_array_equal(y, made.attributes[rows, NAMES.index("Smiling")])
        for k in (0, len(rows) - 1):
            np.testing.assert_array_equal(x[k].transpose(1, 2, 0), as_leaf(made, made.photos[rows[k]]))
    assert (arrays.stats.rows, arrays.stats.test_rows) == (len(arrays.y), len(arrays.y_test))
    again, other = celeba_clients(fraction=(0.3, 0.4), seed=3), celeba_clients(fraction=(0.3, 0.4), seed=4)
    np.testing.assert_array_equal(arrays.x_test, again.x_test)
    assert set(other.writer) != train


def test_only_the_drawn_photos_are_read(made, tmp_path):
    wanted = celeba_clients(tmp_path, (0.2, 0.2))
    drawn = {*wanted.writer, *wanted.writer_test}
    for photo, person in zip(made.photos, made.persons, strict=True):
        if person not in drawn:
            (made.folder / "img_align_celeba" / photo).unlink()
    np.testing.assert_array_equal(celeba_clients(tmp_path, (0.2, 0.2)).x, wanted.x)


def test_grey_photos_become_colour(made, tmp_path):
    path = made.folder / "img_align_celeba" / made.photos[0]
    PIL_Image.fromarray(np.full((9, 9), 77, np.uint8)).save(path)
    assert (load(tmp_path).x[0] == 77).all()


def test_celebrities_become_clients(made, tmp_path):
    arrays = celeba_clients(tmp_path, (0.5, 0.5))
    clients = by_user(arrays.writer).clients(arrays.x, arrays.y, classes=2)
    assert clients.id.tolist() == sorted(set(arrays.writer.tolist()))
    assert clients.n.tolist() == [SIZES[person] for person in clients.id.tolist()]


# ---- errors of files ----


@pytest.mark.parametrize("missing", ["identity_CelebA.txt", "list_attr_celeba.txt", "img_align_celeba"])
@pytest.mark.parametrize("function", [celeba_clients, load])
def test_missing_files(made, tmp_path, missing, function):
    (made.folder / missing).rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError) as caught:
        function(tmp_path)
    message = str(caught.value)
    assert message.startswith(str(made.folder / missing)) and "is not there" in message
    assert "non-commercial research only" in message and "mmlab.ie.cuhk.edu.hk" in message
    assert "celeba/img_align_celeba/*.jpg" in message
    if missing == "img_align_celeba":
        assert "photos are missing" in message


def test_identities_need_one_file(made, tmp_path):
    (made.folder / "list_attr_celeba.txt").unlink()
    np.testing.assert_array_equal(identities(tmp_path), made.persons)
    assert identities(tmp_path).dtype == np.int64


def test_one_missing_photo(made, tmp_path):
    path = made.folder / "img_align_celeba" / made.photos[5]
    path.unlink()
    with pytest.raises(FileNotFoundError, match=rf"000006\.jpg is not there: 1 of {len(made.photos)} photos"):
        load(tmp_path)


@pytest.mark.parametrize("damage", [lambda b: b[:40], lambda b: b[:-200], lambda b: b"", lambda b: b"no photo"])
def test_damaged_photos(made, tmp_path, damage):
    path = made.folder / "img_align_celeba" / made.photos[5]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"000006\.jpg cannot be read as an image .*img_align_celeba\.zip"):
        load(tmp_path)


@pytest.mark.parametrize("file", ["identity_CelebA.txt", "list_attr_celeba.txt"])
def test_other_checksums(made, tmp_path, file):
    path = made.folder / file
    path.write_text(path.read_text() + "\n")
    with pytest.raises(
        ValueError, match=rf"{file} has checksum md5:\w+, expected md5:\w+: copy it again.*verify=False"
    ):
        celeba_clients(tmp_path)
    with pytest.raises(ValueError, match=f"{file} has checksum"):
        load(tmp_path)
    assert len(celeba_clients(tmp_path, verify=False).y)


@pytest.mark.parametrize(
    ("file", "number", "line", "words"),
    [
        ("identity_CelebA.txt", 3, "000003.jpg", r"line 3 is '000003\.jpg'"),
        ("identity_CelebA.txt", 3, "000003.jpg x7", r"line 3 is '000003\.jpg x7'"),
        ("identity_CelebA.txt", 3, "000003.jpg 7 7", "line 3 is"),
        ("identity_CelebA.txt", 3, "", "line 3 is ''"),
        ("list_attr_celeba.txt", 2, "Bald Young", "expected in line 2 names of attributes, Smiling among them"),
        ("list_attr_celeba.txt", 2, "Smiling", "expected in line 2 names of attributes"),
        ("list_attr_celeba.txt", 4, "000002.jpg 1 -1", r"a line for each of the 73 photos in identity_CelebA\.txt"),
        ("list_attr_celeba.txt", 4, "000002.jpg 1 1 1 1 1 1 0", r"line 4 is '000002\.jpg 1 1 1 1 1 1 0'"),
        ("list_attr_celeba.txt", 4, "000007.jpg 1 1 1 1 1 1 1", "a line for each of the 73 photos"),
        ("list_attr_celeba.txt", 4, "", "line 4 is ''"),
    ],
)
def test_wrong_lines(made, tmp_path, file, number, line, words):
    path = made.folder / file
    lines = path.read_text().splitlines()
    lines[number - 1] = line
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=words) as caught:
        celeba_clients(tmp_path, verify=False)
    assert str(caught.value).startswith(f"{path} is damaged or another file") and "Copy it again" in str(caught.value)


def test_cut_long_and_binary_tables(made, tmp_path):
    path = made.folder / "list_attr_celeba.txt"
    whole = path.read_text()
    for content in ("\n".join(whole.splitlines()[:-3]), whole + whole.splitlines()[-1], whole[:3], ""):
        path.write_text(content)
        with pytest.raises(ValueError, match="a line for each of the 73 photos"):
            celeba_clients(tmp_path, verify=False)
    (made.folder / "identity_CelebA.txt").write_bytes(b"\x80\xff\x00\xfe" * 9)
    with pytest.raises(ValueError, match=r"identity_CelebA\.txt is damaged or another file: line 1 is"):
        identities(tmp_path, verify=False)
    (made.folder / "identity_CelebA.txt").write_bytes(b"")
    path.write_text(whole)
    with pytest.raises(ValueError, match="a line for each of the 0 photos"):
        celeba_clients(tmp_path, verify=False)


@pytest.mark.parametrize("given", ["root", "variable", "neither"])
def test_folders(monkeypatch, tmp_path, given):
    root = tmp_path / "home/.cache/fedlib" if given == "neither" else tmp_path / given
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FEDLIB_DATA", str(root) if given == "variable" else "")
    made = make_celeba(root, {7: 5, 8: 5})
    np.testing.assert_array_equal(identities(root if given == "root" else None, verify=False), made.persons)


# ---- users and attributes ----


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


@pytest.mark.parametrize("shares", [(), (0.5, 0.6), (0.0, 0.5), (-0.1, 0.5), (float("nan"),), (1.5,)])
def test_impossible_shares(shares):
    with pytest.raises(ValueError, match="shares must be above 0 and at most 1 together"):
        split_users(np.arange(9), shares)


def test_too_few_users(made, tmp_path):
    with pytest.raises(ValueError, match="9 of 9 users have 1 rows or more, too few for shares"):
        split_users(np.arange(9), (0.01, 0.5))
    with pytest.raises(ValueError, match="0 of 9 users have 2 rows or more"):
        split_users(np.arange(9), min_rows=2)
    with pytest.raises(ValueError, match="fraction must have a share for training and one for the test"):
        celeba_clients(tmp_path, (0.6, 0.2, 0.2))


def test_client_statistics(made, tmp_path):
    sizes = np.array([size for size in SIZES.values() if size >= 5])
    row = client_statistics(identities(tmp_path), min_rows=5)
    expected = {"clients": len(sizes), "samples": sizes.sum(), "mean": sizes.mean(), "stdev": sizes.std()}
    assert row == pytest.approx(expected)
    with pytest.raises(ValueError, match="no user has 99 rows or more"):
        client_statistics(identities(tmp_path), min_rows=99)


def test_client_statistics_of_femnist(tmp_path):
    for split, users in (("train", {"f1": 3, "f0": 2}), ("test", {"f2": 4, "f0": 1})):
        entries = {user: {"x": [[1.0] * 784] * size, "y": [0] * size} for user, size in users.items()}
        content = {"users": [*users], "num_samples": [*users.values()], "user_data": entries}
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.json").write_text(json.dumps(content))
    arrays = datasets.leaf(tmp_path)
    row = client_statistics(np.concatenate([arrays.writer, arrays.writer_test]))
    assert row == pytest.approx({"clients": 3, "samples": 10, "mean": 10 / 3, "stdev": np.std([3, 3, 4])})


def test_attribute_domains():
    random = np.random.RandomState(0)
    attributes = random.randint(0, 2, (200, len(NAMES))).astype(np.uint8)
    found = attribute_domains(attributes, NAMES)
    assert found.metadata.shape == (32, 5) and len(np.unique(found.metadata, axis=0)) == 32
    own = attributes[:, [NAMES.index(name) for name in PAPER_ATTRIBUTES]]
    np.testing.assert_array_equal(found.metadata[found.domain], own)
    assert found.metadata[0b10010].tolist() == [1, 0, 0, 1, 0]
    smiling = attributes[:, NAMES.index("Smiling")]
    for name, value in found.correlation.items():
        assert value == pytest.approx(np.corrcoef(attributes[:, NAMES.index(name)], smiling)[0, 1])
    assert tuple(found.correlation) == PAPER_ATTRIBUTES
    graph = hamming(found.metadata)
    assert graph.shape == (32, 32) and graph[0, 1] == graph[0, 16] > graph[0, 3]


def test_attributes_that_never_change():
    attributes = np.array([[1, 0, 1], [1, 1, 0]])
    found = attribute_domains(attributes, ("Young", "Bald", "Smiling"), ("Young", "Bald"))
    assert found.domain.tolist() == [2, 3]
    assert np.isnan(found.correlation["Young"]) and found.correlation["Bald"] == -1


@pytest.mark.parametrize(
    ("attributes", "chosen", "words"),
    [
        (np.zeros((4, 7)), ("Bald",), r"unknown are \['Bald'\]"),
        (np.zeros((4, 7)), ("Wavy_Hair", "Wavy_Hair"), "choose different attributes out of"),
        (np.zeros((4, 7)), (), "choose different attributes out of"),
        (np.full((4, 7), -1), ("Wavy_Hair",), "attributes must be 0 or 1"),
        (np.zeros((4, 6)), ("Wavy_Hair",), "one column for each of 7 names"),
        (np.zeros(7), ("Wavy_Hair",), "one column for each of 7 names"),
    ],
)
def test_wrong_attributes(attributes, chosen, words):
    with pytest.raises(ValueError, match=words):
        attribute_domains(attributes, NAMES, chosen)


# ---- the network ----

DOUBLE = torch.float64
SMALL = CelebACNN((2, 11, 9), filters=3, blocks=3, classes=2)  # odd sides at each block
ALL = ("conv1", "conv2", "conv3", "dense1")
LAYERS = {"last": ("conv3",), "all": ALL, "some": ("conv1", "dense1"), "dense": ("dense1",)}


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape))


def weights(*shape, seed=1):
    return normal(*shape, seed=seed).softmax(-1)


def moved(params, seed=2):
    """The parameters in float64, away from a start where gamma is 1 and beta 0."""
    shifts = {name: normal(*p.shape, seed=seed + k) for k, (name, p) in enumerate(params.items())}
    return {name: p.double() + 0.3 * shifts[name] for name, p in params.items()}


def close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def test_leafs_network():
    params = CelebACNN().init(0)
    assert count(params) == 31_202
    assert params["dense1.weight"].shape == (2, 32 * 6 * 6)  # 84, 42, 21, 11, 6
    assert CelebACNN()(params, torch.rand(2, 3, 84, 84)).shape == (2, 2)
    again = CelebACNN().init(0)
    assert all(torch.equal(p, again[name]) and p.dtype == torch.float32 for name, p in params.items())
    plain = CelebANet(CelebACNN(), 4, ("conv4",)).init(0)
    assert all(torch.equal(p, plain[name]) for name, p in params.items())
    assert count(plain) == 31_202 + 4 * (9 * 32 * 32 + 3 * 32) + 1


def test_network_equals_plain_torch():
    layers, inputs = [], 2
    for _ in range(3):
        norm = nn.BatchNorm2d(3, eps=1e-3, track_running_stats=False)
        layers += [nn.Conv2d(inputs, 3, 3, padding=1), norm, nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()]
        inputs = 3
    plain = nn.Sequential(*layers, nn.Flatten(), nn.Linear(3 * 2 * 2, 2)).double()
    params = moved(SMALL.init(0))
    assert {name: p.shape for name, p in params.items()}.keys() >= {"conv3.gamma", "conv3.beta", "dense1.bias"}
    plain.load_state_dict(dict(zip(plain.state_dict(), params.values(), strict=True)))
    x = normal(6, 2, 11, 9)
    close(SMALL(params, x), plain(x))


def by_hand(net, params, x, w_d, real):
    """Eq. 4 with a loop over samples and domains; moments over all pixels of the real rows."""
    samples = [image[None] for image in x]
    rows = [k for k in range(len(x)) if real[k]]

    def branches(layer, kind, k, function):
        """Shared part and weighted parts of the domains, of one sample."""
        out = 0.0
        if net.shared or layer not in net.layers:
            out = function(params[f"{layer}.{kind}"], None)
        if layer in net.layers:
            lam = params[f"lam.{layer}"] if net.shared else 1.0
            for d in range(net.domains):
                out = out + lam * w_d[k, d] * function(params[f"V.{layer}.{kind}"][d], d)
        return out

    def bias(layer, d):
        return params[f"{layer}.bias"] if d is None else params[f"V.{layer}.bias"][d]

    for n in range(1, net.net.blocks + 1):
        layer = f"conv{n}"
        z = [
            branches(layer, "weight", k, lambda p, d, s=s: F.conv2d(s, p, bias(layer, d), padding=1))
            for k, s in enumerate(samples)
        ]
        pixels = torch.cat([z[k] for k in rows])
        mean, variance = pixels.mean((0, 2, 3)), pixels.var((0, 2, 3), correction=0)
        samples = []
        for k, one in enumerate(z):
            gamma, beta = (branches(layer, kind, k, lambda p, _: p) for kind in ("gamma", "beta"))
            x_hat = (one - mean[:, None, None]) / torch.sqrt(variance + 1e-3)[:, None, None]
            out = gamma[:, None, None] * x_hat + beta[:, None, None]
            samples.append(torch.relu(F.max_pool2d(out, 2, ceil_mode=True)))
    return torch.cat(
        [
            branches("dense1", "weight", k, lambda p, d, s=s: F.linear(s.flatten(1), p, bias("dense1", d)))
            for k, s in enumerate(samples)
        ]
    )


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_equation_4_by_hand(layers, shared):
    net = CelebANet(SMALL, 3, layers, shared=shared)
    params = moved(net.init(0))
    x, w_d, real = normal(5, 2, 11, 9), weights(5, 3), torch.tensor([1.0, 1, 0, 1, 0], dtype=DOUBLE)
    expected = by_hand(net, params, x, w_d, real)
    close(net(params, x, w_d, real), expected)
    hard = F.one_hot(w_d.argmax(1), 3)  # integers, as they are
    close(net(params, x, hard, real), by_hand(net, params, x, hard.double(), real))


@pytest.mark.parametrize("net", [SMALL, CelebANet(SMALL, 3, ALL)], ids=["plain", "domains"])
def test_padding_does_not_count(net):
    params = {name: p.requires_grad_() for name, p in moved(net.init(0)).items()}
    x, y, w_d = normal(4, 2, 11, 9), torch.tensor([0, 1, 1, 0]), weights(4, 3)
    own = (w_d,) if isinstance(net, CelebANet) else ()

    def step(x, y, *own):
        real = torch.arange(len(x)) < 3
        out = net(params, x, *own, real=real)
        loss = cross_entropy(out, y, real.to(x))
        return out[:3], torch.autograd.grad(loss, list(params.values()))

    out, gradients = step(x, y, *own)
    for other in (x[:3], torch.cat([x[:3], 99 * normal(3, 2, 11, 9, seed=5)])):
        rows = [0, 1, 2, *[0] * (len(other) - 3)]
        changed, same = step(other, y[rows], *(w[rows] for w in own))
        close(changed, out)
        for a, b in zip(same, gradients, strict=True):
            close(a, b)
    counted = net(params, x, *own)
    assert (counted[:3] - out).abs().max() > 1e-3


def stack_of(net, clients=3, rows=4):
    """Different parameters, rows and padding for each client; one client has no real row at all."""
    each = [moved(net.init(k), seed=20 * k) for k in range(clients)]
    params = {name: torch.stack([p[name] for p in each]) for name in each[0]}
    x, y = normal(clients, rows, *net.net.image), torch.arange(clients * rows).view(clients, rows) % 2
    real = (torch.arange(rows) < torch.tensor([rows, 2, 1])[:clients, None]).double()
    return params, x, y, weights(clients, rows, net.domains), real


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_vmap_equals_loop(layers, shared):
    """Warnings are errors, so torch's "performance drop" would show."""
    net = CelebANet(SMALL, 3, layers, shared=shared)
    params, x, y, w_d, real = stack_of(net)

    def loss(params, x, y, w_d, real):
        return cross_entropy(net(params, x, w_d, real), y, real)

    names = list(params)
    stacked = [p.clone().requires_grad_() for p in params.values()]
    value = torch.vmap(loss)(dict(zip(names, stacked, strict=True)), x, y, w_d, real)
    gradients = torch.autograd.grad(value.sum(), stacked, allow_unused=True)
    for k in range(3):
        own = [p[k].clone().requires_grad_() for p in params.values()]
        alone = loss(dict(zip(names, own, strict=True)), x[k], y[k], w_d[k], real[k])
        close(value[k], alone)
        for name, a, b in zip(names, gradients, torch.autograd.grad(alone, own, allow_unused=True), strict=True):
            assert (a is None) == (b is None), name
            if a is not None:
                close(a[k], b)


def test_vmap_of_the_plain_network_and_of_gradients_inside():
    params, x, y, _, real = stack_of(CelebANet(SMALL, 3, ALL))
    params = {name: p for name, p in params.items() if name in SMALL.init(0)}

    def loss(params, x, y, real):
        return cross_entropy(SMALL(params, x, real), y, real)

    inside = torch.vmap(torch.func.grad(loss))(params, x, y, real)
    for k in range(3):
        own = {name: p[k].clone().requires_grad_() for name, p in params.items()}
        gradient = torch.autograd.grad(loss(own, x[k], y[k], real[k]), list(own.values()))
        for name, g in zip(own, gradient, strict=True):
            close(inside[name][k], g)
    close(torch.vmap(SMALL)(params, x)[1], SMALL({name: p[1] for name, p in params.items()}, x[1]))


def test_two_vmaps():
    """As FedCG's teacher "loss" nests them: domains inside, samples outside."""
    net = CelebANet(SMALL, 3, ALL)
    params, x = moved(net.init(0)), normal(4, 2, 11, 9)
    each = torch.vmap(torch.vmap(lambda x, w: net(params, x[None], w[None])[0], (None, 0)), (0, None))
    out = each(x, torch.eye(3, dtype=DOUBLE))
    for k in range(4):
        for d in range(3):
            close(out[k, d], net(params, x[k : k + 1], torch.eye(3, dtype=DOUBLE)[d : d + 1])[0])


def test_a_client_without_real_rows_stays_finite():
    net = CelebANet(SMALL, 3, ALL)
    params, x, _, w_d, _ = stack_of(net)
    real = torch.zeros(3, 4, dtype=DOUBLE)
    assert torch.vmap(net)(params, x, w_d, real).isfinite().all()
    assert net({name: p[0] for name, p in params.items()}, x[0], w_d[0], real[0]).isfinite().all()


@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_lambda_0_is_the_plain_network_bit_for_bit(layers):
    net = CelebANet(SMALL, 3, layers, lam=0.0)
    params = net.init(0)
    x, w_d, real = normal(5, 2, 11, 9).float(), weights(5, 3).float(), torch.tensor([1, 1, 1, 1, 0])
    plain = {name: p for name, p in params.items() if name in SMALL.init(0)}
    assert torch.equal(net(params, x, w_d, real), SMALL(plain, x, real))
    stack = {name: p.expand(2, *p.shape) for name, p in params.items()}
    two, three = (t.expand(2, *t.shape) for t in (x, w_d))
    alone = torch.vmap(SMALL)({name: stack[name] for name in plain}, two)
    assert torch.equal(torch.vmap(net)(stack, two, three), alone)


def test_start_of_the_modules():
    net = CelebANet(SMALL, 3, ("conv3", "dense1"), lam=0.5)
    params = net.init(0)
    assert (params["V.conv3.gamma"] == 1).all() and params["V.conv3.gamma"].shape == (3, 3)
    assert (params["V.conv3.beta"] != 0).all() and not torch.equal(*params["V.conv3.beta"][:2])
    assert params["lam.conv3"] == 0.5 and params["lam.dense1"] == 0.5
    equal = replace(net, start="equal").init(0)
    assert all(torch.equal(p[0], p[1]) for name, p in equal.items() if name.startswith("V."))
    assert not any(name.startswith(("conv3", "lam")) for name in replace(net, shared=False).init(0))


def test_wrong_settings():
    with pytest.raises(ValueError, match=r"layers must name some of \['conv1', 'conv2', 'conv3', 'dense1'\]"):
        CelebANet(SMALL, 3, ("conv4",))
    with pytest.raises(ValueError, match="without a classifier needs the weights"):
        CelebANet(SMALL, 3, ALL)({}, normal(1, 2, 11, 9))


# ---- at test ----


def with_student(domains=3):
    return CelebANet(SMALL, domains, ("conv3",), DomainClassifier((2, 11, 9), domains, channels=(3, 4)))


@pytest.mark.parametrize("net", [SMALL, with_student()], ids=["plain", "domains"])
def test_fixed_statistics(net):
    params, x = moved(net.init(0)), normal(6, 2, 11, 9)
    fixed = params | net.statistics(params, x)
    assert {name: tuple(p.shape) for name, p in fixed.items() if name not in params} == {
        f"conv{n}.{kind}": (3,) for n in (1, 2, 3) for kind in ("mean", "variance")
    }
    close(net(fixed, x), net(params, x))  # of the same rows
    close(net(fixed, x[:1]), net(params, x)[:1])  # each row by itself
    assert (net(params, x[:1]) - net(params, x)[:1]).abs().max() > 1e-3
    stack = {name: p.expand(2, *p.shape) for name, p in fixed.items()}
    close(torch.vmap(net)(stack, x.view(2, 3, *x.shape[1:])).flatten(0, 1), net(params, x))


def small_federation(sizes=(5, 3, 4), seed=0):
    return fedlib.stack_clients(
        [normal(n, 2, 11, 9, seed=seed + k) for k, n in enumerate(sizes)],
        [torch.arange(n) % 2 for n in sizes],
        ids=[10 * seed + k for k in range(len(sizes))],
    )


@pytest.mark.filterwarnings("ignore:the domains collapsed")  # FedCG's random teacher; domains are not the point
def test_scores_by_client():
    data, net = small_federation(), with_student()
    algorithm = FedCG(
        lambda p, b, w_d=None: cross_entropy(net(p, b[0], w_d, b[2]), *b[1:]),
        net=net,
        predict=net,
        gcn=DomainGCN(relu=False),
        batch_size=2,
    )
    result = fedlib.fit(algorithm, net.init(0), data, 1, progress=False, dtype=DOUBLE)
    new = small_federation((2, 6), seed=7)
    served = fedlib.new_clients(algorithm, result, new)
    table = scores_by_client(net, algorithm, served, new)
    assert list(table.columns) == ["id", "n", "accuracy"] and table["id"].tolist() == [70, 71]
    for k, n in enumerate((2, 6)):
        params = {name: p[k] for name, p in algorithm.client_params(served.state, torch.arange(2)).items()}
        x, y = new.x[new.index[k, :n]], new.y[k, :n]
        assert table["accuracy"][k] == pytest.approx(float((net(params, x).argmax(1) == y).double().mean()))
    plain = FedAvg(lambda p, b: cross_entropy(SMALL(p, b[0], b[2]), *b[1:]), predict=SMALL, batch_size=2)
    result = fedlib.fit(plain, SMALL.init(0), data, 1, progress=False)
    assert scores_by_client(SMALL, plain, result, data)["accuracy"].between(0, 1).all()


@pytest.mark.filterwarnings("ignore:the domains collapsed")  # FedCG's random teacher; domains are not the point
def test_fedcg_with_lambda_0_is_fedavg():
    data, net = small_federation(), replace(with_student(), lam=0.0)
    algorithm = FedCG(
        lambda p, b, w_d=None: cross_entropy(net(p, b[0], w_d, b[2]), *b[1:]),
        net=net,
        batch_size=2,
        frozen=("lam.conv3",),
        refresh=1,
        warm_up=1,
    )
    plain = FedAvg(lambda p, b: cross_entropy(SMALL(p, b[0], b[2]), *b[1:]), batch_size=2)
    params = net.init(0)
    ours = fedlib.fit(algorithm, params, data, 2, 2, progress=False).state.models
    theirs = fedlib.fit(plain, {n: params[n] for n in SMALL.init(0)}, data, 2, 2, progress=False).state.models
    assert all(torch.equal(ours[name], p) for name, p in theirs.items())


def test_an_algorithm_that_counts_padding_is_refused():
    careless = FedAvg(lambda p, b: cross_entropy(SMALL(p, b[0]), *b[1:]), batch_size=2)
    with pytest.raises(ValueError, match="the loss sees padded rows"):
        fedlib.fit(careless, SMALL.init(0), small_federation(), 1, progress=False)


def test_module_lists_what_it_offers():
    assert set(faces.__all__) <= set(dir(faces))
