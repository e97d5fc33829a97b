"""`reput find` and `--save` beside a running stack: a person has a text and wants the message."""

import json
import pathlib
import subprocess
import zlib
from collections.abc import Iterator

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.support.command import run_command
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("find") / "store") as running:
        yield running


def reput(stack: HostedStack, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, **{"REPUT_ADDRESS": stack.addresses["gateway"], **environment})


def append(stack: HostedStack, *messages: object) -> list[object]:
    results = stack.gateway.AppendMessages(
        pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX
    ).results
    stack.wait_until_built()
    return list(results)


def test_any_id_or_key_finds_the_message_and_says_which_it_is(stack: HostedStack, tmp_path: pathlib.Path) -> None:
    sent, _ = append(
        stack,
        new_message("FindA", b"\x00binary\xff", keys=["find-me"]),
        new_message("FindB", b"other", keys=["find-me-not"]),
    )
    for text, matched_by in (
        ("find-me", "key"),
        (sent.unique_key, "unique_key"),
        (sent.offset_msg_id, "offset_msg_id"),
    ):
        done = reput(stack, "find", text, "-o", "jsonl", "--save", str(tmp_path / "bodies"))
        assert done.returncode == 0, done.stderr
        (row,) = [json.loads(line) for line in done.stdout.splitlines()]
        assert (row["matched_by"], row["topic"], row["offset_msg_id"]) == (matched_by, "FindA", sent.offset_msg_id)
        assert pathlib.Path(row["body_file"]).read_bytes() == b"\x00binary\xff"
    assert reput(stack, "find", "find-me", "-t", "FindB").returncode == 1
    assert reput(stack, "find", "find-me", "--end", "-1h").returncode == 1
    assert "find-me" in reput(stack, "find", "find-me").stdout


def test_ids_with_blanks_with_quotes_and_in_lower_case_were_not_found(stack: HostedStack) -> None:
    """As they are copied from logs and chats; the three verbs take the same."""
    key = "7F0000010A2B18B4AAC2000000AB0001"
    (sent,) = append(stack, new_message("FindIds", b"typed", keys=["typed-key"], unique_key=key))
    for typed in (sent.offset_msg_id, key):
        for form in (
            f" {typed} ",
            f"'{typed}'",
            f'"{typed}"',
            f"\u201c{typed}\u201d",
            typed.lower(),
            f" '{typed.lower()}' ",
        ):
            for line in (["find", form], ["track", form], ["queryMsgById", "-t", "FindIds", "-i", form]):
                done = reput(stack, *line, "-o", "json")
                assert done.returncode == 0, (line, done.stderr)
                assert sent.offset_msg_id in done.stdout
    for form in (f" {key} ", key.lower(), f'"{key}"'):
        assert reput(stack, "queryMsgByUniqueKey", "-t", "FindIds", "-i", form).returncode == 0
        assert reput(stack, "track", "-t", "FindIds", "-i", form).returncode == 0
    assert reput(stack, "queryMsgByKey", "-t", "FindIds", "-k", " typed-key ").returncode == 0


def test_a_track_takes_a_key_and_shows_each_of_its_messages(stack: HostedStack) -> None:
    sent = append(stack, *(new_message("FindTracks", b"%d" % n, keys=["of-two"]) for n in range(2)))

    both = reput(stack, "track", "of-two", "-o", "json")
    table = reput(stack, "track", "of-two", "-t", "FindTracks")

    ids = [each.offset_msg_id for each in sent]
    assert sorted(row["offset_msg_id"] for row in json.loads(both.stdout)["messages"]) == sorted(ids)
    assert all(each in table.stdout for each in ids)
    assert reput(stack, "track", "of-two", "-t", "FindA").returncode == 1
    assert reput(stack, "track", "no-such-key").returncode == 1


def test_a_key_with_a_space_was_not_found_without_a_reason(stack: HostedStack) -> None:
    append(stack, new_message("FindSpaces", b"x", keys=["one", "two"]))
    for verb in (("queryMsgByKey", "-t", "FindSpaces", "-k"), ("find",), ("track",)):
        done = reput(stack, *verb, "one two")
        assert done.returncode == 1
        assert "cannot hold a space" in done.stderr


def test_several_ids_are_shown_and_one_that_is_missing_is_named(stack: HostedStack) -> None:
    sent = append(stack, *(new_message("FindSeveral", b"%d" % n) for n in range(2)))
    first, second = (each.offset_msg_id for each in sent)
    both = reput(stack, "queryMsgById", "-i", f"{first}, {second}", "-o", "jsonl")
    assert [json.loads(line)["offset_msg_id"] for line in both.stdout.splitlines()] == [first, second]
    missing = second[:-16] + "0000000000FFFFFF"
    one = reput(stack, "queryMsgById", "-i", f"{missing},{first}", "-o", "jsonl")
    assert (one.returncode, len(one.stdout.splitlines())) == (1, 1)
    assert f"{missing}: RECORD_NOT_FOUND" in one.stderr
    assert f"consumer groups of {first}\n  none" in reput(stack, "queryMsgById", "-i", first).stdout


def test_a_message_that_is_sent_again_by_its_id_is_a_new_one(stack: HostedStack) -> None:
    (sent,) = append(stack, new_message("FindAgain", b"again", keys=["again"], tags="t", properties={"own": "1"}))
    assert reput(stack, "queryMsgById", "-i", sent.offset_msg_id, "-s", "true", "-u", "unit").returncode == 0
    stack.wait_until_built()
    found = json.loads(reput(stack, "queryMsgByKey", "-t", "FindAgain", "-k", "again", "-o", "json").stdout)["messages"]
    new, old = found
    assert {row["unique_key"] for row in found} > {sent.unique_key}
    assert [(row["body"], row["tags"], row["properties"]["own"]) for row in (new, old)] == [("again", "t", "1")] * 2
    assert reput(stack, "queryMsgById", "-i", sent.offset_msg_id, "-s", "perhaps").returncode == 2


def test_more_matches_than_a_page_holds_are_all_found(stack: HostedStack) -> None:
    append(stack, *(new_message(f"FindMany{n % 3}", b"%d" % n, keys=["of-many"]) for n in range(1_020)))
    first = json.loads(reput(stack, "find", "of-many", "-m", "1010", "-o", "json").stdout)
    assert len({row["offset_msg_id"] for row in first["messages"]}) == len(first["messages"]) == 1_010
    assert first["completeness"] == "TRUNCATED"
    everything = reput(stack, "find", "of-many", "-m", "2000", "-o", "json")
    answer = json.loads(everything.stdout)
    assert (everything.returncode, answer["completeness"], len(answer["messages"])) == (0, "COMPLETE", 1_020)
    assert {row["matched_by"] for row in answer["messages"]} == {"key"}


def test_save_writes_what_a_compressed_body_holds(stack: HostedStack, tmp_path: pathlib.Path) -> None:
    """Appends through the gateway are never compressed: the body here only looks like it, and stays as it is."""
    body = zlib.compress(b"x" * 1000)
    (sent,) = append(stack, new_message("Save", body, keys=["save"]))
    done = reput(stack, "queryMsgByKey", "-t", "Save", "-k", "save", "-o", "json", "--save", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"{sent.offset_msg_id}.body").read_bytes() == body


def test_save_into_what_is_no_directory_is_refused(stack: HostedStack, tmp_path: pathlib.Path) -> None:
    append(stack, new_message("Save", b"b", keys=["refused"]))
    (tmp_path / "file").write_bytes(b"")
    done = reput(stack, "queryMsgByKey", "-t", "Save", "-k", "refused", "--save", str(tmp_path / "file"))
    assert done.returncode == 2
    assert "cannot be written" in done.stderr


def test_a_shell_completes_verbs_and_flags(stack: HostedStack) -> None:
    verbs = reput(stack, _REPUT_COMPLETE="complete_bash", COMP_WORDS="reput fi", COMP_CWORD="1")
    flags = reput(stack, _REPUT_COMPLETE="complete_bash", COMP_WORDS="reput find --sa", COMP_CWORD="2")
    assert "find" in (verbs.stdout + flags.stdout).split()
    assert "--save" in flags.stdout.split()
