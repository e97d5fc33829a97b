"""`reput fsck`: audits a store root that no process has open, and repairs it on request. With --release it tells instead what
an earlier release would not go on with.

Exit codes: 0 clean, 1 something was found, 2 usage, not a store or in use, 3 everything found was repaired, 4 the disk
failed.
"""

import errno
import pathlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import options
from cli.exits import CliError, Exit, usage_error
from cli.options import DelayLevels, OutputFormat, use_list
from cli.printing import progress_bar
from store.format.delivery.delay_levels import DELAY_LEVELS_DEFAULT

if TYPE_CHECKING:
    from cli.repair import RepairReport
    from store.audit.findings import Findings
    from store.audit.store_audit import StoreAudit

EXIT_CLEAN, EXIT_FOUND, EXIT_REPAIRED = 0, 1, 3
SHOWN_PER_CODE = 10  # in a table, without --verbose

Store = Annotated[pathlib.Path, typer.Argument(help="The store root.", show_default=False)]
Repair = Annotated[
    bool,
    typer.Option("--repair", help="Build wrong queues and indexes again; the replaced files are kept in reput/fsck/."),
]
RepairLog = Annotated[
    bool,
    typer.Option("--repair-log", help="Also cut the log at its first damage; the cut bytes are kept in reput/fsck/."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Cut the log without asking.")]
Release = Annotated[
    str,
    typer.Option(
        "--release",
        metavar="VERSION",
        help="Tell only what this earlier release does not know of the store; it may be served meanwhile.",
        show_default=False,
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every finding that was kept.")]


def fsck(
    *,
    store: Store,
    repair: Repair = False,
    repair_log: RepairLog = False,
    yes: Yes = False,
    release: Release = "",
    delay_levels: DelayLevels = DELAY_LEVELS_DEFAULT,
    output: options.Output = OutputFormat.TABLE,
    verbose: Verbose = False,
) -> int:
    """Check a stopped store: log, queues, indexes and checkpoints against each other. It only reads, except with --repair."""
    from store.errors import ServiceUnavailableError, StoreError, StoreLockedError, UnsupportedStoreError
    from store.files.file_system import RealFileSystem

    use_list(delay_levels)
    root = pathlib.Path(store)
    if not root.is_dir():
        usage_error(f"{root} is no directory", "Name the root of a store: the directory with commitlog/ in it.")
    fs = RealFileSystem()
    try:
        if release:
            if repair or repair_log:
                usage_error("--release changes nothing", "Leave out --repair and --repair-log.")
            return _show_unknown(fs, root, release, output, verbose=verbose)
        refuse_no_store(fs, root, writes=repair or repair_log)
        with progress_bar("log") as (on_progress, bar):
            if repair or repair_log:
                from cli.repair import Repairer

                confirm = _confirm(yes, bar) if repair_log else None
                audit, report = Repairer(fs, root, on_progress).run(confirm)
            else:
                audit, report = _audit(fs, root, on_progress), None
    except (StoreLockedError, UnsupportedStoreError) as error:
        raise CliError(Exit.USAGE, error.reason(), error.message) from error
    except ServiceUnavailableError as error:  # retention, or a builder, was at work meanwhile
        raise CliError(Exit.UNAVAILABLE, error.reason(), error.message) from error
    except StoreError as error:
        raise _disk_failed(error.message) from error
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise CliError(
                Exit.USAGE,
                "PERMISSION_DENIED",
                str(error),
                "Run it as the owner of the store; --repair must be able to write.",
            ) from error
        raise _disk_failed(str(error)) from error
    code = EXIT_FOUND
    if audit.findings.is_clean:
        code = EXIT_REPAIRED if report is not None and report.has_repaired else EXIT_CLEAN
    _show(root, audit, report, code, output, verbose=verbose)
    return code


def refuse_no_store(fs: Any, root: pathlib.Path, *, writes: bool) -> None:
    """UnsupportedStoreError for a directory that is not a store or uses what is refused, StoreLockedError for one in use."""
    from store.audit.store_audit import refuse_held_root
    from store.features.table import refuse_unsupported

    refuse_unsupported(fs, root, writes=writes, may_be_empty=False)
    refuse_held_root(fs, root)


def _audit(fs: Any, root: pathlib.Path, on_progress: Callable[[int, int], None]) -> "StoreAudit":
    from store.audit.store_audit import audit_store, refuse_held_root

    audit = audit_store(fs, root, on_progress=on_progress)
    refuse_held_root(fs, root)  # a process that opened it meanwhile has changed what was read
    return audit


def _disk_failed(message: str) -> CliError:
    return CliError(Exit.UNAVAILABLE, "DISK_FAILED", message, "The store cannot be checked until its disk works.")


def _confirm(yes: bool, bar: Any) -> Callable[[str], bool]:
    """Ask on a terminal whether the log may be cut; without a terminal --yes is needed."""
    if yes:
        return lambda question: True
    if bar is None or not sys.stdin.isatty():
        usage_error("--repair-log cuts the log, and there is no terminal to ask on", "Add --yes to cut it.")

    def ask(question: str) -> bool:
        bar.stop()  # it would write over the question
        try:
            return typer.confirm(question, err=True)
        finally:
            bar.start()

    return ask


def _show_unknown(fs: Any, root: pathlib.Path, release: str, output: OutputFormat, *, verbose: bool) -> int:
    from cli import printing
    from cli.earlier_release import RELEASES, unknown_to
    from cli.terminal import one_line
    from store.features.table import refuse_unsupported

    if release not in RELEASES:
        usage_error(f"--release {release}: this is no earlier release", f"Name one of {', '.join(RELEASES)}.")
    refuse_unsupported(fs, root, may_be_empty=False)
    with progress_bar("log") as (on_progress, _):
        findings = unknown_to(fs, root, release, on_progress)
    code = EXIT_CLEAN if findings.is_clean else EXIT_FOUND
    if output is OutputFormat.JSON:
        printing.print_json({"store": str(root), "release": release, "exit_code": code, **_findings_json(findings)})
    elif output is OutputFormat.JSONL:
        printing.print_jsonl(_finding_rows(findings))
    elif output is OutputFormat.CSV:
        printing.print_csv(_finding_rows(findings))
    else:
        _print_findings(findings, verbose=verbose)
        goes_on = "goes on with all of it" if findings.is_clean else "does not know all of it; nothing was changed"
        print(f"{release} {goes_on}: {one_line(str(root))}")
    return code


# -- output


def _show(
    root: pathlib.Path,
    audit: "StoreAudit",
    report: "RepairReport | None",
    code: int,
    output: OutputFormat,
    *,
    verbose: bool,
) -> None:
    from cli import printing

    if output is OutputFormat.JSON:
        printing.print_json(as_json(root, audit, report, code))
    elif output is OutputFormat.JSONL:
        printing.print_jsonl(_finding_rows(audit.findings))
    elif output is OutputFormat.CSV:
        printing.print_csv(_finding_rows(audit.findings))
    else:
        _print_text(root, audit, report, code, verbose=verbose)


def as_json(root: pathlib.Path, audit: "StoreAudit", report: "RepairReport | None", code: int) -> dict[str, Any]:
    """The whole result; the keys are part of the command's contract."""
    log, layout = audit.log, audit.index_layout
    return {
        "store": str(root),
        "exit_code": code,
        **_findings_json(audit.findings),
        "log": {
            "first_offset": log.first_offset,
            "end_offset": log.end_offset,
            "file_count": log.file_count,
            "file_size_bytes": log.file_size_bytes,
            "record_count": log.record_count,
            "records_behind_damage": log.records_behind_damage,
            "unguarded_record_count": log.unguarded_count,
        },
        "queues": {"count": audit.queue_count, "unit_count": audit.unit_count, "wrong_count": len(audit.wrong_queues)},
        "index": {
            "file_count": audit.index_file_count,
            "hash_slot_count": layout.slot_count if layout is not None else None,
            "entry_count_max": layout.entry_count_max if layout is not None else None,
            "key_count": audit.key_count,
            "entry_count": audit.entry_count,
        },
        "bytes": audit.total_bytes,
        "seconds": round(audit.seconds, 3),
        "repair": report.as_json() if report is not None else None,
    }


def _findings_json(findings: "Findings") -> dict[str, Any]:
    from store.audit.findings import Severity

    return {
        "clean": findings.is_clean,
        "severities": {str(severity): findings.severity_count(severity) for severity in Severity},
        "counts": dict(sorted(findings.counts.items())),
        "findings": _finding_rows(findings),
        "findings_left_out": findings.left_out_count,
    }


def _finding_rows(findings: "Findings") -> list[dict[str, Any]]:
    return [
        {
            "code": finding.code,
            "severity": str(finding.severity),
            "file": finding.file,
            "byte": finding.byte,
            "commit_log_offset": finding.commit_log_offset,
            "count": finding.count,
            "what": finding.what,
            "what_to_do": finding.what_to_do,
        }
        for finding in findings.kept
    ]


def _print_text(
    root: pathlib.Path, audit: "StoreAudit", report: "RepairReport | None", code: int, *, verbose: bool
) -> None:
    from cli.terminal import one_line
    from store.audit.findings import Severity

    log, findings = audit.log, audit.findings
    speed = audit.total_bytes / 1e6 / max(audit.seconds, 1e-9)
    print(f"{one_line(str(root))}: {audit.total_bytes:,} bytes in {audit.seconds:.1f} s ({speed:,.0f} MB/s)")
    print(
        f"  log      {log.first_offset:,} to {log.end_offset:,}, {log.record_count:,} records in {log.file_count} files"
    )
    print(f"  queues   {audit.queue_count:,}, {audit.unit_count:,} units")
    print(f"  indexes  {audit.index_file_count} files, {audit.entry_count:,} entries for {audit.key_count:,} keys")
    if report is not None:
        for line in report.lines:
            print(f"  repair   {one_line(line)}")
    _print_findings(findings, verbose=verbose)
    counts = ", ".join(f"{findings.severity_count(severity)} {severity}" for severity in Severity)
    conclusion = {EXIT_CLEAN: "clean", EXIT_FOUND: "not clean", EXIT_REPAIRED: "repaired, now clean"}[code]
    print(f"{conclusion} ({counts})")


def _print_findings(findings: "Findings", *, verbose: bool) -> None:
    from cli.printing import print_table
    from cli.terminal import one_line
    from store.audit.findings import CODES, Severity

    shown: dict[str, int] = {}
    rows = []
    for finding in findings.kept:
        shown[finding.code] = shown.get(finding.code, 0) + 1
        if verbose or shown[finding.code] <= SHOWN_PER_CODE:
            rows.append((finding.severity, finding.code, finding.file, finding.byte, finding.what))
    if rows:
        print()
        if verbose:
            for severity, name, file, byte, what in rows:
                print(one_line(f"{severity:7}  {name}  {file} byte {byte}: {what}"))
        else:
            print_table(["severity", "code", "file", "byte", "what"], rows, may_be_cut="what")
        more = sum(findings.finding_counts.values()) - len(rows)
        if more:
            print(f"and {more:,} more of these kinds" + ("" if verbose else "; --verbose shows them"))
        print()
        for name in shown:
            if CODES[name].what_to_do and (verbose or CODES[name].severity is not Severity.INFO):
                print(f"{name}: {CODES[name].what_to_do}")
