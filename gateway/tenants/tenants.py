"""Tenants: whether what a namespace asks for is within its quotas, at this gateway.

    append ══ topics ══▶ namespaces ══ rates of each ══▶ all of it passes and is taken from each, or it is refused whole

Only namespaces that the tenants file names are looked at. A request is counted when it passes, also if it is refused behind
this gateway. A refusal costs the topics of one request, and holds no thread and no place.
"""

import threading
import time
from collections.abc import Callable, Mapping

from google.protobuf.message import DecodeError

from gateway.tenants.rate import Rate
from gateway.tenants.tenants_file import NAMESPACE_COUNT_MAX, Quotas, TenantsFile
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.observing.meters import CounterFamily, Meters
from store.errors import QuotaExceededError
from store.format.topic import namespace_of

SENT_BYTES, SENT_MESSAGES = "sent_bytes_per_second", "sent_messages_per_second"
RATES = (SENT_BYTES, SENT_MESSAGES)
# In the names of topics and groups it ends the namespace. Requests without one name none.
PERCENT = b"%"


class Tenant:
    """A namespace with quotas, at this gateway.

    Attributes:
        quotas: those of the file.
        rates: by the name of their quota.
        sent_message_count, sent_bytes: that passed.
    """

    __slots__ = ("quotas", "rates", "sent_bytes", "sent_message_count")

    def __init__(self) -> None:
        self.quotas = Quotas()
        self.rates: dict[str, Rate] = {}
        self.sent_message_count = 0
        self.sent_bytes = 0

    def keep(self, quotas: Quotas, gateway_count: int, now_seconds: float) -> None:
        """Set its quotas; rates that stay keep their levels."""
        self.quotas = quotas
        for name in RATES:
            limit = getattr(quotas, name)
            if limit is None:
                self.rates.pop(name, None)
            elif name in self.rates:
                self.rates[name].change(limit / gateway_count)
            else:
                self.rates[name] = Rate(limit / gateway_count, now_seconds)


class Tenants:
    """The namespaces of a tenants file; thread-safe.

    Args:
        file: gives its newest valid version, the same object while it has not changed.
        clock: seconds, rising.
    """

    def __init__(self, file: Callable[[], TenantsFile], clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: TenantsFile | None = None
        self._tenants: dict[str, Tenant] = {}
        # Each namespace of the file has a series for each quota, of which it has been refused something.
        self.refused = CounterFamily(
            "tenant_refused",
            "What was refused to a namespace because of a quota.",
            ("namespace", "quota"),
            series_count_max=NAMESPACE_COUNT_MAX * len(Quotas.model_fields) + 1,
        )

    def check_append(self, request: bytes) -> None:
        """Let an append pass, and count it.

        Args:
            request: the bytes of an AppendMessagesRequest, or of one of a stream; the commit log refuses what cannot be parsed.

        Raises:
            QuotaExceededError: nothing of it passes.
        """
        if PERCENT not in request or not (tenants := self._now()):
            return
        try:
            messages = pb.AppendMessagesRequest.FromString(request).messages
        except DecodeError:
            return
        sent: dict[str, tuple[int, int]] = {}
        for message in messages:
            namespace = namespace_of(message.topic)
            if namespace in tenants:
                count, size_bytes = sent.get(namespace, (0, 0))
                sent[namespace] = count + 1, size_bytes + message.ByteSize()
        if not sent:
            return
        with self._lock:
            now_seconds = self._clock()
            for namespace in sent:
                self._check_rates(namespace, tenants[namespace], now_seconds)
            for namespace, (count, size_bytes) in sent.items():
                tenant = tenants[namespace]
                tenant.sent_message_count += count
                tenant.sent_bytes += size_bytes
                for name, taken in ((SENT_MESSAGES, count), (SENT_BYTES, size_bytes)):
                    if name in tenant.rates:
                        tenant.rates[name].take(taken)

    def show(self, meters: Meters) -> None:
        """Put what passed and what was refused on the page of metrics."""
        meters.counters.append(self.refused)
        for name, text, attribute in (
            (
                "reput_tenant_sent_messages_total",
                "Messages of a namespace that passed its quotas.",
                "sent_message_count",
            ),
            ("reput_tenant_sent_bytes_total", "Bytes of messages of a namespace that passed its quotas.", "sent_bytes"),
        ):
            meters.gauge(
                name, text, lambda attribute=attribute: self._numbers(attribute), ("namespace",), is_total=True
            )

    def _numbers(self, attribute: str) -> Mapping[tuple[str, ...], float]:
        return {(name,): float(getattr(tenant, attribute)) for name, tenant in self._now().items()}

    def _now(self) -> Mapping[str, Tenant]:
        """The namespaces of the newest version of the file."""
        file = self._file()
        if file is not self._kept:
            with self._lock:
                now_seconds = self._clock()
                # A new mapping, because others read the old one without the lock.
                tenants = {name: self._tenants.get(name) or Tenant() for name in file.namespaces}
                for name, quotas in file.namespaces.items():
                    tenants[name].keep(quotas, file.gateway_count, now_seconds)
                self._tenants, self._kept = tenants, file
        return self._tenants

    # With the lock held.

    def _check_rates(self, namespace: str, tenant: Tenant, now_seconds: float) -> None:
        for name, rate in tenant.rates.items():
            if rate.wait_seconds(now_seconds) > 0:
                raise self._refusal(namespace, name, getattr(tenant.quotas, name))

    def _refusal(self, namespace: str, quota: str, limit: int) -> QuotaExceededError:
        self.refused.of(namespace, quota).add()
        return QuotaExceededError(
            f"the namespace {namespace} has used up its quota {quota} = {limit}: send less, or have the quota raised in the "
            "tenants file of the gateway",
            namespace=namespace,
            quota=quota,
            quotaMax=limit,
        )
