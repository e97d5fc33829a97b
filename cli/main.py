"""The `reput` command: serves a store, appends to it, and answers mqadmin's queries.

Every verb imports what it needs when it runs, so that `reput --version` and `--help` are fast.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cli.exits import CliError, Exit, show_error

# Module and function of each verb.
VERBS = {
    "serve": ("cli.serve", "serve"),
    "find": ("cli.queries.find", "find"),
    "search": ("cli.queries.search", "search"),
    "explain": ("cli.queries.explain", "explain"),
    "queryMsgByKey": ("cli.queries.query", "query_msg_by_key"),
    "queryMsgById": ("cli.queries.query", "query_msg_by_id"),
    "queryMsgByUniqueKey": ("cli.queries.query", "query_msg_by_unique_key"),
    "queryMsgByOffset": ("cli.queries.query", "query_msg_by_offset"),
    "send": ("cli.send", "send"),
    "load": ("cli.send", "load"),
    "export": ("cli.transfer.export", "export"),
    "import": ("cli.transfer.import_messages", "import_messages"),
    "searchOffset": ("cli.queries.search_offset", "search_offset"),
    "topics": ("cli.queries.inspect", "topics"),
    "status": ("cli.queries.inspect", "status"),
    "followers": ("cli.followers", "followers"),
    "config": ("cli.queries.inspect", "config"),
    "fsck": ("cli.fsck.fsck", "fsck"),
    "demo": ("cli.demo", "demo"),
    "make-key": ("cli.make_key", "make_key"),
}
# The same for `reput pipeline NAME`.
PIPELINE_VERBS = {
    "rebuild": ("cli.pipeline.rebuild", "rebuild"),
    "audit": ("cli.pipeline.audit", "audit"),
    "archive": ("cli.pipeline.archive", "archive"),
    "restore": ("cli.pipeline.restore", "restore"),
    "query": ("cli.pipeline.query", "query"),
    "analytics": ("cli.pipeline.analytics", "analytics"),
    "ship": ("cli.pipeline.ship", "ship"),
}


def version() -> str:
    """The version of the installed project, or of the checkout that this file lies in."""
    import importlib.metadata

    try:
        return importlib.metadata.version("reput")
    except importlib.metadata.PackageNotFoundError:
        import pathlib
        import tomllib

        project_file = pathlib.Path(__file__).resolve().parent.parent / "pyproject.toml"
        return str(tomllib.loads(project_file.read_text(encoding="utf-8"))["project"]["version"])


def _needed_verbs(typed: Sequence[str]) -> tuple[Iterable[str], Iterable[str]]:
    """The verbs, and those of `pipeline`, whose modules a command line needs; help and an unknown verb need all."""
    if typed[:1] == ["pipeline"]:
        return (), typed[1:2] if typed[1:2] and typed[1] in PIPELINE_VERBS else PIPELINE_VERBS
    return typed[:1] if typed[:1] and typed[0] in VERBS else VERBS, ()


def _build_app(verbs: Iterable[str], pipeline_verbs: Iterable[str]) -> Any:
    """The command with these verbs; only their modules are loaded."""
    import importlib

    import typer

    app = typer.Typer(
        name="reput",
        help="The RocketMQ message store as gRPC services. Exit codes: 0 found, 1 nothing found, 2 usage, 3 partial, "
        "4 unavailable.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # drawing its boxes takes a third of the time of --help
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True)
    def _common(
        show_version: bool = typer.Option(False, "--version", help="Print the version."),
    ) -> None:
        if show_version:
            print(f"reput {version()}")
            raise typer.Exit(0)

    for name in verbs:
        module_name, function_name = VERBS[name]
        app.command(name)(_as_command(getattr(importlib.import_module(module_name), function_name)))
    pipeline = typer.Typer(
        help="Jobs on Spark over the store's files; each prints a JSON report.",
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in pipeline_verbs:
        module_name, function_name = PIPELINE_VERBS[name]
        pipeline.command(name)(_as_command(getattr(importlib.import_module(module_name), function_name)))
    app.add_typer(pipeline, name="pipeline")
    return app


def _as_command(verb: Callable[..., int]) -> Callable[..., None]:
    """The verb as a command whose result is the exit code of the process."""
    import functools

    import typer

    from cli.security_flags import with_flags

    verb = with_flags(verb)

    @functools.wraps(verb)
    def run(**arguments: Any) -> None:
        try:
            code = verb(**arguments)
            sys.stdout.flush()
        except CliError as error:
            show_error(error)
            code = error.code
        except KeyboardInterrupt:
            code = 130
        except BrokenPipeError:  # the reader of stdout has closed it, such as `head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = Exit.FOUND
        raise typer.Exit(int(code))

    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code (see `cli.exits.Exit`)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(f"reput {version()}")
        return Exit.FOUND
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a character that the terminal cannot show must not end the command
    from store.errors import InvalidSettingError
    from store.files.umask import set_umask

    try:
        umask = set_umask(os.environ.get("REPUT_UMASK", ""))
    except InvalidSettingError as error:
        show_error(CliError(Exit.USAGE, error.reason(), error.message))
        return Exit.USAGE
    try:
        # Shell completion passes the line in the environment.
        typed = arguments or os.environ.get("COMP_WORDS", "").split()[1:]
        _build_app(*_needed_verbs(typed))(arguments, prog_name="reput")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else Exit.FOUND
    finally:
        os.umask(umask)  # tests run verbs in their own process
    return Exit.FOUND


if __name__ == "__main__":
    sys.exit(main())
