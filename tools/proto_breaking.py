"""Prove that programs and logs of an earlier release still fit the protos: `buf breaking` against a frozen descriptor set.

    python tools/proto_breaking.py            exit with buf's code: 100 when a change breaks one of them
    python tools/proto_breaking.py --freeze   make today's protos the baseline: at a release, or to break on purpose

Public contracts (`apache`, `reput.gateway`, `reput.message`) keep their source too, buf's category FILE: people compile against
them. Internal ones, and the state that is kept as records of the log, keep their bytes, WIRE: services of two releases meet
during a rolling update, and a log outlives both.

An internal contract that had a message or an enum of its own may use the gateway's instead (ADR 0130). `buf` sees another name
and refuses it, so the baseline is compared as if it had used the gateway's: `TAKEN_OVER` names both, and each number, name,
type and label of the old one must be in the new one.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASELINE = "tools/proto_baseline.binpb"
BREAKS = 100  # buf's exit code
CATEGORIES = {
    "FILE": ("apache", "reput/gateway", "reput/message"),
    "WIRE": (
        "reput/commitlog",
        "reput/consumequeue",
        "reput/consumer",
        "reput/index",
        "reput/nameserver",
        "reput/schedule",
    ),
}
# A message or enum of the baseline, and what its contract uses in its place.
TAKEN_OVER = {
    "reput.index.v1.KeyExplanation.FileVisit": "reput.gateway.v1.ShardExplanation.FileVisit",
    "reput.index.v1.PassedOver": "reput.gateway.v1.PassedOver",
    "reput.consumequeue.v1.Boundary": "reput.gateway.v1.Boundary",
    "reput.consumer.v1.Filter": "reput.gateway.v1.MessageFilter",
    "reput.consumer.v1.PullStatus": "reput.gateway.v1.PullStatus",
    "reput.consumer.v1.SendBackMessagesResponse.Outcome": "reput.gateway.v1.SendBackOutcome",
    "reput.consumer.v1.Subscription": "reput.gateway.v1.TopicSubscription",
    "reput.consumer.v1.TopicQueue": "reput.gateway.v1.TopicQueue",
    "reput.consumer.v1.TrackState": "reput.gateway.v1.TrackState",
    "reput.schedule.v1.EndTransactionRequest.Resolution": "reput.gateway.v1.TransactionResolution",
}


def breaking(root: pathlib.Path = ROOT, baseline: pathlib.Path = ROOT / BASELINE) -> int:
    """Compare the protos of a tree with a baseline; the exit code of `buf`, which prints each break with its line."""
    code = 0
    frozen = FileDescriptorSet.FromString(baseline.read_bytes())
    take_over(frozen, TAKEN_OVER)
    every = {folder for folders in CATEGORIES.values() for folder in folders}
    with tempfile.NamedTemporaryFile(suffix=".binpb") as against:
        against.write(frozen.SerializeToString())
        against.flush()
        for category, folders in CATEGORIES.items():
            others = sorted(every.difference(folders))
            rules = {"use": [category], "ignore": [f"protos/{folder}" for folder in others]}
            config = {"version": "v2", "modules": [{"path": "protos"}], "breaking": rules}
            code = _buf(root, "breaking", "--against", against.name, "--config", json.dumps(config)) or code
    return code


def take_over(frozen: FileDescriptorSet, names: dict[str, str]) -> None:
    """Let all fields of a baseline use the new types in place of the old ones.

    Args:
        frozen: the baseline; is changed.
        names: old and new types, both of the baseline.

    Raises:
        ValueError: bytes of an old type would be read otherwise as the new one, or one is not in the baseline.
    """
    new_of = {f".{old}": f".{new}" for old, new in names.items()}
    types = {name: (kind, file) for file in frozen.file for name, kind in types_of(file)}
    for old, new in new_of.items():
        if old not in types or new not in types:
            raise ValueError(f"{old} or {new} is not in the baseline: take the row out of TAKEN_OVER")
        missing = wire_of(types[old][0], new_of) - wire_of(types[new][0], new_of)
        if missing:
            raise ValueError(f"{new} cannot take the place of {old}, which also has {sorted(map(str, missing))}")
    for file in frozen.file:
        messages = [kind for _, kind in types_of(file) if isinstance(kind, DescriptorProto)]
        needed = set()
        for field in (field for message in messages for field in message.field if field.type_name in new_of):
            field.type_name = new_of[field.type_name]
            needed.add(types[field.type_name][1].name)
        file.dependency.extend(sorted(needed.difference(file.dependency, [file.name])))


def types_of(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto | EnumDescriptorProto]]:
    """All messages and enums of a file, with their full names."""

    def within(prefix: str, message: DescriptorProto) -> Iterator[tuple[str, DescriptorProto | EnumDescriptorProto]]:
        name = f"{prefix}.{message.name}"
        yield name, message
        yield from ((f"{name}.{enum.name}", enum) for enum in message.enum_type)
        for nested in message.nested_type:
            yield from within(name, nested)

    package = f".{file.package}"
    yield from ((f"{package}.{enum.name}", enum) for enum in file.enum_type)
    for message in file.message_type:
        yield from within(package, message)


def wire_of(kind: DescriptorProto | EnumDescriptorProto, new_of: dict[str, str]) -> set[tuple[object, ...]]:
    """What decides how bytes of a type are read, and what is meant by them: the names, of enum values without their prefix."""
    if isinstance(kind, EnumDescriptorProto):
        prefix = kind.value[0].name.removesuffix("UNSPECIFIED")
        return {(value.number, value.name.removeprefix(prefix)) for value in kind.value}
    return {
        (field.number, field.name, field.type, field.label, new_of.get(field.type_name, field.type_name))
        for field in kind.field
    }


def freeze() -> int:
    """Write the baseline; the exit code of `buf`."""
    return _buf(ROOT, "build", "--exclude-source-info", "-o", BASELINE)


def _buf(root: pathlib.Path, *arguments: str) -> int:
    return subprocess.run([pathlib.Path(sys.executable).parent / "buf", *arguments], cwd=root, check=False).returncode


def main() -> int:
    """The command of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--freeze", action="store_true", help="make today's protos the baseline")
    return freeze() if parser.parse_args().freeze else breaking()


if __name__ == "__main__":
    sys.exit(main())
