"""Write the pages of the documentation that show other files of the project, or prove that they are fresh.

    python -m tools.docs_pages           write
    python -m tools.docs_pages --check   exit 1 when a page differs from what would be written

Two kinds: the API reference (tools/api_reference.py), and the programs that stand in a page behind the mark
`<!-- include PATH -->`.
"""

import argparse
import pathlib
import re
import sys

from tools import api_reference

ROOT = pathlib.Path(__file__).resolve().parents[1]
FENCES = {".go": "go", ".java": "java", ".js": "js", ".rs": "rust", ".cs": "csharp", ".yaml": "yaml"}
INCLUDE = re.compile(r"<!-- include (\S+) -->\n(?:\n```\w+\n.*?\n```\n)?", re.DOTALL)


def with_programs(page: str) -> str:
    """A page with each included program as it stands in the repository."""

    def included(mark: re.Match[str]) -> str:
        path = ROOT / mark[1]
        text = path.read_text(encoding="utf-8").rstrip("\n")
        return f"<!-- include {mark[1]} -->\n\n```{FENCES[path.suffix]}\n{text}\n```\n"

    return INCLUDE.sub(included, page)


def pages() -> dict[pathlib.Path, str]:
    """The text of each page that is made."""
    clients = {path: with_programs(path.read_text(encoding="utf-8")) for path in (ROOT / "docs/clients").glob("*.md")}
    return clients | api_reference.pages()


def main() -> int:
    """Write or compare; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    is_check = parser.parse_args().check
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if is_check:
            print(f"stale: {path.relative_to(ROOT)} (run `make proto`)", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(pages()[path], encoding="utf-8")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
