"""An S3 on loopback, moto's, as a program: says its port on stdout, then does what stdin says, and ends with it.

    hold FRAGMENT COUNT     uploads whose path has FRAGMENT wait once COUNT have begun to be answered; says `held` then
    release                 they go on
    refuse FRAGMENT COUNT   the upload after COUNT of them is answered with 403, and with a third number so many of them
    keep FRAGMENT           objects whose path has FRAGMENT cannot be deleted
    deny FRAGMENT           every request whose path has FRAGMENT is answered with 403
    hide PATH               nobody may look at PATH, a bucket's, itself
    delay MILLIS            each request is answered so much later
    count                   says how many requests have come since the last time

Run it by `tests.support.object_store`.
"""

import sys
import threading
import time

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class Gate:
    """Lets requests through, until it is told otherwise; a WSGI application around another."""

    def __init__(self, application) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._fragment, self._left, self._closed_count, self._is_refused = "", 0, 0, False
        self._released = threading.Event()
        self._kept = self._hidden = self._denied = ""
        self._delay_seconds = 0.0
        self._request_count = 0

    def command(self, word: str, fragment: str = "", count: str = "0", closed_count: str = "1") -> None:
        with self._lock:
            if word == "release":
                self._fragment = self._kept = self._hidden = self._denied = ""
                self._released.set()
            elif word == "keep":
                self._kept = fragment
            elif word == "deny":
                self._denied = fragment
            elif word == "hide":
                self._hidden = fragment
            elif word == "delay":
                self._delay_seconds = float(fragment) / 1000
            elif word == "count":
                say(self._request_count)
                self._request_count = 0
            else:
                self._released.clear()
                self._fragment, self._left, self._is_refused = fragment, int(count), word == "refuse"
                self._closed_count = int(closed_count) if self._is_refused else sys.maxsize

    def __call__(self, environ, start_response):
        with self._lock:
            self._request_count += 1
        if self._delay_seconds:
            time.sleep(self._delay_seconds)  # the latency of a far store
        if self._denied and self._denied in environ["PATH_INFO"]:
            return refusal(start_response)
        if environ["REQUEST_METHOD"] in ("PUT", "POST") and self._is_closed_for(environ["PATH_INFO"]):
            if self._is_refused:
                return refusal(start_response)
            say("held")
            self._released.wait()
        if environ["REQUEST_METHOD"] == "DELETE" and self._kept and self._kept in environ["PATH_INFO"]:
            return refusal(start_response)
        if environ["REQUEST_METHOD"] == "HEAD" and self._hidden and environ["PATH_INFO"] == self._hidden:
            return refusal(start_response)
        return self._application(environ, start_response)

    def _is_closed_for(self, path: str) -> bool:
        with self._lock:
            if not self._fragment or self._fragment not in path:
                return False
            self._left -= 1
            return -self._closed_count <= self._left < 0


def refusal(start_response) -> list[bytes]:
    start_response("403 Forbidden", [("Content-Type", "application/xml")])
    return [b"<Error><Code>AccessDenied</Code><Message>the test says so</Message></Error>"]


class S3Alone(DomainDispatcherApplication):
    """Knows without a look at all services of moto which of them a request is for: a fifth of its work."""

    def get_application(self, environ):
        name = "moto_api" if environ["PATH_INFO"].startswith("/moto-api") else "s3"
        with self.lock:
            if name not in self.app_instances:
                self.app_instances[name] = self.create_app(name)
            return self.app_instances[name]


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, type, message, *arguments) -> None:
        pass


def say(line: object) -> None:
    """A line in one piece: requests are answered by threads, and `print` writes the end of a line apart."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    gate = Gate(S3Alone(create_backend_app))
    server = make_server("127.0.0.1", 0, gate, threaded=True, request_handler=Quiet)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say(server.server_port)
    for line in sys.stdin:
        gate.command(*line.split())
        say("done")


if __name__ == "__main__":
    main()
