"""`reput pipeline rebuild` and `audit`: what is typed wrong is refused before Spark starts."""

import pytest

from cli.main import main


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
