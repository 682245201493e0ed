"""Checks of exercises must refuse wrong answers: what a wrong answer is made of, and the demand."""

import contextlib
import io

from tools import exercises


def edited(solution: str, old: str, new: str) -> str:
    """A wrong answer: `solution` with `new` instead of `old`, which occurs once; an empty `old` is the whole text.

    Raises
    ------
    ValueError
        If the solution has changed and `old` does not occur in it once.
    """
    if not old:
        return new
    if solution.count(old) != 1:
        raise ValueError(f"{old!r} stands {solution.count(old)} times in the solution, not once; mend the wrong answer")
    return solution.replace(old, new)


def demand_refusal(mistake: str, answer: str, check: str, names: dict, hint: str = "") -> None:
    """Run an answer and its check on a copy of `names`, and demand that the check refuses the answer.

    Parameters
    ----------
    mistake : str
        What is wrong, for the message.
    answer, check : str
        Code of both cells.
    names : dict
        What is defined where the answer stands. Nothing is added to it or taken from it.
    hint : str
        Words that the refusal must hold, so that it is refused for what is wrong.

    Raises
    ------
    AssertionError
        If the check accepts the answer, gives another hint, or fails otherwise than by an assertion. A stub, which
        answers nothing, may make it fail in any way.
    """
    scope = dict(names)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(compile(answer, "<answer>", "exec"), scope)
        except NotImplementedError:
            if answer != exercises.STUB:
                raise
        try:
            exec(compile(check, "<check>", "exec"), scope)
        except AssertionError as refusal:
            if hint in str(refusal):
                return
            raise AssertionError(f"{mistake}: the check says {str(refusal)!r}, and not {hint!r}") from refusal
        except Exception as error:
            if answer == exercises.STUB:
                return
            raise AssertionError(f"the check has no assertion against: {mistake}; it broke: {error!r}") from error
    raise AssertionError(f"the check accepts a wrong answer: {mistake}")
