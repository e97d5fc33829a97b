"""Spark as tests start it: half of the CPU of a start, and of the imports of each kind of Python process.

    .tools/spark/<digest>/    SPARK_HOME
        bin                   copies of what pip has installed
        jars                  links to it, which stay when it goes
        <digest>.jsa          the classes of a Java process as it has loaded them (class data sharing)

Java takes an archive for the same files with the same times only, so the jars of all clones of a machine lie at one path
(`.ci/run` shares `.tools/spark`). The first Spark session leaves the archive at its end, and Java processes of later ones begin
with it. Java looks itself whether it fits, and does without it otherwise.

There is no `python/lib/pyspark.zip`: Python processes of Spark import what pip has installed. From the zip each kind of them
(a planner, a worker, a sink) compiles all modules anew.
"""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

import pyspark

from pipeline.spark_session import java_home
from tests.clients.programs import build_once, home_of
from tests.rocketmq.real_broker import TOOLS

INSTALLED = Path(pyspark.__file__).resolve().parent
HOME = TOOLS.with_name("spark")
# Java's optimizing compiler costs more than it gains in processes that live for a minute, and most of a cold session.
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# What Java says of an archive that does not fit would stand among the answers that a driver prints; of one that it writes, it
# names each class that has no place there.
LOGS = "-Xlog:disable -Xlog:all=error:stderr"
# Java writes 190 MB, in half a minute of CPU.
WRITE_SECONDS_MAX = 600.0


def spark_environment() -> dict[str, str]:
    """The variables of processes that start Spark, which begin with the archive where there is one."""
    home = spark_home()
    return {"SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": java_options(archive_of(java_home(), home))}


def spark_home(parent: Path = HOME, installed: Path = INSTALLED) -> Path:
    """A home for Spark, made when its jars are new.

    Args:
        parent: of all homes.
        installed: what pip has installed.
    """
    jars = sorted((path.name, path.stat().st_size) for path in (installed / "jars").iterdir())
    home = home_of(parent.resolve(), repr((pyspark.__version__, jars)).encode())

    def build() -> None:
        for name in ("bin", "jars"):  # a build that was killed leaves parts
            shutil.rmtree(home / name, ignore_errors=True)
        shutil.copytree(installed / "bin", home / "bin")
        shutil.copytree(installed / "jars", home / "jars", copy_function=_link)

    build_once(home, build)
    return home


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)


def archive_of(java: Path, home: Path) -> Path:
    """Where the archive is, or will be.

    Args:
        java: the home of a Java.
        home: that of Spark.
    """
    release = java / "release"
    key = str(java.resolve()), release.stat().st_mtime_ns if release.exists() else 0
    return home / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.jsa"


def java_options(archive: Path) -> str:
    """The options of a Java process that begins with an archive, where there is one."""
    return f"{SHORT_LIFE} -XX:SharedArchiveFile={archive} {LOGS}" if archive.exists() else SHORT_LIFE


class NewArchive:
    """An archive that one Java process writes when it ends.

    Args:
        archive: where it is to be.

    Attributes:
        java_options: of that process.
    """

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        # Runs that are side by side write files of their own; the last one stays.
        self._written = archive.with_suffix(f".{os.getpid()}")
        self.java_options = f"{SHORT_LIFE} -XX:ArchiveClassesAtExit={self._written} {LOGS}"

    def keep(self) -> None:
        """Put what the process has written in its place.

        The process has ended cleanly: Java crashes on an archive of which the end is missing.
        """
        with contextlib.suppress(FileNotFoundError):  # this Java cannot write one
            self._written.rename(self._archive)
