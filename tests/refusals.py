"""Tests of what is refused, from tables."""

import pytest


def refusals(table, act=lambda call: call()):
    """A test of ``{kind of error: {words that its message has: call}}``; the words, a pattern, name the case."""
    cases = [(kind, words, call) for kind, calls in table.items() for words, call in calls.items()]

    @pytest.mark.parametrize(("kind", "words", "call"), cases, ids=[words for _, words, _ in cases])
    def test(kind, words, call):
        with pytest.raises(kind, match=words):
            act(call)

    return test
