"""Tables of what is refused: the kind of error, the words that its message must have, and the call."""

import pytest


def refusals(table, what="call"):
    """Parametrise a test over the calls of ``{kind of error: {words: call}}``; the words, a pattern, name the case."""
    cases = [(kind, words, call) for kind, calls in table.items() for words, call in calls.items()]
    return pytest.mark.parametrize(("kind", "words", what), [pytest.param(*case, id=case[1]) for case in cases])
