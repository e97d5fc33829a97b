"""All rows by number."""

from benchmarks.row import Row
from benchmarks.rows.batched_append import OneKib, Small
from benchmarks.rows.cold_query import ColdQuery
from benchmarks.rows.findable import Findable
from benchmarks.rows.growth import Growth
from benchmarks.rows.memory import Memory
from benchmarks.rows.queries import Queries
from benchmarks.rows.rebuild import Rebuild
from benchmarks.rows.restart import Restart
from benchmarks.rows.start import Start
from benchmarks.rows.unary_append import SyncUnary, Unary
from benchmarks.sizes import Sizes

_ROWS: tuple[type[Row], ...] = (
    OneKib, Small, Unary, SyncUnary, Findable, Queries, ColdQuery, Rebuild, Restart, Memory, Start, Growth,
)  # fmt: skip
NUMBERS = tuple(row.number for row in _ROWS)


def make(number: int, sizes: Sizes) -> Row:
    """The row of a number."""
    return _ROWS[NUMBERS.index(number)](sizes)
