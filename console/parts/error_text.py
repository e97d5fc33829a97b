"""The text of an error in the language of the reader."""

from google.rpc import status_pb2

from console.words import Words
from services.status import from_status, reason_of
from store.errors import StoreError


def error_text(words: Words, error: StoreError | status_pb2.Status) -> str:
    """The explanation of its reason in that language, and the error's own text; in English the text alone."""
    known = error if isinstance(error, StoreError) else from_status(error)
    explanation = words.reason(reason_of(type(known)))
    return f"{explanation}（{known.message}）" if explanation else known.message
