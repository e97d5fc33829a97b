"""The flags that the real mqadmin's help names are those that the verbs here take; no broker is started."""

import pytest

from tests.cli.mqadmin.facts import VERBS, all_flags, flags_of
from tests.rocketmq import real_broker

pytestmark = [
    pytest.mark.rocketmq,
    pytest.mark.timeout(900),
    pytest.mark.skipif(real_broker.why_unavailable() is not None, reason=str(real_broker.why_unavailable())),
]


def test_the_real_mqadmin_has_no_flag_that_the_kept_help_lacks() -> None:
    kept = {each[:4] for each in all_flags()}
    for verb in VERBS:
        shown = real_broker.clients(real_broker.VERSION).run(real_broker.MQADMIN, "help", verb)
        flags = {each[:4] for each in flags_of(shown[shown.index("usage: ") :])}  # lines of a log may come first
        assert len(flags) > 2
        assert flags - kept == set(), verb
