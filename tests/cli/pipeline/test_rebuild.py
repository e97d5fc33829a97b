"""`reput pipeline rebuild` and `audit`: what is typed wrong is refused before Spark starts; what a failed query says."""

import pytest
from pyspark.errors import StreamingQueryException

from cli.main import main

QUERY_FAILED = """[STREAM_FAILED] Query [id = 83afb203] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] Traceback
  File "/x/continuous.py", line 1, in apply
store.errors.DiskFullError: no space left for /out/consumequeue: free some and try again
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rebuild", "--out", "OUT"], "--store is missing"),
        (["rebuild", "--store", "MISSING", "--out", "OUT"], "no directory"),
        (["rebuild", "--store", "EMPTY", "--out", "OUT"], "no commitlog/"),
        (["rebuild", "--store", "STORE", "--out", "STORE"], "never writes into its source"),
        (["rebuild", "--store", "STORE", "--out", "FULL"], "holds other data"),
        (["rebuild", "--store", "STORE", "--out", "OUT", "--mode", "sideways"], "--mode is 'sideways'"),
        (["rebuild", "--continuous", "--out", "OUT", "--dry-run"], "exclude each other"),
        (["rebuild", "--continuous", "--out", "s3://bucket/out"], "Name a directory"),
        (["rebuild", "--store", "STORE", "--out", "s3://bucket/out", "--mode", "scatter"], "use --mode shuffle"),
        (["rebuild", "--store", "STORE", "--out", "s3://key:secret@bucket/out"], "AWS_ACCESS_KEY_ID"),
        (["audit", "--store", "MISSING"], "no directory"),
        (["audit", "--store", "EMPTY"], "no commitlog/"),
        (["audit", "--store", "STORE", "--scratch", "FULL"], "no empty directory"),
    ],
)
def test_what_is_typed_wrong_is_refused(broker_store, tmp_path, capsys, arguments, said):
    (tmp_path / "FULL").mkdir()
    (tmp_path / "FULL/somebody's").touch()
    (tmp_path / "EMPTY").mkdir()
    names = {name: str(tmp_path / name) for name in ("OUT", "MISSING", "EMPTY", "FULL")} | {"STORE": str(broker_store)}

    assert main(["pipeline", *(names.get(word, word) for word in arguments)]) == 2

    assert said in capsys.readouterr().err
    assert not (tmp_path / "OUT").exists()


def test_a_streaming_query_that_fails_is_a_failed_disk_and_no_finding(tmp_path, capsys, monkeypatch):
    """It ended with a traceback and exit code 1, which stands for findings."""

    def fail(*arguments, **options):
        raise StreamingQueryException(QUERY_FAILED)

    monkeypatch.setattr("pipeline.session", lambda **conf: None)
    monkeypatch.setattr("pipeline.rebuild.continuous.run", fail)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)

    assert main(["pipeline", "rebuild", "--continuous", "--out", str(tmp_path / "out")]) == 4

    said = capsys.readouterr().err
    assert said == "reput: DISK_FULL: no space left for /out/consumequeue: free some and try again\n"
