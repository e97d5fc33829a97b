"""Opens the object store that a URI names, and translates its failures into typed errors.

`s3://BUCKET/PREFIX` is opened by S3FileSystem itself, because a URI cannot express all of its settings (attempts, how
objects are opened); every other URI (`gs`, `abfs`, `hdfs`, `file`) by `pyarrow.fs.FileSystem.from_uri`. Credentials are
refused in a URI: it appears in process lists, in Spark's plans and in reports. So only option names that are known to be
harmless are accepted after the `?`.
"""

import errno
import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from store.errors import DiskFullError, InvalidArgumentError, PermissionDeniedError, ServiceUnavailableError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_GCS_OPTIONS = ("endpoint_override", "retry_limit_seconds", "scheme")
_AZURE_OPTIONS = ("blob_storage_authority", "client_id", "credential_kind", "dfs_storage_authority", "enable_tls")
_HDFS_OPTIONS = ("buffer_size", "default_block_size", "kerb_ticket", "replication", "user")
# The name of an argument in errors, where the caller gives no other.
FIELD = "uri"
# The options that are accepted after the `?` of a URI, by scheme; pyarrow's names. pyarrow accepts more: Azure's
# `client_secret`, the parts of a SAS token, and any name as a setting of Hadoop's. Other schemes accept no options.
OPTIONS: dict[str, tuple[str, ...]] = {
    "s3": ("endpoint_override", "force_virtual_addressing", "region", "scheme", "tls_ca_file_path"),
    "gs": _GCS_OPTIONS,
    "gcs": _GCS_OPTIONS,
    "abfs": _AZURE_OPTIONS,
    "abfss": _AZURE_OPTIONS,
    "hdfs": _HDFS_OPTIONS,
    "viewfs": _HDFS_OPTIONS,
}
# With an endpoint that does not answer, an attempt takes 1 s to connect and 3 s to read (the SDK's limits), and the
# waits between attempts grow: half a minute in total.
S3_ATTEMPT_COUNT_MAX = 5
GCS_RETRY_SECONDS = 60  # its own limit is 15 minutes
# Values of `FileSystem.type_name` with buckets. The bucket must exist before the job starts.
BUCKET_TYPES = ("s3", "gcs", "abfs")
_LEAVE_OUT = (
    "A URI with credentials is visible in the process list: remove them and set the usual variables "
    "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AZURE_CLIENT_SECRET, GOOGLE_APPLICATION_CREDENTIALS, ...), "
    "also where executors run."
)
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
# Error names of S3 and compatible stores that mean missing or insufficient credentials.
_DENIALS = (
    "ACCESS_DENIED", "INVALID_ACCESS_KEY", "INVALID_CLIENT_TOKEN", "INVALID_SIGNATURE", "MISSING_AUTHENTICATION",
    "SIGNATURE_DOES_NOT_MATCH", "UNRECOGNIZED_CLIENT", "HTTP status 401", "HTTP status 403", "ExpiredToken",
    "PERMISSION_DENIED", "UNAUTHENTICATED",
)  # fmt: skip
# The last one is pyarrow's text when it looks for the bucket's region.
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|Bucket '[^']*' not found")
_ONE_SLASH = re.compile(r"^([a-z0-9]{2,}):/(?!/)")
_PASSWORD = re.compile(r"//[^/\s]*:\S*@")
_OPTIONS_IN_TEXT = re.compile(r"(\w://[^\s?'\"]*)\?[^\s'\"]*")


def is_uri(text: str) -> bool:
    """Whether a text is a URI with a scheme, not a path."""
    return "://" in text


def named(path: object) -> str:
    """A path for people: of an object, the URI without options. `Path` makes one slash of two."""
    return _ONE_SLASH.sub(r"\1://", str(path))


def shown(uri: str) -> str:
    """A URI for reports and errors: without options, and without a password."""
    return _PASSWORD.sub("//...@", uri.partition("?")[0])


def check_uri(uri: str, field: str = FIELD) -> None:
    """InvalidArgumentError about `field` if a URI has options that are not accepted, or is ambiguous; opens nothing."""
    _split(uri, field)


def connect(uri: str, *, is_whole: bool = False, field: str = FIELD) -> "tuple[FileSystem, str]":
    """The file system behind a URI, and the path in it without a slash at its end.

    Args:
        uri: `SCHEME://...`.
        is_whole: whether each object is written in one piece: S3 then takes it in one request.
        field: the argument or setting that the URI was given as, for errors.

    Raises:
        InvalidArgumentError: pyarrow does not know the URI, or it has options that are not accepted.
        PermissionDeniedError, ServiceUnavailableError: S3 did not tell the region of the bucket.
    """
    parts = _split(uri, field)
    if parts.scheme == "s3":
        return _connect_s3(uri, is_whole=is_whole, field=field), _s3_path(parts)
    if parts.scheme in ("gs", "gcs") and "retry_limit_seconds" not in parts.query:
        uri += f"{'&' if parts.query else '?'}retry_limit_seconds={GCS_RETRY_SECONDS}"
    return _connect_other(uri, field)


@contextmanager
def told(uri: str, doing: str, field: str = FIELD) -> Iterator[None]:
    """Translates failures of an object store into typed errors.

    Args:
        uri: the object store; shown without options.
        doing: what was tried, such as `write index/20261122`.
        field: see `connect`.

    Raises:
        InvalidArgumentError: the bucket does not exist, or the URI is not valid.
        PermissionDeniedError: credentials are missing, wrong or insufficient.
        DiskFullError: no space; only if the store is a disk (`file`, `hdfs`).
        ServiceUnavailableError: any other failure, after all attempts.
    """
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:  # the types that pyarrow raises
        raise _typed(error, shown(uri), doing, field) from error


def refuse_no_bucket(fs: "FileSystem", path: str, uri: str, field: str = FIELD) -> None:
    """InvalidArgumentError about `field` if the bucket does not exist: this job does not create buckets."""
    from pyarrow.fs import FileType

    if fs.type_name not in BUCKET_TYPES:
        return
    bucket, is_missing = path.partition("/")[0], False
    # Credentials that may only list below a prefix may not look at the bucket itself. The listing that follows tells.
    with suppress(PermissionDeniedError), told(uri, f"look for the bucket {bucket}", field):
        is_missing = fs.get_file_info(bucket).type == FileType.NotFound
    if is_missing:
        raise _no_bucket(bucket, field)


def _split(uri: str, field: str) -> SplitResult:
    """The parts of a URI; InvalidArgumentError if it has options that are not accepted, or is ambiguous."""
    if "#" in uri:
        raise InvalidArgumentError(
            f"{shown(uri)} has a '#', which starts a fragment and would be ignored: write it as %23.", field=field
        )
    try:
        parts = urlsplit(uri)
        has_port = parts.port is not None  # fails if the port is not a number; a password with a slash looks like this
    except ValueError:
        raise InvalidArgumentError(f"{shown(uri)} is not a valid URI: name s3://BUCKET/PREFIX.", field=field) from None
    is_key = parts.scheme == "s3" or (parts.scheme in ("gs", "gcs") and parts.username != "anonymous")
    if parts.password is not None or (parts.username is not None and is_key):
        raise InvalidArgumentError(_LEAVE_OUT, field=field)
    if parts.scheme == "s3" and (has_port or not parts.netloc):
        raise InvalidArgumentError(f"{shown(uri)} does not name a bucket: name s3://BUCKET/PREFIX.", field=field)
    known = OPTIONS.get(parts.scheme, ())
    for option in filter(None, parts.query.split("&")):
        name, equals, _ = option.partition("=")
        name = unquote(name)
        if name not in known:
            raise InvalidArgumentError(
                f"{shown(uri)} has {f'the option {name!r}' if equals else 'an option without a value'} after its '?': "
                f"accepted options: {', '.join(known) or 'none'}. {_LEAVE_OUT}",
                field=field,
            )
    return parts


def _connect_s3(uri: str, *, is_whole: bool, field: str) -> "FileSystem":
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    with told(uri, "find the bucket's region", field):
        return _s3(parts.netloc, tuple(sorted(options.items())), is_whole=is_whole)


@functools.cache
def _s3(bucket: str, options: tuple[tuple[str, str], ...], *, is_whole: bool) -> "FileSystem":
    """One client for all tasks of a process: it keeps its connections."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    given: dict[str, str | bool] = dict(options)
    if "force_virtual_addressing" in given:
        given["force_virtual_addressing"] = given["force_virtual_addressing"] in ("1", "true")
    is_elsewhere = "endpoint_override" in given or any(os.environ.get(name) for name in _ENDPOINT_VARIABLES)
    if "region" not in given and not is_elsewhere and not any(os.environ.get(name) for name in _REGION_VARIABLES):
        given["region"] = resolve_s3_region(bucket)
    # With background writes, pyarrow does not complete an upload after a part has failed. Without them, closing a
    # stream whose write was refused makes an object of the parts before.
    return S3FileSystem(
        background_writes=True,
        allow_delayed_open=is_whole,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPT_COUNT_MAX),
        **given,
    )


def _s3_path(parts: SplitResult) -> str:
    return unquote(parts.netloc + parts.path).rstrip("/")


@functools.cache
def _connect_other(uri: str, field: str) -> "tuple[FileSystem, str]":
    from pyarrow.fs import FileSystem

    try:
        fs, path = FileSystem.from_uri(uri)
    except (ValueError, NotImplementedError) as error:
        raise InvalidArgumentError(
            f"{shown(uri)} cannot be opened: {masked(error)}; name s3://BUCKET/PREFIX, or another URI that pyarrow knows.",
            field=field,
        ) from error
    except OSError as error:
        raise _typed(error, shown(uri), "connect", field) from error
    return fs, path.rstrip("/")


def _no_bucket(bucket: str, field: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The bucket {bucket!r} does not exist: create it first, or name another one.", field=field, bucket=bucket
    )


def masked(error: Exception) -> str:
    """The text of an error; URLs in it as `shown` shows them."""
    return _PASSWORD.sub("//...@", _OPTIONS_IN_TEXT.sub(r"\1?...", str(error)))


def _typed(error: Exception, uri: str, doing: str, field: str) -> Exception:
    text = masked(error)
    what = f"{uri}: cannot {doing}: {text}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{what}. Free some space and try again", file=uri)
    if _NO_BUCKET.search(text):
        return _no_bucket(urlsplit(uri).netloc, field)
    if any(denial in text for denial in _DENIALS) or isinstance(error, PermissionError):
        return PermissionDeniedError(
            f"{what}. Set credentials (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the "
            "machine's role, on executors too) that may list, read, write and delete",
            method=doing,
        )
    if isinstance(error, ValueError):
        return InvalidArgumentError(what, field=field)
    return ServiceUnavailableError(f"{what}: check the endpoint and the network, and run the same again", service=uri)
