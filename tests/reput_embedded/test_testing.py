"""The fixtures that ship with the embedded store, used as another project uses them."""

import pathlib

import pytest

import reput_embedded  # noqa: F401  # numpy is loaded once in a process, and pytester forgets what it has loaded

TESTS = """
import pytest

def test_a_store_of_its_own_is_empty(reput_store, tmp_path):
    reput_store.append("Orders", b"x", keys=["k"])
    assert len(list(reput_store.by_key("Orders", "k"))) == 1
    assert (tmp_path / "reput" / "commitlog").is_dir()

def test_another_store_of_its_own_is_empty_too(reput_store):
    assert [each.topic for each in reput_store.topics()] == []

@pytest.mark.parametrize("body", [b"1", b"2"], ids=["a b", "%"])
def test_a_topic_of_its_own(reput_session_store, reput_topic, body):
    reput_session_store.append(reput_topic, body)
    assert [each.body for each in reput_session_store.search(reput_topic)] == [body]

@pytest.fixture(scope="session")
def reput_settings():
    return {"REPUT_COMMITLOG_DEFAULT_TOPIC_QUEUE_COUNT": 1}

def test_settings_are_those_of_the_project(reput_session_store, reput_topic):
    assert {reput_session_store.append(reput_topic, b"x").queue_id for _ in range(3)} == {0}
"""


def test_the_fixtures_give_stores_and_topics_to_a_project_of_others(
    pytester: pytest.Pytester, tmp_path: pathlib.Path
) -> None:
    pytester.makeconftest('pytest_plugins = ["reput_embedded.testing"]')
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=5)


def test_the_files_of_a_store_stay_only_after_a_test_that_failed(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["reput_embedded.testing"]')
    pytester.makepyfile(
        """
        def test_good(reput_store):
            reput_store.append("Orders", b"x")

        def test_bad(reput_store):
            assert reput_store.append("Orders", b"x") is None
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", f"--basetemp={pytester.path / 'temporary'}")
    result.assert_outcomes(passed=1, failed=1)
    assert [path.parent.name for path in pytester.path.glob("temporary/*0/reput")] == ["test_bad0"]


def test_the_store_of_a_session_leaves_no_files(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["reput_embedded.testing"]')
    pytester.makepyfile("def test_good(reput_session_store): reput_session_store.append('Orders', b'x')")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", f"--basetemp={pytester.path / 'temporary'}")
    result.assert_outcomes(passed=1)
    assert list(pytester.path.glob("temporary/*0/store")) == []
