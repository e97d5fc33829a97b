"""Compiled twins of the codecs that see every byte.

A kernel is a module here whose name ends in `_kernel`: it alone imports numba, and nothing but `loading` imports it. Its
plain twin lies in a module without that ending, serves until the kernel is ready, decides whatever the kernel finds
unusual, and gives the expected values of its tests.
"""
