"""KeptKeys: which keys are remembered for whom, when there is room for so many; the rule for clients is in shares.py.

A client that brings ever new keys loses its own oldest ones, and so does an address, before others lose any. Nobody is refused.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

from services.serving.admission.shares import KEPT_ADDRESS_DIVISOR, KEPT_CLIENT_DIVISOR, Client

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
