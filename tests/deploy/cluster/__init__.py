"""Tests of `reput cluster`."""
