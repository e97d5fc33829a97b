"""Background: work that goes on in threads of its own for the time of a block."""

import threading
from collections.abc import Callable, Iterable
from typing import Self

END_SECONDS_MAX = 180.0


class Background:
    """Calls each function in a thread of its own for the time of the block; they are to end once `stopping` is set.

    Args:
        work: the functions.

    Attributes:
        stopping: set at the end of the block.
        error: what a function raised, the first one; the end of the block raises it.
    """

    def __init__(self, work: Iterable[Callable[[], object]]) -> None:
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self._threads = [threading.Thread(target=self._do, args=(each,), daemon=True) for each in work]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(END_SECONDS_MAX)
            assert not thread.is_alive()
        if self.error is not None:
            raise self.error

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            self.error = self.error or error
