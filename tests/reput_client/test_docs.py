"""The examples of docs/client.md and of the README run as they are written; only the port is the test's own."""

import ast
import pathlib
import re

from tests.support.stack import hosted_stack

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "client.md"
README = ROOT / "README.md"


def test_the_examples_of_the_docs_run(tmp_path: pathlib.Path, capsys) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(blocks) == 9
    for endless in re.findall(r"```py\n(.*?)```", DOCS.read_text(), re.DOTALL):
        compile(endless, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    printed = []
    with hosted_stack(tmp_path / "store") as stack:
        for block in blocks:
            exec(block.replace("127.0.0.1:8081", stack.addresses["gateway"]), {"__name__": "example"})
            printed.append(capsys.readouterr().out)
            stack.wait_until_built()
    assert re.match(r"[0-9A-F]{32} \d+ 0\n\Z", printed[0]), "sent, and nothing failed"
    assert len(re.findall(r"\d+", printed[1])) == 32, "one receipt for each message of the batch"
    assert "failed:" not in printed[1]
    assert "b'hello'" in printed[2]
    assert "Orders" in printed[2]
    assert "there may be more" not in printed[2]
    assert "found KEY Orders" in printed[3]
    scans = re.findall(r"^scanned (\d+) (\w+) ", printed[3], re.MULTILINE)
    assert sum(int(count) for count, _ in scans) == 1033
    assert [stop for _, stop in scans] == ["RECORDS", "RECORDS", "END"]
    assert all(body in printed[3] for body in ("b'99'", "b'199'", "b'990'"))
    assert "explained broker-a 1 candidates 1 matches" in printed[3]
    assert printed[4] == "[b'now']\n"
    assert len(re.findall(r"^consumed ", printed[5], re.MULTILINE)) == 1034, "each message that was sent above, once"
    assert re.search(r"^pulled \d+ 0 b'", printed[6], re.MULTILINE)
    assert printed[7] == "b'from asyncio'\n"
    assert printed[8] == ""


def test_the_example_of_the_readme_finds_and_consumes_what_it_sent(tmp_path: pathlib.Path, capsys) -> None:
    """Also as the first message of a store, which its index needs some time for."""
    # The other one is of reput_embedded: tests/newcomers has its page.
    block, _ = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert "from reput_client import" in block
    with hosted_stack(tmp_path / "store") as stack:
        for _ in range(3):
            exec(block.replace("127.0.0.1:8081", stack.addresses["gateway"]), {"__name__": "example"})
            printed = capsys.readouterr().out
            assert re.search(r"^[0-9A-F]{32} b'hello'$", printed, re.MULTILINE), "found"
            assert printed.count("('order-9003',) b'hello'\n") == 1, "consumed, once"
