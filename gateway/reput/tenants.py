"""ListTenants: what namespaces use, and their quotas at this gateway."""

from collections.abc import Iterable

from gateway.queries.page import page_size
from gateway.reput.queries import Call
from gateway.tenants.tenants import Tenants
from gateway.tenants.usage import Usage, lag_of, sent_rates, usage_of
from reput.gateway.v1 import gateway_service_pb2 as pb

METHOD = "ListTenants"
_AFTER = "after"
# Groups of a page whose lag is asked for: each costs a call to every shard.
LAG_GROUP_COUNT_MAX = 256


def list_tenants(call: Call, request: pb.ListTenantsRequest, tenants: Tenants | None) -> pb.ListTenantsResponse:
    """One page.

    Args:
        call: the shards, as the caller may see them.
        request: which ones.
        tenants: those of the tenants file; None: there is none.

    Raises:
        InvalidArgumentError, InvalidPageTokenError: the request is wrong.
        StoreError: a shard does not answer.
    """
    count_max = page_size(request.page_size, "page_size")
    sealed: dict[str, str | int | None] = {"namespace": request.namespace}
    after = str(call.tokens.open(request.page_token, METHOD, sealed).get(_AFTER, ""))
    found = usage_of(call.shards, call.deadline)
    named = {} if tenants is None else tenants.now()
    # A caller that may not see everything is not told of namespaces of which it sees nothing.
    names = {*found} if call.shards.is_limited else {*found, *named}
    chosen = sorted(name for name in names if name > after and request.namespace in ("", name))
    page = chosen[:count_max]
    usages = {name: found.get(name) or Usage() for name in page}
    rates = sent_rates(call.shards, _all(usage.queue_topics for usage in usages.values()), call.deadline)
    groups = sorted(_all(usage.groups for usage in usages.values()))
    lags = lag_of(call.shards, groups, call.deadline) if len(groups) <= LAG_GROUP_COUNT_MAX else None
    response = pb.ListTenantsResponse()
    for name, usage in usages.items():
        of_topics = [rates.get(topic, (0.0, 0.0)) for topic in usage.queue_topics]
        quotas = named[name].quotas if name in named else None
        response.tenants.add(
            namespace=name,
            quotas=None if quotas is None else pb.TenantQuotas(**quotas.model_dump()),
            topic_count=len(usage.topics),
            group_count=len(usage.groups),
            stored_bytes=usage.stored_bytes,
            lag_count=None if lags is None else sum(lags[group] for group in usage.groups),
            sent_messages_per_second=sum(messages for messages, _ in of_topics),
            sent_bytes_per_second=sum(size_bytes for _, size_bytes in of_topics),
            refused_count=0 if tenants is None else tenants.refused_count(name),
            connection_count=0 if tenants is None else tenants.connection_count(name),
        )
    if len(chosen) > len(page):
        response.next_page_token = call.tokens.seal(METHOD, sealed, {_AFTER: page[-1]})
    return response


def _all(parts: Iterable[set[str]]) -> set[str]:
    return set().union(*parts)
