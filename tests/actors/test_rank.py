"""What a rank tells of the exception that ended it: enough to understand it, however much the exception says."""

from __future__ import annotations

from actors.rank import LINE_LIMIT, TRACEBACK_LIMIT, bounded_traceback


def _raised(message: str, cause: BaseException | None = None) -> BaseException:
    try:
        raise RuntimeError(message) from cause
    except RuntimeError as error:
        return error


def test_a_short_traceback_is_whole() -> None:
    told = bounded_traceback(_raised("outer", _raised("inner")))
    assert told.startswith("Traceback (most recent call last):\n")
    assert "RuntimeError: inner\n\nThe above exception was the direct cause" in told
    assert told.endswith("\nRuntimeError: outer\n")


def test_a_message_of_megabytes_is_cut() -> None:
    """A tensor as text: on one line, or on a hundred thousand."""
    told = bounded_traceback(_raised("x" * 3_000_000))
    assert told.startswith("Traceback")
    assert told.endswith("xxx ...\n")
    assert len(told) < 2 * LINE_LIMIT
    told = bounded_traceback(_raised("0.5\n" * 100_000 + "of shape (100000,)"))
    assert told.startswith("Traceback")
    assert told.endswith("of shape (100000,)\n")
    assert len(told) < TRACEBACK_LIMIT + 100
