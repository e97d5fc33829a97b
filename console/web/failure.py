"""A failure as a page shows it: the reason by name, the gateway's error text, and a hint."""

from dataclasses import dataclass

from console.words import Words
from services.status import reason_of, to_status
from store.errors import StoreError

# By gRPC's code, as google.rpc.Code maps to HTTP.
HTTP_STATUS_BY_CODE = {
    3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 409, 11: 400, 12: 501, 13: 500, 14: 503, 15: 500, 16: 401,
}  # fmt: skip
_RETRY_STATUSES = (429, 503, 504)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure.

    Attributes:
        reason: as in ErrorInfo.
        title: in the reader's language.
        message: the gateway's error text.
        explanation: the same in the reader's language, less detailed; empty in English.
        hint: what to do, in the reader's language; may be empty.
        status_code: the HTTP status.
    """

    reason: str
    title: str
    message: str
    hint: str
    status_code: int
    explanation: str = ""

    @property
    def may_retry(self) -> bool:
        """Whether the same request may work in a moment."""
        return self.status_code in _RETRY_STATUSES


def failure_of(error: StoreError, words: Words) -> Failure:
    """The failure for an error, by its gRPC code."""
    status_code = HTTP_STATUS_BY_CODE.get(to_status(error).code, 500)
    title, hint = {
        400: (words("The request is not valid"), ""),
        401: (words("Sign in"), ""),
        403: (words("Not allowed"), words("A client with another role may see it.")),
        404: (words("Not found"), ""),
        429: (words("Too busy"), words("Try again in a moment.")),
        503: (
            words("The store does not answer"),
            words("Try again in a moment; the page Store shows which service is down."),
        ),
        504: (words("It took too long"), words("Ask for less, or try again.")),
    }.get(status_code, (words("It failed"), ""))
    reason = reason_of(type(error))
    return Failure(reason, title, error.message, hint, status_code, words.reason(reason))
