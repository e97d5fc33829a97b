"""The home of Spark in tests: made once for a machine, with an archive of classes that only a fitting Java takes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.spark_session import java_home
from tests.pipeline.spark_home import INSTALLED, SHORT_LIFE, NewArchive, archive_of, java_options, spark_environment
from tests.pipeline.spark_home import spark_home as home_below

# A program of Spark's that needs one jar and ends at once.
LAUNCHER = "org.apache.spark.launcher.Main"


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    (launcher,) = (INSTALLED / "jars").glob("spark-launcher_*.jar")
    return Path(shutil.copy(launcher, tmp_path))


@pytest.fixture
def archive(jar: Path) -> Path:
    """What a first process has left."""
    archive = jar.with_name("classes.jsa")
    new = NewArchive(archive)
    run_launcher(jar, new.java_options)
    assert java_options(archive) == SHORT_LIFE, "it is not in its place yet"
    new.keep()
    if not archive.exists():
        pytest.skip("this Java writes no archive")
    return archive


def run_launcher(jar: Path, options: str) -> subprocess.CompletedProcess[str]:
    command = [java_home() / "bin" / "java", *options.split(), "-cp", jar, LAUNCHER]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert "Not enough arguments" in ended.stderr, (ended.stdout, ended.stderr)
    return ended


def test_a_later_process_begins_with_the_classes_of_the_first_one(jar: Path, archive: Path) -> None:
    loaded = run_launcher(jar, f"{java_options(archive)} -Xlog:class+load:stdout").stdout

    assert f"{LAUNCHER} source: shared objects file (top)" in loaded


@pytest.mark.parametrize("change", ["head", "jar"])
def test_an_archive_that_does_not_fit_is_not_taken_and_no_answer_has_words_of_it(
    jar: Path, archive: Path, change: str
) -> None:
    if change == "jar":
        os.utime(jar, (0, 0))
    else:
        content = archive.read_bytes()
        archive.unlink()
        archive.write_bytes(bytes(4096) + content[4096:])

    assert run_launcher(jar, java_options(archive)).stdout == ""


def test_a_process_that_wrote_no_archive_leaves_the_one_that_is_there(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    archive.write_bytes(b"old")

    NewArchive(archive).keep()

    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(archive, b"old")]


def test_each_java_has_an_archive_of_its_own(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.mkdir()
    first = archive_of(java, tmp_path)
    assert archive_of(java, tmp_path) == first
    (java / "release").write_text('JAVA_VERSION="21"\n')

    assert len({first, archive_of(java, tmp_path), archive_of(tmp_path, tmp_path)}) == 3


def test_a_home_is_made_once_and_anew_for_other_jars(tmp_path: Path) -> None:
    installed = tmp_path / "pyspark"
    for name in ("bin/spark-submit", "jars/a.jar", "python/lib/pyspark.zip"):
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(name)
    home = home_below(tmp_path / "homes", installed)
    assert {path.relative_to(home).as_posix() for path in home.glob("*/*")} == {"bin/spark-submit", "jars/a.jar"}
    assert (home / "jars/a.jar").stat().st_mtime_ns == (installed / "jars/a.jar").stat().st_mtime_ns
    (home / "classes.jsa").touch()

    shutil.copytree(installed, tmp_path / "other clone")
    shutil.rmtree(installed)
    assert home_below(tmp_path / "homes", tmp_path / "other clone") == home
    assert (home / "classes.jsa").exists()
    assert (home / "jars/a.jar").read_text() == "jars/a.jar"

    (tmp_path / "other clone/jars/b.jar").touch()
    assert home_below(tmp_path / "homes", tmp_path / "other clone") != home


def test_python_processes_import_what_pip_has_installed_when_spark_puts_its_own_home_first() -> None:
    home = spark_environment()["SPARK_HOME"]
    path = os.pathsep.join(f"{home}/python/lib/{name}" for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip"))
    code = "import pyspark.worker, py4j; print(pyspark.__file__)"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )

    assert Path(ended.stdout.strip()).resolve().parent == INSTALLED
