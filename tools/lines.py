"""``make lines``: the library's lines of code, without docstrings, comments and blanks."""

import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER}
_BETWEEN = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}  # two statements


def lines(path: Path) -> int:
    """Lines of a file that hold code; a statement that is a text is a docstring."""
    code: set[int] = set()
    begins = True
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in _BETWEEN:
                begins = True
            elif token.type not in _NO_CODE:
                if token.type != tokenize.STRING or not begins:
                    code |= set(range(token.start[0], token.end[0] + 1))
                begins = False
    return len(code)


if __name__ == "__main__":
    counts = {path.relative_to(ROOT): lines(path) for path in sorted((ROOT / "fedlib").rglob("*.py"))}
    print(*(f"{n:6,} {name}" for name, n in counts.items()), f"{sum(counts.values()):6,} in all", sep="\n")
