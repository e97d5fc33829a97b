"""Namespaces by name, page by page: what they use, and their quotas at this gateway."""

from collections.abc import Mapping

from console.calls import Calls
from console.pages.page import Page, Stopwatch, to_json
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb

PAGE_SIZE = 100


def tenants_page(calls: Calls, question: Question) -> Page:
    """One page of namespaces."""
    stopwatch = Stopwatch()
    request = pb.ListTenantsRequest(page_size=PAGE_SIZE, page_token=question.text("page"))
    answer = calls.ask(calls.gateway.ListTenants, request)
    took_millis = stopwatch.millis()
    values = {
        "rows": [(each, _quotas(each)) for each in answer.tenants],
        "first_href": question.link("/tenants", page=None) if question.text("page") else "",
        "next_href": question.link("/tenants", page=answer.next_page_token) if answer.next_page_token else "",
    }
    return Page("tenants.html", values, {"answer": to_json(answer), "tookMillis": took_millis})


def _quotas(tenant: pb.Tenant) -> Mapping[str, int]:
    """The quotas that are set, by name."""
    return {field.name: value for field, value in tenant.quotas.ListFields()}
