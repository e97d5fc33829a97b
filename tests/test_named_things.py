"""What texts tell a person to run, install or read exists: extras, modules, make targets, verbs, settings and files."""

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import cli.main
from services.settings.setting_names import SETTINGS

ROOT = Path(__file__).parent.parent
# History and decisions say what was true when they were written.
LEFT_OUT = (
    "docs/adr/",
    "CHANGELOG.md",
    "docs/profiles/",
    "docs/reports.md",
    "tests/fixtures/",
    "requirements/",
    "benchmarks/RESULTS.md",
)
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml", ".html", ".tpl", ".ipynb", ".sh", ".txt", ""}
# Of an example: "`store/derive/x.py` has `tests/store/derive/test_x.py`".
PLACEHOLDER = re.compile(r"/(?:test_)?x\.py$")
PROJECTS = {"reput": "pyproject.toml", "reput-client": "distributions/reput-client/pyproject.toml"}


@cache
def texts() -> dict[str, str]:
    """The text of each file of the repository, without tests, which name what must not exist, too."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in listed
        if Path(name).suffix in SUFFIXES and not name.startswith(("tests/", *LEFT_OUT)) and (ROOT / name).is_file()
    }


def named(pattern: str, files: tuple[str, ...] = ("",)) -> set[tuple[str, str]]:
    """File and first group of each match of a pattern."""
    return {
        (name, match.group(1))
        for name, text in texts().items()
        if name.startswith(files)
        for match in re.finditer(pattern, text, re.MULTILINE)
    }


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def test_an_error_advised_an_extra_that_no_distribution_had() -> None:
    missing = []
    for distribution, file in PROJECTS.items():
        project = tomllib.loads((ROOT / file).read_text(encoding="utf-8"))["project"]
        known = set(project.get("optional-dependencies", {}))
        for name, extras in named(rf"(?<![\w-]){distribution}\[([a-z, -]+)\]"):
            missing += [(name, distribution, extra) for extra in re.split(r", *", extras) if extra not in known]

    assert missing == []
    assert named(r"(?<![\w-])reput\[([a-z]+)\]"), "the pattern finds what is there"


def test_every_module_that_a_text_runs_exists() -> None:
    ours = {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.is_dir() or path.suffix == ".py"}
    asked = {(name, module.rstrip(".")) for name, module in named(r"python3? -m ([a-z_][\w.]*)")}
    missing = [
        (name, module) for name, module in sorted(asked) if module.split(".")[0] in ours and not is_module(module)
    ]

    assert missing == []
    assert len(asked) > 3


def test_every_make_target_that_a_text_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    asked = named(
        r"(?:`|^\s*|&& )make ((?!-)[a-z][a-z-]*)(?=[`\s]|$)", ("README", "docs/", "CONTRIBUTING", "STYLE", "ARCH")
    )
    asked |= named(r"`make ([a-z][a-z-]*)[` ]")
    missing = [(name, target) for name, target in sorted(asked) if target not in known]

    assert missing == []
    assert len({target for _, target in asked}) > 5


def test_every_verb_of_reput_that_a_text_names_exists() -> None:
    known = {*cli.main.VERBS, *cli.main.GROUPS, "help", "VERB"}
    asked = named(r"`reput ([a-zA-Z][\w-]*)")
    missing = [(name, verb) for name, verb in sorted(asked) if verb not in known]
    grouped = [
        (name, f"{group} {verb}")
        for group, (_, verbs) in cli.main.GROUPS.items()
        for name, verb in named(rf"`reput {group} ([a-z][\w-]*)[` ]")
        if verb not in verbs
    ]

    assert missing == []
    assert grouped == []


def test_every_variable_that_a_page_names_is_read_somewhere() -> None:
    read = {
        name
        for file, text in texts().items()
        if not file.endswith(".md")
        for name in re.findall(r"REPUT_[A-Z0-9_]+|AUTH_[A-Z_]+", text)
    }
    pages = named(
        r"\b(REPUT_[A-Z0-9]+(?:_[A-Z0-9]+)*)\b(?!_|\*|<)", ("README", "docs/", "CONTRIBUTING", "distributions/")
    )
    known = read | {setting.environment_name for setting in SETTINGS}
    missing = [(file, name) for file, name in sorted(pages) if name not in known]

    assert missing == []


def test_every_source_file_that_a_text_names_exists() -> None:
    roots = "|".join(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")))
    asked = named(rf"(?<![\w./{{-])((?:{roots})/[\w/.-]+\.(?:py|md|proto|toml))(?![\w/])")
    missing = [
        (file, name) for file, name in sorted(asked) if not (ROOT / name).exists() and not PLACEHOLDER.search(name)
    ]

    assert missing == []
