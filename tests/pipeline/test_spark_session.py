"""The session: our defaults where nobody says otherwise, both formats, nothing left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pipeline
from pipeline.spark_session import UnknownConfError, spark_names
from tests.pipeline.logs import write_files

WITHOUT_JAVA = """
import os, sys
import pipeline
from pipeline.spark_session import close_session
spark = pipeline.session(master="local[1]", spark_sql_shuffle_partitions=3)
java = os.environ["JAVA_HOME"]
rows = spark.read.format("commitlog").load(sys.argv[1]).where("queueId = 1").count()
process = spark.sparkContext._gateway.proc
version = spark.sparkContext._jvm.java.lang.System.getProperty("java.version")
close_session(spark)
print(rows, version, process.poll(), java, sep="\\n")
"""


def test_settings_are_named_as_spark_or_python_does() -> None:
    given = {"master": "local[2]", "spark.ui.enabled": True, "spark_sql_ansi_enabled": False, "app_name": "x"}
    assert spark_names(given) == {
        "spark.master": "local[2]", "spark.ui.enabled": "true", "spark.sql.ansi.enabled": "false", "spark.app.name": "x",
    }  # fmt: skip
    with pytest.raises(UnknownConfError, match="'cores'"):
        spark_names({"cores": 2})


def test_defaults_and_what_was_given(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.master") == "local[2]"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert conf.get("spark.ui.enabled") == "false"
    assert conf.get("spark.ui.showConsoleProgress") == "false"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
    assert spark.sparkContext.pythonExec == os.environ.get("PYSPARK_PYTHON", sys.executable)


def test_a_session_that_is_there_is_taken(spark: SparkSession) -> None:
    assert pipeline.session().sparkContext is spark.sparkContext
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert pipeline.session(**{"spark.sql.shuffle.partitions": 5}).conf.get("spark.sql.shuffle.partitions") == "5"
    spark.conf.set("spark.sql.shuffle.partitions", before)
    other = spark.newSession()
    from pipeline.spark_session import register_formats

    register_formats(other)
    register_formats(other)


@pytest.mark.spark
def test_without_a_java_of_the_machine_and_nothing_left_behind(tmp_path: Path) -> None:
    write_files(tmp_path / "store")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in (
        "bash",
        "sh",
        "env",
        "dirname",
        "readlink",
        "ps",
        "nice",
        "tr",
        "cat",
        "uname",
        "mktemp",
        "rm",
        "ls",
        "grep",
        "sed",
    ):
        for folder in ("/usr/bin", "/bin"):
            if Path(folder, name).exists():
                (tools / name).symlink_to(Path(folder, name))
                break
    environ = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_GATEWAY_PORT")}
    script = tmp_path / "run.py"
    script.write_text(WITHOUT_JAVA)
    run = subprocess.run(
        [sys.executable, script, tmp_path / "store"], cwd=tmp_path, capture_output=True, text=True, timeout=240,
        env={**environ, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    rows, version, ended, home = run.stdout.splitlines()[-4:]
    assert int(rows) > 0
    assert version.startswith("21.")
    assert ended == "0"
    assert home.startswith(str(tmp_path / "cache"))
