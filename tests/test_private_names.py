"""fedlib uses no private name of torch: the next release may not have it."""

import re

import pytest

from tools.notebooks import ROOT

FILES = sorted((ROOT / "fedlib").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_private_name(path):
    found = re.findall(r"\btorch(?:\.\w+)*\._(?!_version)\w+|from torch\S*\._\w+", path.read_text(encoding="utf8"))
    assert not found, f"{found}: take a public name"


def test_the_pattern_sees_them():
    pattern = r"\btorch(?:\.\w+)*\._(?!_version)\w+|from torch\S*\._\w+"
    assert re.search(pattern, "torch._C._functorch") and re.search(pattern, "from torch._functorch.x import y")
    assert re.search(pattern, "torch.nn._x") and not re.search(pattern, "torch.__version__ torch.nn.init.ones_")
