"""Result files: whole or not at all; tables say what is stored."""

import pytest

from book import results

FIGURES = {
    "FedAvg": {"last": {"0": 0.5, "1": 0.6, "2": 0.7}, "first": {"0": 0.1, "1": 0.2, "2": 0.3}},
    "alone": {"last": {"0": 0.4, "1": 0.5, "2": 0.6}, "first": {"0": 0.1, "1": 0.3, "2": 0.2}},
    "grid": {"one": {"FedAvg": {"0": 0.25}}, "two": {"FedAvg": 3}},
}


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "sub" / "01_x.json"
    results.save(path, FIGURES, {"rounds": 3}, {"x": "sha256:0"}, 1.23, {"FedAvg": [1.0]})
    return path


def test_round_trip(record, tmp_path, monkeypatch):
    loaded = results.load(record)
    assert loaded["figures"] == FIGURES and loaded["settings"] == {"rounds": 3} and loaded["probe"] == {"FedAvg": [1.0]}
    made = loaded["provenance"]
    assert made["seconds"] == 1.2 and {"date", "device", "threads", "versions", "commit"} <= set(made)
    assert not any("hash" in name for name in made), "a result belongs to behaviour, not to source text"
    monkeypatch.chdir(tmp_path)  # a result of the book is found by name from any folder
    assert results.load("fedavg")["settings"]["targets"]


def test_a_failed_write_leaves_the_old_file(record):
    before = record.read_bytes()
    with pytest.raises(ValueError, match="nan"):
        results.save(record, {"accuracy": float("nan")}, {}, {}, seconds=1)
    assert record.read_bytes() == before and list(record.parent.iterdir()) == [record]


def test_large_numbers_have_no_decimals_and_nothing_has_no_minus(tmp_path):
    path, figures = tmp_path / "01_z.json", {"a": {"x": {"0": -0.0001, "1": -0.0002}}, "b": {"x": {"0": 0.0, "1": 0.0}}}
    results.save(path, figures, {}, {}, 1)
    assert results.table(path, ["a"], {"x": "x"}).iloc[0, 0].startswith("0.000 ±")
    results.save(path, {"a": {"MB": 1357.6321, "gain": -0.25}, "b": {"MB": 0.4, "gain": 1.0}}, {}, {}, 1)
    table = results.table(path, ["a", "b"], {"MB": "MB", "gain": "gain"})
    assert table["MB"].tolist() == ["1,358", "0"] and table["gain"].tolist() == ["\N{MINUS SIGN}0.250", "1.000"]


@pytest.mark.parametrize("text", ["[1, 2]", '{"figures": {}}'], ids=["a list", "something else"])
def test_what_is_no_result_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"x\.json is no result"):
        results.load(path)


def test_table_shows_mean_and_interval(record):
    table = results.table(record, ["FedAvg", "alone"], {"at the end": "last", "never": "nothing"}, digits=2)
    assert table.loc["FedAvg"].tolist() == ["0.60 ± 0.25", "n/a"] and list(table.columns) == ["at the end", "never"]
    deep = results.table(record, {"one": ("grid", "one"), "two": ("grid", "two")}, {"FedAvg": "FedAvg"})
    assert deep["FedAvg"].tolist() == ["0.2", "3.0"]  # one seed, and a number; a count has one digit


def test_what_is_missing_says_what_there_is(record):
    with pytest.raises(FileNotFoundError, match=r"there is no result .*none.json.*there are .*01_x"):
        results.load(record.with_name("none.json"))
    with pytest.raises(FileNotFoundError, match="there are .*fedavg"):
        results.load("99_nothing")
    with pytest.raises(KeyError, match=r"'IFCA' is not among \['FedAvg', 'alone', 'grid'\]"):
        results.table(record, ["IFCA"], {"at the end": "last"})
