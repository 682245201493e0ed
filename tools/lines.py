"""``make lines``: the library's lines of code, without docstrings, comments and blanks."""

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BESIDE = ("__init__", "progress_bar")  # the other files at the top are one round
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines(path: Path) -> int:
    """Lines of a file that hold code."""
    text, documented = path.read_text(encoding="utf8"), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - documented)


if __name__ == "__main__":
    counts = {path.relative_to(ROOT): lines(path) for path in sorted((ROOT / "fedlib").rglob("*.py"))}
    for name, count in counts.items():
        print(f"{count:6,} {name}")
    top = {name: count for name, count in counts.items() if name.parent == Path("fedlib") and name.stem not in BESIDE}
    print(f"{sum(top.values()):6,} the {len(top)} files of one round\n{sum(counts.values()):6,} in all")
