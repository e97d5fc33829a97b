"""A whole decode of a log in plain Python: struct for the numbers, slices for the rest; one process, no numpy. The gain by
columns and compiled code is measured against it.
"""

import mmap
import pathlib
import struct
from collections.abc import Iterator

HEAD = struct.Struct(">iiiiiqqiqiiqiiiqi")  # a record with IPv4 hosts, up to the body
MAGIC = -626843481
BLANK_MAGIC = -875286124


def decode_log(root: pathlib.Path) -> int:
    """Decodes every record of a store's log into its fields; returns their count."""
    count = 0
    for path in sorted((root / "commitlog").iterdir()):
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for _ in decode_file(data):
                count += 1
    return count


def decode_file(data: mmap.mmap | bytes, at: int = 0) -> Iterator[tuple[object, ...]]:
    """The fields of each record, from a place on where one begins."""
    end = len(data)
    while at + HEAD.size <= end:
        (
            size, magic, body_crc, queue_id, flag, queue_offset, offset, sys_flag, born, born_ip, born_port, stored,
            store_ip, store_port, reconsume_times, prepared_offset, body_size,
        ) = HEAD.unpack_from(data, at)  # fmt: skip
        if magic != MAGIC or size <= 0:
            return
        body_at = at + HEAD.size
        topic_at = body_at + body_size
        body = data[body_at:topic_at]
        topic_end = topic_at + 1 + data[topic_at]
        topic = data[topic_at + 1 : topic_end].decode()
        properties = {}
        for pair in data[topic_end + 2 : at + size].decode().split("\x02"):
            if pair:
                name, _, value = pair.partition("\x01")
                properties[name] = value
        yield (
            topic, queue_id, queue_offset, offset, size, flag, sys_flag, born, (born_ip, born_port), stored,
            (store_ip, store_port), reconsume_times, prepared_offset, body_crc, properties.get("TAGS"),
            properties.get("KEYS", "").split(), properties.get("UNIQ_KEY"), properties, body,
        )  # fmt: skip
        at += size
