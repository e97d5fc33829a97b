"""The jobs: `reput pipeline NAME`."""
