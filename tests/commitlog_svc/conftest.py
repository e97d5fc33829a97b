from collections.abc import Iterator

import pytest

from tests.commitlog_svc.retention_bench import Bench
from tests.support.kernels import kernel_form, kernel_mode, load_kernel, with_kernels

__all__ = ["kernel_form", "kernel_mode", "load_kernel", "with_kernels"]


@pytest.fixture(autouse=True)
def _benches_are_closed() -> Iterator[None]:
    yield
    while Bench.all:
        Bench.all.pop().files.close()
