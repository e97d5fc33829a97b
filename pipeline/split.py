"""Split: what one task of a scan reads."""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from pipeline.log_files import LogFile


@dataclass(frozen=True)
class Split(InputPartition):
    """A stretch of one log file, from a record's start on; offsets are commit-log offsets in bytes.

    Attributes:
        file: the log file.
        begin: where the first record starts.
        end: where the records must end.
        is_to_file_end: whether they end with the file: with a blank, or exactly with its last byte.
        time_millis_min: no record is older; None when that is not known.
        time_millis_max: no record is younger; None when that is not known.
    """

    file: LogFile
    begin: int
    end: int
    is_to_file_end: bool = False
    time_millis_min: int | None = None
    time_millis_max: int | None = None
