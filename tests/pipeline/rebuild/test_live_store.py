"""A store that is being written to: a rebuild reads what is flushed, an audit refuses."""

import pytest

from pipeline.audit.audit import refuse_unfit
from store.errors import StoreLockedError
from store.files.file_system import RealFileSystem
from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.pipeline.rebuild.test_rebuild_on_spark import LAYOUT, SETTINGS, append
from tests.support.stack import hosted_stack


def test_a_live_store_is_rebuilt_up_to_its_flushed_end_and_not_audited(tmp_path):
    with hosted_stack(tmp_path / "store", settings={**SETTINGS, "REPUT_COMMITLOG_FLUSH_MODE": "sync"}) as stack:
        append(stack, 0, 400)

        report = rebuild_here(tmp_path / "store", tmp_path / "while running", layout=LAYOUT, split_bytes=50_000)
        with pytest.raises(StoreLockedError):
            refuse_unfit(RealFileSystem(), tmp_path / "store")

        stack.wait_until_built()
    assert report.counts["record_count"] == 400
    assert any("being written to" in note for note in report.notes)
    assert_same_store(tmp_path / "while running", tmp_path / "store")
