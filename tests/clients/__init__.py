"""Official RocketMQ clients, unmodified, consume from a server: Reput, or the real RocketMQ, which proves the cases right."""

import pytest

# Their assertions are run outside of a test's own module.
pytest.register_assert_rewrite("tests.clients.cases", "tests.clients.stage", "tests.clients.programs")
