"""The programs of docs/clients, built by the commands of their pages, against real gateways. C#'s is not run: no .NET here."""

import concurrent.futures
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.auth.access_file import hash_key, make_key
from tests.clients.documented import TOOLS, answer_of_the_page, built, run_program, why_unavailable
from tests.support.certificates import LOOPBACK, Authority
from tests.support.stack import Stack, running_stack

pytestmark = [
    pytest.mark.languages,
    pytest.mark.timeout(900),
    pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable())),
]

KEY = make_key(secrets.token_bytes)
ACCESS = f"""
[[clients]]
name = "programs"
api_key_sha256 = ["{hash_key(KEY)}"]
read = ["Orders-*"]
write = ["Orders-*"]
groups = ["Orders-*"]
"""
each_language = pytest.mark.parametrize("language", TOOLS)


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    """All are built before services start, so that neither slows the other."""
    for language in TOOLS:
        built(language)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Stack]:
    work = tmp_path_factory.mktemp("secured")
    access = work / "access.toml"
    access.write_text(ACCESS)
    certificate = authority.issue("gateway", *LOOPBACK)
    settings = {
        "REPUT_GATEWAY_PUBLIC_TLS_CERTIFICATE": str(certificate.certificate),
        "REPUT_GATEWAY_PUBLIC_TLS_KEY": str(certificate.key),
        "REPUT_GATEWAY_AUTH": "on",
        "REPUT_GATEWAY_ACCESS_FILE": str(access),
    }
    with running_stack(work / "store", settings=settings) as stack:
        yield stack


@pytest.fixture(scope="module")
def without_index(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[str]]:
    """How each program ends where no index answers its query by key, after most of its deadline: all at once."""
    store = tmp_path_factory.mktemp("without-index") / "store"
    with (
        running_stack(store, settings={"REPUT_INDEX_ENABLED": "false"}) as stack,
        concurrent.futures.ThreadPoolExecutor(len(TOOLS)) as pool,
    ):
        address = stack.addresses["gateway"]
        begun = {each: pool.submit(run_program, each, address, f"Orders-{each}") for each in TOOLS}
        return {each: run.result() for each, run in begun.items()}


@each_language
def test_a_program_with_tls_and_a_key_prints_what_its_page_says(
    language: str, secured: Stack, authority: Authority
) -> None:
    done = run_program(
        language, secured.addresses["gateway"], f"Orders-{language}",
        REPUT_CLIENT_CA=str(authority.path), REPUT_API_KEY=KEY,
    )  # fmt: skip

    assert done.returncode == 0
    assert done.stdout == answer_of_the_page()


@each_language
def test_a_program_without_its_key_is_refused(language: str, secured: Stack, authority: Authority) -> None:
    done = run_program(
        language, secured.addresses["gateway"], f"Orders-{language}", REPUT_CLIENT_CA=str(authority.path)
    )

    assert done.returncode != 0
    assert done.stdout == ""


@each_language
def test_a_program_takes_no_partial_answer_for_the_whole(
    language: str, without_index: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    done = without_index[language]

    assert done.returncode == 1
    assert done.stdout == "appended 100\n"
    assert "PARTIAL: broker-a: " in done.stderr


def test_a_program_that_trusts_another_authority_sends_nothing(secured: Stack, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")

    done = run_program(
        "node", secured.addresses["gateway"], "Orders-node", REPUT_CLIENT_CA=str(other.path), REPUT_API_KEY=KEY
    )

    assert done.returncode != 0
    assert done.stdout == ""
