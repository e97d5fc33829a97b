"""The names of the package: complete, importable, and loaded only when they are used."""

import ast
import pathlib
import subprocess
import sys

import pytest

import reput_client

INIT = pathlib.Path(reput_client.__file__)


def test_every_public_name_is_there_and_has_the_type_that_type_checkers_see() -> None:
    """The imports under TYPE_CHECKING are the declaration; the table that loads names lazily must agree with it."""
    (guarded,) = [node for node in ast.parse(INIT.read_text()).body if isinstance(node, ast.If)]
    declared = {
        name.name: each.module for each in guarded.body if isinstance(each, ast.ImportFrom) for name in each.names
    }

    assert sorted(declared) == reput_client.__all__
    for name, module in declared.items():
        value = getattr(reput_client, name)
        assert getattr(sys.modules[module or ""], name, None) is value, name
    assert set(reput_client.__all__) <= set(dir(reput_client))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = reput_client.no_such_name


def loaded_after(code: str) -> set[str]:
    finished = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(finished.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "from reput_client import QueryClient, Completeness",
        "import cli.main; cli.main.main(['queryMsgByKey', '-t', 'T', '-k', 'k', '--address', '127.0.0.1:1'])",
    ],
)
def test_a_query_loads_no_producer_and_nothing_that_it_does_not_need(code: str) -> None:
    loaded = loaded_after(code)

    assert "reput_client.querying.query_client" in loaded
    assert not {name for name in loaded if name.startswith("reput_client.producing")}
    unwanted = {"tenacity", "lz4", "backports.zstd", "numpy", "reput_client.querying.explanation"}
    assert not loaded & unwanted


def test_a_producer_loads_no_query() -> None:
    loaded = loaded_after("from reput_client import Producer")

    assert not {name for name in loaded if name.startswith("reput_client.querying")}
