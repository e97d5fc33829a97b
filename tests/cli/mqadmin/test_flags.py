"""mqadmin's verbs take every flag that `mqadmin help VERB` of RocketMQ 5.5.0 names, in every form that commons-cli reads."""

import functools
import re
from typing import Any

import pytest
import typer

import cli.main
from cli.mqadmin.command_line import NO_EFFECT, NO_EFFECT_PREFIX, with_no_effect_flags
from tests.cli.mqadmin.facts import HELP, VERBS, Flag, all_flags

FLAGS = all_flags()
# Values that are no plain text.
VALUES = {
    **dict.fromkeys(("queueId", "queue", "offset", "maxNum", "writeQueueNums", "readQueueNums", "retryMaxTimes"), "5"),
    "perm": "6",
    "keyType": "T",
}
NEEDED = {
    flag.verb: [
        f"--{each.long}={VALUES.get(each.long, 'x')}" for each in FLAGS if each.verb == flag.verb and each.is_required
    ]
    for flag in FLAGS
}
# Needed by mqadmin to find a broker, or without reason.
NOT_NEEDED_HERE = {
    ("queryMsgById", "topic"),
    ("queryMsgByOffset", "brokerName"),
    ("updateTopic", "brokerAddr"),
    ("updateTopic", "clusterName"),
    ("deleteTopic", "clusterName"),
    ("resetOffsetByTime", "timestamp"),  # -o names a position
}


@functools.cache
def command(verb: str) -> Any:
    return typer.main.get_command(cli.main._build_app([verb], {})).commands[verb]


def parsed(verb: str, *arguments: str) -> dict[str, Any]:
    """The parameters that are given, by name."""
    context = command(verb).make_context(verb, list(arguments))
    given = {name for name in context.params if context.get_parameter_source(name).name == "COMMANDLINE"}
    return {name: context.params[name] for name in given}


def param_of(flag: Flag) -> Any:
    (param,) = [each for each in command(flag.verb).params if f"--{flag.long}" in each.opts]
    return param


def named(flag: Flag) -> str:
    return f"{flag.verb} {flag.long}"


def test_the_pages_of_help_are_read_whole() -> None:
    rows = [
        line for verb in VERBS for line in (HELP / f"{verb}.txt").read_text().splitlines() if re.match(" {1,4}-", line)
    ]
    assert len(FLAGS) == len(rows) == 109
    assert set(VERBS) == set(NO_EFFECT) <= set(cli.main.VERBS)


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag.long != "help"], ids=named)
def test_nine_of_twelve_verbs_lacked_flags_of_mqadmin(flag: Flag) -> None:
    param = param_of(flag)
    value = VALUES.get(flag.long, "a value")
    assert flag.names <= set(param.opts)
    needed = [each for each in NEEDED[flag.verb] if not each.startswith(f"--{flag.long}=")]
    forms = [[f"--{flag.long}"], [f"-{flag.long}"]]
    if flag.short:
        forms.append([f"-{flag.short}"])
    if flag.has_argument:
        forms = [[*form, value] for form in forms]
        forms += [[f"--{flag.long}={value}"], [f"-{flag.long}={value}"], [f"--{flag.long}", f"  {value} "]]
        forms += [[f"--{flag.long}", f'"{value}"'], [f"-{flag.long}{value}"]]
        if flag.short:
            forms += [[f"-{flag.short}={value}"], [f"-{flag.short}{value}"], [f"-{flag.short}", f" {value}\t"]]
    values = [parsed(flag.verb, *form, *needed)[param.name] for form in forms]
    values += [parsed(flag.verb, *needed, *form)[param.name] for form in forms]
    assert {str(each) for each in values} == {value if flag.has_argument else "True"}


def test_a_verb_needs_no_flag_that_mqadmin_does_not_need() -> None:
    needed = {(flag.verb, flag.long) for flag in FLAGS if flag.long != "help" and param_of(flag).required}
    assert needed == {(flag.verb, flag.long) for flag in FLAGS if flag.is_required} - NOT_NEEDED_HERE
    for verb in VERBS:
        others = [each for each in command(verb).params if each.required and not set(each.opts) & names_of(verb)]
        assert others == []


def names_of(verb: str) -> set[str]:
    return {name for flag in FLAGS if flag.verb == verb for name in flag.names}


@pytest.mark.parametrize("verb", VERBS)
def test_a_flag_without_effect_says_why_on_stderr(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    def found() -> int:
        return 0

    run = with_no_effect_flags(verb, found)
    given = {
        f"{NO_EFFECT_PREFIX}{number}": True if each.is_flag else "x" for number, each in enumerate(NO_EFFECT[verb])
    }

    assert run(**given) == 0

    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["reput"] * len(NO_EFFECT[verb])
    for line, each in zip(lines, NO_EFFECT[verb], strict=True):
        assert line == f"reput: {each.names[-1]} is ignored: {each.reason}"


# The values are those of commons-cli 1.5's DefaultParser for the verb's own options, as mqadmin 5.5.0 calls it.
@pytest.mark.parametrize(
    "line",
    [
        ["-g", "G", "-t", "T", "-s", "-1"],
        ["-gG", "-tT", "-s-1"],
        ["-g=G", "-t=T", "-s=-1"],
        ["--group", "G", "--topic=T", "--timestamp", "-1"],
        ["-group", "G", "-topic=T", "-timestamp-1"],
        ["--gr", "G", "--to", "T", "--ti", "-1"],
        ["-g", "G", "-t", '"T"', "-s", " -1 "],
    ],
    ids=" ".join,
)
def test_a_line_is_read_as_commons_cli_reads_it(line: list[str]) -> None:
    assert parsed("resetOffsetByTime", *line) == {"group": "G", "topic": "T", "moment": "-1"}


@pytest.mark.parametrize("form", [["-a", "-message.type"], ["-a=-message.type"], ["--attributes", "-message.type"]])
def test_a_value_may_begin_with_a_hyphen(form: list[str]) -> None:
    assert parsed("updateTopic", "-t", "T", *form) == {"topic": "T", "attributes": "-message.type"}
    assert parsed("queryMsgByKey", "-t", "T", "-kA=b")["key"] == "A=b"
    assert parsed("queryMsgByUniqueKey", "-a", "-t", "T", "-i", "x") == {
        "show_all": True,
        "topic": "T",
        "unique_key": "x",
    }


@pytest.mark.parametrize(
    ("verb", "name", "value"),
    [
        ("queryMsgByOffset", "queue_offset", "5"),
        ("resetOffsetByTime", "queue_offset", "5"),
        ("updateSubGroup", "ordered", "true"),
    ],
)
def test_o_is_mqadmins_and_with_the_name_of_a_format_sets_the_output(verb: str, name: str, value: str) -> None:
    line = [each for each in NEEDED[verb] if not each.startswith("--offset")]
    given = parsed(verb, *line, "-o", value, "-o", "jsonl")
    assert (str(given[name]), given["output"]) == (value, "jsonl")
    assert parsed(verb, *line, "-o", value, "-O", "csv")["output"] == "csv"


def test_mqadmin_53_took_c_of_reset_offset_without_a_value() -> None:
    flag = next(each.name for each in command("resetOffsetByTime").params if "-c" in each.opts)
    given = parsed("resetOffsetByTime", "-g", "G", "-t", "T", "-c", "-s", "now")
    assert given == {"group": "G", "topic": "T", "moment": "now", flag: ""}


def test_verbs_are_taken_in_any_case_and_help_names_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """RocketMQ's quick start says `mqadmin updatetopic`."""
    for line in (["updatetopic", "-h"], ["help", "UpdateTopic"], ["updateTopic", "--help"]):
        assert cli.main.main(line) == 0
        assert "--writeQueueNums" in capsys.readouterr().out
    assert cli.main.main(["help"]) == 0
    assert cli.main.main(["help", "no-such"]) == 2
