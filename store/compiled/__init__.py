"""How kernels are compiled, cached and loaded, and the byte and CRC-32 functions that they share."""
