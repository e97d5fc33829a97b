"""What Spark's Python workers do between two tasks, made short.

    task | collect garbage | task | collect garbage | ...

A worker that Spark keeps for the next task looks through everything that it holds for garbage behind each one. With a
compiler, Arrow and Spark's own modules loaded that is 0.1 s each time, as long as it takes to read some 200 MiB of the log.
So what is loaded once the first task is done is put aside: it stays for as long as the worker does, and is not looked at
again. What later tasks leave behind is collected as before.
"""

import gc
import os

# Spark sets it for the processes that it means to use again, and for no others.
KEPT_WORKER = "SPARK_REUSE_WORKER"

_is_settled = False


def settle() -> None:
    """Puts aside what this process holds, if it is a worker that is kept; the first call of a process counts.

    To be called when a task is done: what it imported and compiled is there, what it read is not any more.
    """
    global _is_settled  # noqa: PLW0603 - once for the process is what is meant
    if _is_settled or KEPT_WORKER not in os.environ:
        return
    _is_settled = True
    gc.collect()  # garbage that was put aside would stay
    gc.freeze()
