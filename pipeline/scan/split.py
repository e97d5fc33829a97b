"""Split: the part of the log that one task of a scan reads."""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from pipeline.scan.log_files import LogFile


@dataclass(frozen=True)
class Split(InputPartition):
    """A stretch of one log file, from a record's start on; offsets are commit-log offsets in bytes.

    Attributes:
        file: the log file.
        begin: start of the first record.
        end: where the records must end; exclusive.
        is_to_file_end: whether the split ends with the file: with a blank, or exactly with its last byte.
        time_millis_min: least store time, milliseconds since 1970 UTC; None when it is not known.
        time_millis_max: greatest store time, likewise.
    """

    file: LogFile
    begin: int
    end: int
    is_to_file_end: bool = False
    time_millis_min: int | None = None
    time_millis_max: int | None = None
