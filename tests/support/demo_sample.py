"""The sample of `make run` in a stack, and the clients that its traffic has."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from cli.demo import _load_samples
from cli.demo_traffic import VISIT_GROUP, VISITS
from reput_client import Consumer, QueryClient, TransactionProducer
from tests.support.stack import HostedStack, Stack


class SampleClients(NamedTuple):
    """The clients of the sample's traffic."""

    client: QueryClient
    producer: TransactionProducer
    consumer: Consumer


@contextmanager
def sample_clients(stack: Stack | HostedStack) -> Iterator[SampleClients]:
    """Loads the sample's messages; the clients end with the block."""
    address = stack.addresses["gateway"]
    _load_samples(address)
    stack.wait_until_built()
    with (
        QueryClient(address) as client,
        TransactionProducer(address) as producer,
        Consumer(address, VISIT_GROUP, {VISITS: "*"}) as consumer,
    ):
        yield SampleClients(client, producer, consumer)
