from tests.gateway.search.conftest import sandbox  # noqa: F401  # searches evaluate there, too
