"""An S3 for tests: moto's server in a process of its own on loopback, and what is in it.

A server takes more than a second of the processor to start, so the one whose block has ended is emptied and used again.
"""

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

from pyarrow.fs import FileSelector, FileType, S3FileSystem

from tests.support.waiting import WAIT_SECONDS_MAX

ROOT = Path(__file__).parents[2]
# What every S3 client asks of its environment; the server takes any.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
END_SECONDS_MAX = 10.0


class ObjectStore:
    """A running server.

    Attributes:
        endpoint: `127.0.0.1:PORT`.
        fs: an own way in, to look and to make buckets.
    """

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process
        self.endpoint = f"127.0.0.1:{int(self.said())}"
        self.fs = S3FileSystem(
            access_key="test",
            secret_key="test",
            scheme="http",
            endpoint_override=self.endpoint,
            region="us-east-1",
            allow_bucket_creation=True,
            allow_delayed_open=True,  # one request for a small object instead of three
        )

    def uri(self, path: str) -> str:
        """`BUCKET/PREFIX` as a URI."""
        return f"s3://{path}?scheme=http&region=us-east-1&endpoint_override={self.endpoint}"

    def said(self) -> str:
        """The next line that it prints; waits for it."""
        line = self._process.stdout.readline()
        assert line, "the object store ended"
        return line.strip()

    def tell(self, *words: object) -> None:
        """A command of `object_store_server`; in force when this returns."""
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        while self.said() != "done":
            pass

    def request_count(self) -> int:
        """How many requests have come since this was asked last."""
        self._process.stdin.write("count\n")
        self._process.stdin.flush()
        count = int(self.said())
        assert self.said() == "done"
        return count

    def sizes(self, path: str) -> dict[str, int]:
        """Name below and size of every object below `BUCKET/PREFIX`."""
        entries = self.fs.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
        return {entry.path[len(path) + 1 :]: entry.size for entry in entries if entry.type == FileType.File}

    def upload(self, source: Path, path: str) -> str:
        """All files below a directory as objects below `BUCKET/PREFIX`; the URI of these."""
        for file in source.rglob("*"):
            if file.is_file():
                with self.fs.open_output_stream(f"{path}/{file.relative_to(source).as_posix()}") as stream:
                    stream.write(file.read_bytes())
        return self.uri(path)

    def download(self, path: str, target: Path) -> Path:
        """All objects below `BUCKET/PREFIX` as files."""
        for name in self.sizes(path):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            with self.fs.open_input_stream(f"{path}/{name}") as stream:
                (target / name).write_bytes(stream.read())
        return target

    def empty(self) -> None:
        """As it was when it started: no bucket, no request held, refused, delayed or counted."""
        self.tell("release")
        self.tell("delay", 0)
        with urlopen(
            Request(f"http://{self.endpoint}/moto-api/reset", method="POST"), timeout=WAIT_SECONDS_MAX
        ) as answer:
            assert answer.status == 200
        self.request_count()

    @property
    def has_ended(self) -> bool:
        """Whether `end` was called."""
        return self._process.returncode is not None

    def end(self) -> None:
        """End the server. Only then it is unavailable for certain: after its block another one may have it."""
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


_UNUSED: list[ObjectStore] = []


@contextlib.contextmanager
def running_object_store() -> Iterator[ObjectStore]:
    """A server with nothing in it; it ends with this process."""
    store = _UNUSED.pop() if _UNUSED else _started()
    try:
        yield store
        if store.has_ended:
            return
        store.empty()
    except BaseException:  # what it holds and does is not known
        store.end()
        raise
    _UNUSED.append(store)


def _started() -> ObjectStore:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.object_store_server"],
        cwd=ROOT,
        env=os.environ | CREDENTIALS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        return ObjectStore(process)
    except BaseException:
        process.kill()
        process.wait()
        raise


@atexit.register
def _end_unused() -> None:
    while _UNUSED:
        _UNUSED.pop().end()
