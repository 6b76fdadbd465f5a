"""Where a fault of the program arose, without its text: that may quote a token or what was under a seal.

A log that names the kind of an exception and nothing else leaves whoever reads it without a place to look at;
a traceback says too much (RL-ERROR-007, RL-PRIVACY-001).
"""

from typing import Final

__all__ = ["whereabouts"]

_STEPS: Final = 6


def whereabouts(error: BaseException) -> str:
    """Return the kind of ``error`` and the places it came through, the innermost first.

    For example ``KeyError at calls.py:112 find, hub.py:250 receive``: names of the program's own files and
    functions, at most six, and no value.
    """
    places: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    kind = type(error).__name__
    return f"{kind} at {', '.join(places[: -_STEPS - 1 : -1])}" if places else kind
