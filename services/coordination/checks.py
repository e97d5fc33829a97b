"""What every record store asks of a document before it is sent."""

from services.coordination.port import DATA_BYTES_MAX
from store.errors import InvalidArgumentError


def checked_text(data: bytes) -> str:
    """The document as text.

    Raises:
        InvalidArgumentError: it is too long or no UTF-8.
    """
    if len(data) > DATA_BYTES_MAX:
        raise InvalidArgumentError(
            f"the record of a shard has {len(data)} bytes, {DATA_BYTES_MAX} are allowed: name fewer replicas",
            field="data",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"the record of a shard is no UTF-8: {error}", field="data") from error
