from tests.support.kernels import kernel_form, kernel_mode, load_kernel, with_kernels

__all__ = ["kernel_form", "kernel_mode", "load_kernel", "with_kernels"]
