"""Long files first, Spark's together: tests in a project of their own, with real workers."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
FILES = {
    "test_a_plain.py": "def test_plain(): note(__file__)\n",
    "test_b_waits.py": "import subprocess\n\n\ndef test_waits(): note(__file__)\n",
    "test_c_spark.py": "def test_one(spark): note(__file__)\n",
    "test_d_spark.py": "def test_other(\n    tmp_path, spark\n): note(__file__)\n",
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
        (folder / name).write_text(NOTE + text)
    (folder / "conftest.py").write_text("import pytest\n\n\n@pytest.fixture(scope='session')\ndef spark(): return 1\n")
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


def test_one_process_runs_spark_first_then_what_waits_then_the_rest(tmp_path: pathlib.Path) -> None:
    ran = [file for _, file in notes_of(tmp_path)]

    assert ran == ["test_c_spark.py", "test_d_spark.py", "test_b_waits.py", "test_a_plain.py"]


def test_of_two_processes_one_has_all_of_sparks_files(tmp_path: pathlib.Path) -> None:
    ran = notes_of(tmp_path, "-n", "2")

    assert sorted(file for _, file in ran) == sorted(FILES)
    assert len({worker for worker, file in ran if "spark" in file}) == 1
    assert len({worker for worker, _ in ran}) == 2
