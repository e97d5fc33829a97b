"""Server reflection, v1 and v1alpha, with comments, so that `grpcurl describe` reads like the proto files.

What answers is loaded with the first question: most processes are never asked.
"""

from collections.abc import Iterable, Iterator

import grpc

SERVICE_NAME_V1 = "grpc.reflection.v1.ServerReflection"
SERVICE_NAME_V1ALPHA = "grpc.reflection.v1alpha.ServerReflection"


def add_reflection(server: grpc.Server, service_names: Iterable[str]) -> None:
    """Serve reflection for services, under both names, before the server starts."""
    listed = (*service_names, SERVICE_NAME_V1, SERVICE_NAME_V1ALPHA)

    def answer(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        from services.commented_reflection import CommentedReflection

        return CommentedReflection(listed).answers(requests, context)

    method = grpc.stream_stream_rpc_method_handler(answer)
    for name in (SERVICE_NAME_V1, SERVICE_NAME_V1ALPHA):
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method}),))
