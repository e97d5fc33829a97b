"""Shares: how a limited number of places is divided among clients. No locks and no clock: the owner has both.

A client is a verified identity, else a connection; above a connection stands its address. One rule divides everything that is
limited (ADR 0040):

    A client holds at most as many places as are free. An address holds at most three times as many as are free.

    places 128    one client    64 held, 64 free            one address, many connections    96 held, 32 free
                  two clients   43 each, 42 free
                  five clients  22 each, 18 free

So nobody ever holds the last place, a client that comes later finds room without waiting, and no share must be configured.
Within an address, its connections share the address's part by the same rule. A service that wants N places for a client that
is alone has 2 N places.

What is kept after its call, such as a consumer group or a lock, is divided by smaller parts (ADR 0111): a client holds at most
a tenth of the places, and an address a quarter. See `kept_shares`.

KeptKeys: which keys are remembered for whom, when there is room for so many; the rule for clients is above.

A client that brings ever new keys loses its own oldest ones, and so does an address, before others lose any. Nobody is refused.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

# What an address may hold, as a multiple of what is free: three quarters of everything. A proxy has many clients behind it.
ADDRESS_FACTOR = 3
# Parts of what is kept after its call: ten identities, or four addresses, fill it together. None of them needs so much alone.
KEPT_CLIENT_DIVISOR = 10
KEPT_ADDRESS_DIVISOR = 4
IDENTITY_PREFIX = "identity:"
# Cached clients: as many connections as are usually open. An address has less than 64 bytes.
PEER_COUNT_MAX = 4_096

Item = TypeVar("Item")


class Client(NamedTuple):
    """A caller, as the unit of fairness.

    Attributes:
        name: a verified identity, else the connection.
        address: of the connection; the identity again where there is one.
    """

    name: str
    address: str


@lru_cache(PEER_COUNT_MAX)
def client_of_peer(peer: str) -> Client:
    """The client of a connection without identity, from gRPC's text `ipv4:10.0.0.7:51234`."""
    return Client(peer, peer.rpartition(":")[0])


def client_of_identity(name: str) -> Client:
    """The client with a verified identity, on any connection."""
    name = IDENTITY_PREFIX + name
    return Client(name, name)


def client_of_name(name: str) -> Client:
    """The client whose `name` another process has told; an empty one stands for all that are not known."""
    return Client(name, name) if name.startswith(IDENTITY_PREFIX) else client_of_peer(name)


class Shares:
    """The places that clients hold.

    Args:
        count_max: all places.
        client_max: that a client may hold; None: as the rule says.
        address_max: likewise of an address.

    Attributes:
        count: places held now.
    """

    __slots__ = ("_address_max", "_by_address", "_by_name", "_client_max", "count", "count_max")

    def __init__(self, count_max: int, client_max: int | None = None, address_max: int | None = None) -> None:
        self.count_max = count_max
        self._client_max = count_max if client_max is None else client_max
        self._address_max = count_max if address_max is None else address_max
        self.count = 0
        self._by_name: dict[str, int] = {}
        self._by_address: dict[str, int] = {}

    def has_room(self, client: Client, count: int = 1) -> bool:
        """Whether the client may take so many places."""
        free = self.count_max - self.count
        held, of_address = self._by_name.get(client.name, 0), self._by_address.get(client.address, 0)
        if held + count > self._client_max or of_address + count > self._address_max:
            return False
        if self.count + count <= free:  # the usual case: below one half the rule always holds
            return True
        free_of_address = ADDRESS_FACTOR * free - of_address
        # One that has something takes no place after which its address would have none for another client.
        if held and free_of_address <= (ADDRESS_FACTOR + 1) * count:
            return False
        return held + count <= (free if free < free_of_address else free_of_address)

    def take(self, client: Client, count: int = 1) -> None:
        """Count places as held; `has_room` is the caller's business."""
        self.count += count
        self._by_name[client.name] = self._by_name.get(client.name, 0) + count
        self._by_address[client.address] = self._by_address.get(client.address, 0) + count

    def give_back(self, client: Client, count: int = 1) -> None:
        """Count places as free."""
        self.count -= count
        for held, key in ((self._by_name, client.name), (self._by_address, client.address)):
            left = held[key] - count
            if left:
                held[key] = left
            else:
                del held[key]

    def held(self, client: Client) -> int:
        """The places of a client."""
        return self._by_name.get(client.name, 0)

    def weight(self, client: Client) -> tuple[int, int]:
        """Orders clients by what they have: the address first, so many connections of one host do not look small."""
        return self._by_address.get(client.address, 0), self._by_name.get(client.name, 0)


def kept_shares(count_max: int) -> Shares:
    """Shares of what is kept after its call; 1 at least for a client."""
    return Shares(count_max, max(count_max // KEPT_CLIENT_DIVISOR, 1), max(count_max // KEPT_ADDRESS_DIVISOR, 1))


class FairQueue(Generic[Item]):
    """Waiting items. Addresses take turns, and so do the clients of an address; items of a client keep their order.

    Where an owner lets items pass others of their client, those that wait for the same keep theirs.
    """

    __slots__ = ("_addresses", "count")

    def __init__(self) -> None:
        self._addresses: dict[str, dict[Client, deque[Item]]] = {}  # both kinds of dict: the next one in turn is first
        self.count = 0

    def append(self, client: Client, item: Item) -> None:
        """Add an item behind the client's others."""
        self._addresses.setdefault(client.address, {}).setdefault(client, deque()).append(item)
        self.count += 1

    def heads(self) -> list[tuple[Client, Item]]:
        """The clients that wait, each with its next item."""
        return [(client, items[0]) for clients in self._addresses.values() for client, items in clients.items()]

    def clients(self) -> list[Client]:
        """The clients that wait."""
        return [client for clients in self._addresses.values() for client in clients]

    def pop_newest(self, client: Client) -> Item:
        """The last item of a client that waits."""
        clients = self._addresses[client.address]
        item = clients[client].pop()
        if not clients[client]:
            del clients[client]
            if not clients:
                del self._addresses[client.address]
        self.count -= 1
        return item

    def drop(self, is_over: Callable[[Item], bool]) -> list[tuple[Client, Item]]:
        """Take out the items that need nothing more."""
        dropped: list[tuple[Client, Item]] = []
        for address, clients in list(self._addresses.items()):
            for client, items in list(clients.items()):
                left: deque[Item] = deque()
                for item in items:
                    if is_over(item):
                        dropped.append((client, item))
                    else:
                        left.append(item)
                if left:
                    clients[client] = left
                else:
                    del clients[client]
            if not clients:
                del self._addresses[address]
        self.count -= len(dropped)
        return dropped

    def pop(self, may: Callable[[Client, Item], bool], *, may_pass: bool = False) -> tuple[Client, Item] | None:
        """The item whose turn it is, among the first ones of their clients that may; None when there is none.

        Args:
            may: whether an item may be taken.
            may_pass: a later item of a client is taken where those before it may not.
        """
        for address, clients in self._addresses.items():
            for client, items in clients.items():
                ready = 0 if may(client, items[0]) else self._passing(may, client, items) if may_pass else None
                if ready is None:
                    continue
                item = items[ready]
                del items[ready]
                self.count -= 1
                del clients[client]
                if items:
                    clients[client] = items
                del self._addresses[address]
                if clients:
                    self._addresses[address] = clients
                return client, item
        return None

    @staticmethod
    def _passing(may: Callable[[Client, Item], bool], client: Client, items: deque[Item]) -> int | None:
        """The place of the first item that may be taken."""
        return next((at for at, item in enumerate(items) if may(client, item)), None)


Key = TypeVar("Key")


class KeptKeys(Generic[Key]):
    """The keys, the one that was used least recently first. No locks and no clock: its owner has both.

    Args:
        count_max: keys of all.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._client_max = max(count_max // KEPT_CLIENT_DIVISOR, 1)
        self._address_max = max(count_max // KEPT_ADDRESS_DIVISOR, 1)
        self._owners: OrderedDict[Key, Client] = OrderedDict()
        self._by_name: dict[str, OrderedDict[Key, None]] = {}
        self._by_address: dict[str, OrderedDict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def oldest(self) -> Key | None:
        """The key that was used least recently, of all."""
        return next(iter(self._owners), None)

    def use(self, key: Key, owner: Client) -> Key | None:
        """A client has used a key, which is the newest now.

        Returns the key that has to be dropped, because its client, its address or all of them have too many.
        """
        self.drop(key)
        self._owners[key] = owner
        of_client = self._by_name.setdefault(owner.name, OrderedDict())
        of_address = self._by_address.setdefault(owner.address, OrderedDict())
        of_client[key] = of_address[key] = None
        if owner.name:  # else it is not known who called
            if len(of_client) > self._client_max:
                return next(iter(of_client))
            if len(of_address) > self._address_max:
                return next(iter(of_address))
        return self.oldest() if len(self._owners) > self._count_max else None

    def drop(self, key: Key) -> None:
        """Forget a key."""
        owner = self._owners.pop(key, None)
        if owner is None:
            return
        for kept, name in ((self._by_name, owner.name), (self._by_address, owner.address)):
            del kept[name][key]
            if not kept[name]:
                del kept[name]
