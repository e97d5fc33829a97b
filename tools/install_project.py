"""Make this checkout importable and give it the `reput` command, with nothing but the standard library.

    .venv/bin/python tools/install_project.py

An editable install would need a build backend and its dependencies in every environment, also in one that only serves.
What such an install amounts to is written here directly, into the environment of the interpreter that runs this:

    site-packages/reput_checkout.pth              the two source roots: the project and `protos/`
    site-packages/reput-VERSION.dist-info/        name, version, command: what `importlib.metadata` reads
    bin/reput                                     the command
"""

import pathlib
import shutil
import sys
import sysconfig
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAUNCHER = """#!{python}
import sys

from cli.main import main

sys.exit(main())
"""


def install(root: pathlib.Path, site_packages: pathlib.Path, scripts: pathlib.Path, python: str) -> None:
    """Write the path file, the distribution's metadata and the command.

    Args:
        root: the checkout.
        site_packages: where the interpreter looks for packages.
        scripts: where its commands lie.
        python: the interpreter that the command runs.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for stale in site_packages.glob(f"{project['name']}-*.dist-info"):
        shutil.rmtree(stale)
    path_file = site_packages / "reput_checkout.pth"
    path_file.write_text(f"{root}\n{root / 'protos'}\n", encoding="utf-8")

    command = scripts / "reput"
    command.write_text(LAUNCHER.format(python=python), encoding="utf-8")
    command.chmod(0o755)

    dist_info = site_packages / f"{project['name']}-{project['version']}.dist-info"
    dist_info.mkdir()
    requirements = "".join(f"Requires-Dist: {requirement}\n" for requirement in project["dependencies"])
    (dist_info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        f"Summary: {project['description']}\nRequires-Python: {project['requires-python']}\n{requirements}",
        encoding="utf-8",
    )
    (dist_info / "INSTALLER").write_text("make setup\n", encoding="utf-8")
    entry_points = "".join(f"{name} = {target}\n" for name, target in project["scripts"].items())
    (dist_info / "entry_points.txt").write_text(f"[console_scripts]\n{entry_points}", encoding="utf-8")
    written = [path_file, command, *sorted(dist_info.iterdir()), dist_info / "RECORD"]
    (dist_info / "RECORD").write_text("".join(f"{path},,\n" for path in written), encoding="utf-8")


def main() -> int:
    """Install into the environment that runs this; refuse one that is not ours alone."""
    if sys.prefix == sys.base_prefix:
        print("install_project: run it with the interpreter of a virtual environment (make setup)", file=sys.stderr)
        return 2
    scheme = sysconfig.get_paths()
    install(ROOT, pathlib.Path(scheme["purelib"]), pathlib.Path(scheme["scripts"]), sys.executable)
    return 0


if __name__ == "__main__":
    sys.exit(main())
