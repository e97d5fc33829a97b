"""A change of a contract that breaks somebody is found, and what only adds is not."""

import pathlib
import re
import shutil

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tools.proto_breaking import BASELINE, BREAKS, CATEGORIES, ROOT, TAKEN_OVER, breaking, take_over, types_of, wire_of


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the protos."""
    for path in (ROOT / "protos").rglob("*.proto"):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return tmp_path


def change(tree: pathlib.Path, file: str, pattern: str, replacement: str) -> None:
    path = tree / "protos" / file
    text, count = re.subn(pattern, replacement, path.read_text(), count=1)
    assert count == 1, pattern
    path.write_text(text)


def test_every_package_is_compared() -> None:
    folders = {str(path.parent.parent.relative_to(ROOT / "protos")) for path in (ROOT / "protos").rglob("*.proto")}
    compared = [folder for folders in CATEGORIES.values() for folder in folders]
    theirs = {"google"}  # Google's own file
    assert {folder.removesuffix("/rocketmq") for folder in folders} - theirs == set(compared)


def test_the_protos_of_this_tree_break_nobody() -> None:
    assert breaking() == 0


@pytest.mark.parametrize(
    ("file", "pattern", "replacement"),
    [
        ("reput/gateway/v1/gateway_service.proto", r"(string topic = )1;", r"\g<1>919;"),
        ("reput/commitlog/v1/commitlog_service.proto", r"(int64 \w+ = )1;", r"\g<1>919;"),
        ("reput/consumer/v1/state.proto", r"int64 (\w+ = \d+;)", r"string \1"),
        ("reput/message/v1/message.proto", r"bytes body =", "bytes content ="),
    ],
    ids=["number", "internal_number", "state_type", "public_name"],
)
def test_a_change_that_breaks_somebody_is_refused(
    tree: pathlib.Path, file: str, pattern: str, replacement: str
) -> None:
    change(tree, file, pattern, replacement)
    assert breaking(tree) == BREAKS


def test_a_new_field_and_an_internal_name_break_nobody(tree: pathlib.Path) -> None:
    change(tree, "reput/message/v1/message.proto", r"(bytes body = )", r"string added_later = 919;\n  \1")
    change(tree, "reput/index/v1/index_service.proto", r"(int64 )(\w+)( = \d+;)", r"\1\2_renamed\3")
    assert breaking(tree) == 0


def test_only_a_type_of_equal_numbers_takes_the_place_of_another() -> None:
    def frozen() -> FileDescriptorSet:
        return FileDescriptorSet.FromString((ROOT / BASELINE).read_bytes())

    take_over(frozen(), TAKEN_OVER)
    with pytest.raises(
        ValueError, match="ScheduledMessage, which also has"
    ):  # the gateway's begins with the shard's name
        take_over(frozen(), {"reput.schedule.v1.ScheduledMessage": "reput.gateway.v1.ScheduledMessage"})
    with pytest.raises(ValueError, match="Rejection, which also has"):
        take_over(frozen(), {"reput.gateway.v1.Rejection": "reput.gateway.v1.PassedOver"})


def test_an_enum_whose_values_are_swapped_was_taken_for_an_equal_one() -> None:
    frozen = FileDescriptorSet.FromString((ROOT / BASELINE).read_bytes())
    (resolution,) = [
        kind
        for file in frozen.file
        for name, kind in types_of(file)
        if name == ".reput.gateway.v1.TransactionResolution"
    ]
    first, second = resolution.value[1:3]
    first.number, second.number = second.number, first.number
    with pytest.raises(ValueError, match="TransactionResolution cannot take the place"):
        take_over(frozen, TAKEN_OVER)


def test_a_change_of_a_field_beside_a_type_that_was_taken_over_is_refused(tree: pathlib.Path) -> None:
    change(tree, "reput/index/v1/index_service.proto", r"(FileVisit visits = )\d+;", r"\g<1>919;")
    assert breaking(tree) == BREAKS


def twins_in(protos: FileDescriptorSet) -> set[tuple[str, ...]]:
    """Messages and enums that two of our contracts have with equal fields, without those of RPCs and entries of maps."""
    found: dict[object, list[str]] = {}
    for file in protos.file:
        for name, kind in types_of(file) if file.package.startswith("reput.") else ():
            fields = frozenset(wire_of(kind, {}))
            if len(fields) > 1 and not name.endswith(("Request", "Response", "Entry")):
                names = frozenset(value.name for value in (kind.value if "value" in dir(kind) else kind.field))
                found.setdefault((fields, names), []).append(name)
    return {tuple(sorted(names)) for names in found.values() if len({name.split(".")[2] for name in names}) > 1}


def test_no_message_or_enum_stands_in_two_contracts() -> None:
    """The gateway had to translate each of them."""
    of_the_baseline = twins_in(FileDescriptorSet.FromString((ROOT / BASELINE).read_bytes()))
    assert (".reput.consumer.v1.PullStatus", ".reput.gateway.v1.PullStatus") in of_the_baseline

    assert twins_in(FileDescriptorSet.FromString((ROOT / "protos/reput/descriptors.binpb").read_bytes())) == set()
