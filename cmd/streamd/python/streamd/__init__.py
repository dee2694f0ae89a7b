"""streamd from Python: a client of a running daemon, a classifier, sums of any engine, and the program.

    from streamd import Client

    with Client("http://127.0.0.1:8080") as daemon:
        answers = daemon.predict(frame)
        receipt = daemon.retire(keys=["customer-17"])

The command `streamd` comes with the package; `python -m streamd` is the same.
"""

from typing import TYPE_CHECKING, Any

from ._errors import APIError, StreamdError, UnreachableError
from ._program import ProgramError, find_program
from .client import Client, Receipts
from .local import Local
from .push import push, replay
from .summaries import summarise

if TYPE_CHECKING:
    from .classifier import Classifier


def __getattr__(name: str) -> Any:
    # Only who uses the classifier needs scikit-learn.
    if name == "Classifier":
        from .classifier import Classifier

        return Classifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["APIError", "Classifier", "Client", "Local", "ProgramError", "Receipts", "StreamdError", "UnreachableError", "find_program", "push", "replay", "summarise"]
