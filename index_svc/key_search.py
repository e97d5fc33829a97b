"""Searches the index for a key, one page at a time.

The cursor is a commit-log offset: a page holds candidates with smaller offsets, strictly falling. So the cursor stays
valid when files are added or removed, and it tells the caller nothing that the page before did not tell.
"""

from dataclasses import dataclass

from index_svc.index_file_set import IndexFileSet
from store.errors import InvalidArgumentError, InvalidPageTokenError
from store.format.derived.index_layout import index_key, key_hash
from store.readers.index_reader import TIME_MILLIS_MAX, Walk, search_views

PAGE_SIZE_DEFAULT = 64
PAGE_SIZE_MAX = 1000


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Candidates, and how they were found.

    Attributes:
        commit_log_offsets: where they start (bytes), strictly falling.
        next_page_token: of the next page; empty if there is none.
        key_hash: hash of `topic#key`.
        walk: what the search read.
    """

    commit_log_offsets: list[int]
    next_page_token: str
    key_hash: int
    walk: Walk

    @property
    def damaged_chain_count(self) -> int:
        """Damaged chains that the search found."""
        return self.walk.damaged_chain_count


def search_key(
    files: IndexFileSet,
    topic: str,
    key: str,
    *,
    begin_millis: int | None = None,
    end_millis: int | None = None,
    page_size: int = 0,
    page_token: str = "",
    explain: bool = False,
) -> KeyPage:
    """One page of candidates for a key, newest first.

    Args:
        files: the index.
        topic: topic name.
        key: a business key or a unique key, whole.
        begin_millis: only records that may be stored at or after this; None for no limit.
        end_millis: only records that may be stored at or before this; None for no limit.
        page_size: candidates of a page; 0 = 64, more than 1,000 = 1,000.
        page_token: from the page before.
        explain: also note what the search did with each file.

    Raises:
        InvalidArgumentError: the page size is negative.
        InvalidPageTokenError: the token is not an offset.
    """
    if page_size < 0:
        raise InvalidArgumentError(f"page_size {page_size} is negative: 0 to 1000 are possible", field="page_size")
    count = min(page_size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
    walk = Walk(visits=[] if explain else None)
    hash_ = key_hash(index_key(topic, key))
    found = search_views(
        files.views(),
        hash_,
        below_offset=_cursor(page_token),
        begin_millis=begin_millis if begin_millis is not None else -TIME_MILLIS_MAX,
        end_millis=end_millis if end_millis is not None else TIME_MILLIS_MAX,
        count=count + 1,
        walk=walk,
    )
    has_more = len(found) > count
    page = found[:count]
    return KeyPage(page, str(page[-1]) if has_more else "", hash_, walk)


def _cursor(page_token: str) -> int | None:
    if not page_token:
        return None
    if not (page_token.isascii() and page_token.isdecimal() and len(page_token) <= 19):
        raise InvalidPageTokenError(f"page_token {page_token!r} was not made by this service", pageToken=page_token)
    return int(page_token)
