"""Server reflection, v1 and v1alpha, with comments, so that `grpcurl describe` shows the text of the proto files.

The code that answers (commented_reflection.py) is loaded with the first call, because most processes never get one.
"""

from collections.abc import Iterable, Iterator

import grpc

from services.methods import REFLECTION_SERVICES
from services.serving.calls.raw_handlers import AnyHandler


def add_reflection(server: grpc.Server, service_names: Iterable[str]) -> None:
    """Serve reflection for services, under both names, before the server starts."""
    own_names = [prefix.strip("/") for prefix in REFLECTION_SERVICES]
    listed = (*service_names, *own_names)

    def answer(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        from services.serving.commented_reflection import CommentedReflection

        return CommentedReflection(listed).answers(requests, context)

    handlers: dict[str, AnyHandler] = {"ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(answer)}
    for name in own_names:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
