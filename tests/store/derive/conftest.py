from tests.support.kernels import kernel_mode, with_kernels

__all__ = ["kernel_mode", "with_kernels"]
