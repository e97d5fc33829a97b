"""From a URI to the object store behind it, and from its failures to typed errors.

`s3://BUCKET/PREFIX` is opened by S3FileSystem itself, whose settings a URI cannot all say (attempts, how objects are
opened); every other URI (`gs`, `abfs`, `hdfs`, `file`) by `pyarrow.fs.FileSystem.from_uri`. Credentials are never in a
URI: it stands in lists of processes, in Spark's plans and in reports.
"""

import errno
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from store.errors import DiskFullError, InvalidArgumentError, PermissionDeniedError, ServiceUnavailableError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# What may stand behind the `?` of an s3 URI: pyarrow's names.
S3_OPTIONS = ("endpoint_override", "force_virtual_addressing", "region", "scheme", "tls_ca_file_path")
# An attempt at a silent endpoint takes the SDK's 1 s to connect and 3 s to read, the waits between grow: half a minute.
S3_ATTEMPT_COUNT_MAX = 5
GCS_RETRY_SECONDS = 60  # its own bound is a quarter of an hour
# Kinds of `FileSystem.type_name` that have buckets: these are there before we are.
BUCKET_TYPES = ("s3", "gcs", "abfs")
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
# What S3 and those who speak like it call an answer that better credentials would change.
_DENIALS = (
    "ACCESS_DENIED", "INVALID_ACCESS_KEY", "INVALID_CLIENT_TOKEN", "INVALID_SIGNATURE", "MISSING_AUTHENTICATION",
    "SIGNATURE_DOES_NOT_MATCH", "UNRECOGNIZED_CLIENT", "HTTP status 401", "HTTP status 403", "ExpiredToken",
    "PERMISSION_DENIED", "UNAUTHENTICATED",
)  # fmt: skip


def is_uri(text: str) -> bool:
    """Whether a text names an object store, or anything else by scheme, and no path."""
    return "://" in text


def shown(uri: str) -> str:
    """A URI as people may see it: without options."""
    return uri.partition("?")[0]


def connect(uri: str, *, is_whole: bool = False) -> "tuple[FileSystem, str]":
    """The file system behind a URI, and the path in it without a slash at its end.

    Args:
        uri: `SCHEME://...`.
        is_whole: opened for objects that are handed over in one piece: S3 then takes each in one request.

    Raises:
        InvalidArgumentError: it is no URI that pyarrow knows, or says more than it may.
        PermissionDeniedError, ServiceUnavailableError: S3 did not say in which region the bucket is.
    """
    parts = urlsplit(uri)
    if parts.password is not None or (parts.scheme == "s3" and parts.username is not None):
        raise InvalidArgumentError(
            "A URI with credentials in it is seen by everybody who can list processes: leave them out and set the usual "
            "variables (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, ...), also where executors run.",
            field="out",
        )
    if parts.scheme == "s3":
        return _connect_s3(uri, is_whole=is_whole), _s3_path(parts)
    if parts.scheme in ("gs", "gcs") and "retry_limit_seconds" not in parts.query:
        uri += f"{'&' if parts.query else '?'}retry_limit_seconds={GCS_RETRY_SECONDS}"
    return _connect_other(uri)


@contextmanager
def told(uri: str, doing: str) -> Iterator[None]:
    """Tells failures of an object store as typed errors.

    Args:
        uri: which; shown without options.
        doing: what was tried: `write index/20261122`.

    Raises:
        InvalidArgumentError: there is no such bucket, or the URI is none.
        PermissionDeniedError: credentials are missing, wrong or too weak.
        DiskFullError: no space, where it is a disk after all.
        ServiceUnavailableError: everything else; it did not answer, or not well, as often as it was tried.
    """
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's are of these
        raise _typed(error, shown(uri), doing) from error


def refuse_no_bucket(fs: "FileSystem", path: str, uri: str) -> None:
    """InvalidArgumentError when the bucket is not there: making one is its owner's business."""
    from pyarrow.fs import FileType

    if fs.type_name not in BUCKET_TYPES:
        return
    bucket = path.partition("/")[0]
    with told(uri, f"look for the bucket {bucket}"):
        is_missing = fs.get_file_info(bucket).type == FileType.NotFound
    if is_missing:
        raise _no_bucket(bucket)


def _connect_s3(uri: str, *, is_whole: bool) -> "FileSystem":
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in S3_OPTIONS:
            raise InvalidArgumentError(
                f"{shown(uri)} has the option {name!r}: {', '.join(S3_OPTIONS)} are known.", field="out"
            )
    if not parts.netloc:
        raise InvalidArgumentError(f"{shown(uri)} names no bucket: s3://BUCKET/PREFIX", field="out")
    with told(uri, "find the bucket's region"):
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
    # Writes in the background are the ones that pyarrow does not complete once a part has failed: without it, closing
    # a stream whose write was refused makes an object of the parts before.
    return S3FileSystem(
        background_writes=True,
        allow_delayed_open=is_whole,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPT_COUNT_MAX),
        **given,
    )


def _s3_path(parts: SplitResult) -> str:
    return unquote(parts.netloc + parts.path).rstrip("/")


@functools.cache
def _connect_other(uri: str) -> "tuple[FileSystem, str]":
    from pyarrow.fs import FileSystem

    try:
        fs, path = FileSystem.from_uri(uri)
    except (ValueError, NotImplementedError) as error:
        raise InvalidArgumentError(
            f"{shown(uri)}: {error}; name s3://BUCKET/PREFIX, or another URI that pyarrow knows.", field="out"
        ) from error
    except OSError as error:
        raise _typed(error, shown(uri), "connect") from error
    return fs, path.rstrip("/")


def _no_bucket(bucket: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"There is no bucket {bucket!r}: make it first, or name another one.", field="out", bucket=bucket
    )


def _typed(error: Exception, uri: str, doing: str) -> Exception:
    text = str(error)
    what = f"{uri}: cannot {doing}: {text}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{what}. Free some space and try again", file=uri)
    if "NO_SUCH_BUCKET" in text or "NoSuchBucket" in text:
        return _no_bucket(urlsplit(uri).netloc)
    if any(denial in text for denial in _DENIALS) or isinstance(error, PermissionError):
        return PermissionDeniedError(
            f"{what}. The credentials found (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the "
            "machine's role, on executors too) must be there and may list, read, write and delete",
            method=doing,
        )
    if isinstance(error, ValueError):
        return InvalidArgumentError(what, field="out")
    return ServiceUnavailableError(f"{what}: check the endpoint and the network, and run the same again", service=uri)
