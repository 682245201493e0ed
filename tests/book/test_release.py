"""What a release needs besides the code: metadata that GitHub and others read, and the list of licences."""

import re
import subprocess

import pytest

from tools import badges
from tools.notebooks import ROOT

SCHEMAS = {
    "citation-file-format": ["CITATION.cff"],
    "github-workflows": [".github/workflows/*.yml"],
    "github-issue-forms": [".github/ISSUE_TEMPLATE/[!c]*.yml"],
    "dependabot": [".github/dependabot.yml"],
    "github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
}
ROW = re.compile(r"^\| \[([\w.-]+)\]\(https://\S+\) \| ([\w, ]+) \| \w[^|]+ \|$", re.M)


@pytest.mark.parametrize(("schema", "patterns"), SCHEMAS.items(), ids=SCHEMAS)
def test_files_have_the_form_that_their_readers_expect(schema, patterns, run_python):
    files = [file.relative_to(ROOT) for pattern in patterns for file in ROOT.glob(pattern)]
    assert files
    schema = ("--builtin-schema", f"vendor.{schema}")  # which check-jsonschema brings along
    run_python("-m", "check_jsonschema", "--default-filetype", "yaml", *schema, *files, cwd=ROOT)


def test_workflows_agree_on_their_actions():
    used = "".join(path.read_text(encoding="utf8") for path in (ROOT / ".github/workflows").glob("*.yml"))
    versions = set(re.findall(r"uses: (\S+)@(v\d+)\s", used))
    assert len(versions) == len({name for name, _ in versions}) >= 6
    assert used.count("uses: ") == len(re.findall(r"uses: \S+@v\d+\s", used))


def test_the_package_names_its_addresses():
    """On PyPI's page, and what pip shows."""
    table = (ROOT / "pyproject.toml").read_text(encoding="utf8").partition("[project.urls]")[2].partition("\n[")[0]
    found = dict(re.findall(r'^(\w+) = "(.+)"$', table, re.M))
    assert set(found) == {"Book", "Source", "Issues", "Changelog"}
    moved = badges.with_address(table, "https://github.com/some/one")
    assert moved.count("some/one") + moved.count("some.github.io/one") == 4


def test_no_page_installs_the_package_of_somebody_else():
    """On PyPI the name fedlib belongs to another project; ours is fedlib-book."""
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    names = [n for n in listed.split("\0") if n.endswith((".py", ".md", ".ipynb", ".yml", ".txt", ".toml", "Makefile"))]
    assert len(names) > 100
    asked = re.compile(r"pip3? install[^\n]*?[\s\"'](fedlib)(?![\w/.-])")
    for name in {*names} - {"tests/book/test_release.py"}:
        if (ROOT / name).exists():
            found = asked.search((ROOT / name).read_text(encoding="utf8"))
            assert not found, f"{name}: {found[0]}"
    assert 'name = "fedlib-book"' in (ROOT / "pyproject.toml").read_text(encoding="utf8")


def test_each_package_asked_for_is_listed_and_no_other():
    """With who asks for it, an address and a licence. A new package needs a row in book/licences.md."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf8")
    asked = {"library": re.findall(r'"(.+?)"', re.search(r"^dependencies = (.+)$", project, re.M)[1])}
    for user, folder in {"book": "", "tests": "tests/", "Flower": "flower-"}.items():
        asked[user] = (ROOT / f"{folder}requirements.txt").read_text(encoding="utf8").splitlines()
    needed = {(re.match(r"[\w.-]+", line)[0], user) for user in asked for line in asked[user] if line[:1].isalpha()}
    table = (ROOT / "book/licences.md").read_text(encoding="utf8").partition("| Package | Needed by | Licence |")[2]
    listed = [row.groups() for row in ROW.finditer(table)]
    assert [name for name, _ in listed] == sorted({name for name, _ in needed})
    assert {(name, user) for name, users in listed for user in users.split(", ")} == needed
