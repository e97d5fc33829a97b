"""Shortens the garbage collection that Spark's Python workers do between two tasks.

    task | collect garbage | task | collect garbage | ...

A worker that Spark keeps for the next task runs a whole garbage collection after each one. With a compiler, Arrow and
Spark's own modules loaded, each takes 0.1 s, as long as reading about 200 MiB of the log. So the objects that are loaded
when the first task is done are frozen (`gc.freeze`): they live as long as the worker, and later collections skip them.
Objects of later tasks are collected as before.
"""

import gc
import os

# Spark sets it only for the processes that it will use again.
KEPT_WORKER = "SPARK_REUSE_WORKER"

_is_settled = False


def settle() -> None:
    """Freezes the objects of this process, if it is a worker that Spark keeps; only the first call has an effect.

    Call it when a task is done: the modules and kernels are loaded then, and the data that the task read is freed.
    """
    global _is_settled  # noqa: PLW0603 - the state belongs to the process
    if _is_settled or KEPT_WORKER not in os.environ:
        return
    _is_settled = True
    gc.collect()  # frozen garbage would never be freed
    gc.freeze()
