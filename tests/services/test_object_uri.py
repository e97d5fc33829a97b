"""URIs of object stores: what is refused before anything is asked, what failures are called, and that no secret is said."""

import re
import socket
import time

import pyarrow.fs
import pytest

from pipeline.object_root import ObjectRoot
from services import object_uri
from services.object_uri import connect, told
from store.errors import InvalidArgumentError, ServiceUnavailableError
from tests.support.object_store import CREDENTIALS


@pytest.mark.parametrize("is_silent", [True, False])
def test_an_endpoint_that_does_not_answer_is_given_up(monkeypatch, is_silent):
    """Refused at once, or taken and never answered."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_uri, "S3_ATTEMPT_COUNT_MAX", 1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if is_silent:
            listener.listen()
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        root = ObjectRoot(f"s3://rebuilt/out?scheme=http&region=us-east-1&endpoint_override={endpoint}")
        begin = time.monotonic()
        with pytest.raises(ServiceUnavailableError, match=r"s3://rebuilt/out: cannot .*: check the endpoint") as caught:
            root.top_names()
    assert time.monotonic() - begin < 60
    assert "endpoint_override" not in str(caught.value), "options of a URI are nobody's business"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://key:hush@bucket/out", "AWS_ACCESS_KEY_ID"),
        ("s3://key@bucket/out", "AWS_ACCESS_KEY_ID"),
        ("gs://key:hush@bucket/out", "credentials"),
        ("gs://hush@bucket/out", "credentials"),
        ("abfs://container:hush@account.dfs.core.windows.net/out", "credentials"),
        ("hdfs://key:hush@host/out", "credentials"),
        ("s3://bucket/out?access_key=hush", "'access_key'"),
        ("s3://bucket/out?region=here&secret_key=hush", "'secret_key'"),
        ("gs://bucket/out?access_token=hush", "'access_token'"),
        ("abfs://container@account.dfs.core.windows.net/out?client_secret=hush", "'client_secret'"),
        ("abfss://account.blob.core.windows.net/container?sv=2024-11-04&sig=hush", "'sv'"),
        ("abfss://account.blob.core.windows.net/container?s%69g=hush", "'sig'"),
        ("hdfs://host/out?fs.s3a.s%65cret.key=hush", "'fs.s3a.secret.key'"),
        ("file:///out?key=hush", "accepted options: none"),
        ("s3://bucket/out?hush", "an option without a value"),
        ("ftp://host/out?password=hush", "'password'"),
        ("s3://bucket/out#part", "write it as %23"),
        ("s3://key:sec#hush@bucket/out", "write it as %23"),
        ("s3://[bucket/out", "is not a valid URI"),
        ("s3://key:sec/hush@bucket/out", "is not a valid URI"),
        ("abfs://:hush/sec==@account/out", "is not a valid URI"),
        ("s3://key:17/hush@bucket/out", "does not name a bucket"),
        ("s3:///out", "does not name a bucket"),
        ("ftp://host/out", "pyarrow knows"),
        ("file://relative/out", "pyarrow knows"),
    ],
)
def test_a_uri_that_will_not_do_is_refused(uri, said):
    with pytest.raises(InvalidArgumentError, match=re.escape(said)) as caught:
        ObjectRoot(uri).top_names()
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "type_name", "path"),
    [
        (
            "gs://anonymous@bucket/out?scheme=http&endpoint_override=127.0.0.1:9&retry_limit_seconds=1",
            "gcs",
            "bucket/out",
        ),
        (
            "abfs://container@account.dfs.core.windows.net/out?credential_kind=anonymous&enable_tls=false"
            "&blob_storage_authority=.blob.local&dfs_storage_authority=.dfs.local",
            "abfs",
            "container/out",
        ),
        ("abfss://container@account.dfs.core.windows.net/out?client_id=a-machines-own", "abfs", "container/out"),
    ],
)
def test_options_that_are_let_through_are_pyarrows(uri, type_name, path):
    fs, found = connect(uri)
    assert (fs.type_name, found) == (type_name, path)


def test_a_name_with_a_number_sign_is_written_where_it_says(tmp_path):
    ObjectRoot(f"file://{tmp_path}/a%23b").put_bytes("object", b"{}")

    assert (tmp_path / "a#b/object").read_bytes() == b"{}"
    assert connect("s3://bucket/a%23b?region=us-east-1")[1] == "bucket/a#b"


def test_urls_in_an_object_stores_words_are_shown_without_options():
    words = (
        "GET https://account.blob.core.windows.net/c/x?sv=1&sig=hush failed (is it there?), "
        "'abfs://c:hush@host/x?client_secret=hush', \"https://host?hush\""
    )
    with pytest.raises(ServiceUnavailableError, match="cannot write x") as caught, told("abfs://c@host", "write x"):
        raise OSError(words)
    said = str(caught.value)
    assert "hush" not in said
    assert "https://account.blob.core.windows.net/c/x?... failed (is it there?), 'abfs://...@host/x?...'" in said


def test_a_bucket_whose_region_is_asked_for_and_that_is_not_there_is_no_outage(monkeypatch):
    """pyarrow's own tests have these words."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)

    def find_none(bucket):
        raise OSError(f"Bucket '{bucket}' not found")

    monkeypatch.setattr(pyarrow.fs, "resolve_s3_region", find_none)
    with pytest.raises(InvalidArgumentError, match="bucket 'nowhere' does not exist"):
        ObjectRoot("s3://nowhere/out").top_names()
