"""Long files first, those of a shared fixture together: tests in a project of their own, with real workers."""

import os
import pathlib
import subprocess
import sys

from tests.support import scheduling

ROOT = pathlib.Path(__file__).parents[2]
FILES = {
    "test_a_plain.py": "def test_plain(): note(__file__)\n",
    "test_b_waits.py": "import subprocess\n\n\ndef test_waits(): note(__file__)\n",
    "test_c_spark.py": "def test_one(spark): note(__file__)\n",
    "test_d_spark.py": "def test_other(\n    tmp_path, spark\n): note(__file__)\n",
    "test_e_image.py": "def test_image(serve_image): note(__file__)\n",
    "test_f_image.py": "def test_again(serve_image): note(__file__)\n",
    "tests/rocketmq/test_mirror.py": "def test_mirror(): note(__file__)\n",
    "tests/rocketmq/test_follow.py": "def test_follow(): note(__file__)\n",
}
NOTE = """
import os, pathlib
def note(file):
    with open("notes", "a") as notes:
        notes.write(f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')} {pathlib.Path(file).name}\\n")
"""


def notes_of(folder: pathlib.Path, *options: str) -> list[list[str]]:
    """Who ran which file, in their order."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(NOTE + text)
    fixtures = "".join(f"\n\n@pytest.fixture(scope='session')\ndef {name}(): return 1\n" for name in scheduling.SHARED)
    (folder / "conftest.py").write_text(f"import pytest\n{fixtures}")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "notes").write_text("")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.support.scheduling",
        "-p",
        "no:cacheprovider",
        *options,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=folder, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in (folder / "notes").read_text().splitlines()]


def test_one_process_runs_shared_fixtures_first_then_the_longest_then_what_waits(tmp_path: pathlib.Path) -> None:
    ran = [file for _, file in notes_of(tmp_path)]

    assert ran == [
        *("test_c_spark.py", "test_d_spark.py", "test_e_image.py", "test_f_image.py"),
        *("test_mirror.py", "test_follow.py", "test_b_waits.py", "test_a_plain.py"),
    ]


def test_of_two_processes_each_shared_fixture_is_in_one(tmp_path: pathlib.Path) -> None:
    ran = notes_of(tmp_path, "-n", "2")

    assert sorted(file for _, file in ran) == sorted(pathlib.Path(name).name for name in FILES)
    for shared in ("spark", "image"):
        assert len({worker for worker, file in ran if shared in file}) == 1
    assert len({worker for worker, _ in ran}) == 2


def test_files_with_a_recorded_time_are_there() -> None:
    assert [name for name in scheduling.SECONDS if not (ROOT / name).is_file()] == []
