"""Rules of the house that a program can check: the maps name every room and every page."""

import ast
import re
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = (
    *("store", "services", "commitlog_svc", "consumequeue_svc", "index_svc", "consumer_svc", "schedule_svc"),
    *("nameserver_svc", "gateway", "console", "pipeline", "reput_client", "reput_embedded", "cli", "deploy"),
)


def rooms() -> list[Path]:
    """The folders of the product that hold Python files."""
    found = {path.parent for name in PRODUCT for path in (ROOT / name).rglob("*.py") if "__pycache__" not in path.parts}
    return sorted(found)


def imports_of_modules() -> dict[str, set[str]]:
    """Which modules of the product each of them imports: at its top, within a function, or for types only."""
    paths = {path for name in PRODUCT for path in (ROOT / name).rglob("*.py") if "__pycache__" not in path.parts}
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        imported = found[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names} & names.keys()
            elif isinstance(node, ast.ImportFrom) and node.module:
                of_package = {f"{node.module}.{alias.name}" for alias in node.names} & names.keys()
                imported |= of_package or ({node.module} & names.keys())
    return found


def test_no_modules_of_the_product_import_one_another_in_a_circle() -> None:
    """An import for types only counts, too: a reader follows it like any other."""
    try:
        TopologicalSorter(imports_of_modules()).prepare()
    except CycleError as circle:
        raise AssertionError(" -> ".join(circle.args[1])) from None


def test_the_architecture_page_names_every_folder_of_the_product() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+)/`", page))
    # A row may name the folders below its own by the end of their paths: `web/`.
    names = [str(room.relative_to(ROOT)) for room in rooms()]
    missing = [name for name in names if not any(name == row or name.endswith(f"/{row}") for row in named)]
    assert missing == []


def test_the_index_of_the_documents_has_a_line_for_each_page_and_each_decision() -> None:
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    pages = [
        path.relative_to(docs) for path in [*docs.glob("*.md"), *docs.glob("adr/*.md")] if path.name != "README.md"
    ]
    missing = [str(page) for page in sorted(pages) if f"({page})" not in index]
    assert missing == []


def test_every_extra_that_a_text_or_a_page_names_can_be_installed() -> None:
    """An error advised `pip install 'reput[otel]'`, which does not exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    sources = [path for name in PRODUCT for path in (ROOT / name).rglob("*.py")]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    unknown = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in [*sources, *pages]
        for match in re.finditer(r"\breput\[([\w, -]+)\]", path.read_text(encoding="utf-8"))
        if not {name.strip() for name in match[1].split(",")} <= extras.keys()
    }
    assert unknown == set()


def test_every_file_that_a_page_or_a_text_of_the_product_names_exists() -> None:
    """A file that moved leaves its old name in docstrings; `x.py` is an example in STYLE.md."""
    folders = "|".join((*PRODUCT, "tests", "tools", "benchmarks"))
    named = re.compile(rf"(?<![\w/.])(?:{folders})/[\w/]+\.py\b")
    sources = [path for name in PRODUCT for path in (ROOT / name).rglob("*.py") if not path.name.endswith("_pb2.py")]
    pages = [page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")] if page.name != "CHANGELOG.md"]
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*sources, *pages]
        for name in named.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / name).exists() and not name.endswith("/x.py") and not name.endswith("/test_x.py")
    }
    assert missing == set()
