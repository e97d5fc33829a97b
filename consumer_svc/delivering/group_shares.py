"""GroupShares: how many groups each client may make (ADR 0111); services/serving/admission/shares.py has the rule."""

from services.serving.admission.shares import Client, client_of_name, kept_shares
from store.errors import ResourceBusyError

# Of groups of brokers and of older versions: they are in the share of none that calls.
NOBODY = Client("nobody", "nobody")


class GroupShares:
    """The groups of a shard by those who made them; see Owners in state/group_states.py. Its owner holds a lock.

    Args:
        group_count_max: groups that may be made; those that are there count, and stay when there are more.
    """

    def __init__(self, group_count_max: int) -> None:
        self._shares = kept_shares(group_count_max)

    def made(self, made_by: str) -> None:
        """See Owners."""
        self._shares.take(client_of_name(made_by) if made_by else NOBODY)

    def deleted(self, made_by: str) -> None:
        """See Owners."""
        self._shares.give_back(client_of_name(made_by) if made_by else NOBODY)

    def check(self, consumer_group: str, caller: str) -> None:
        """ResourceBusyError when the caller may not make this group, because its share is in use."""
        shares, client = self._shares, client_of_name(caller)
        if shares.has_room(client):
            return
        raise ResourceBusyError(
            f"no group {consumer_group[:64]!r} is made: this client made {shares.held(client)} of {shares.count} groups, which "
            f"is its share where there may be {shares.count_max}: delete some, or raise the setting group_count_max of the "
            "consumer service (REPUT_CONSUMER_GROUP_COUNT_MAX)",
            consumerGroup=consumer_group[:64],
            setting="group_count_max",
            countMax=shares.count_max,
        )
