"""The rights of a client: roles, each for some topics.

    read     find and read messages, see topics and their queues
    write    append messages
    admin    both, and what concerns the whole store: the state of its services

    groups   consumer groups that its reads may consume for; without any, every group

A pattern is a topic's or group's name in which `*` stands for any characters: `orders`, `orders-*`, `%RETRY%*`, `*`.
"""

import enum
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

from store.format.topic import RETRY_PREFIX, name_matcher

# Longer texts are no topics and no groups. Its sender decides how long it is, so nothing is kept of it.
NAME_CHARACTERS_MAX = 255
# Cached decisions of all clients together, each for a name within that limit: at most 24 MiB.
DECISION_COUNT_MAX = 16_384


class Role(enum.Enum):
    """A kind of right on a topic."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


Roles = frozenset[Role]
READ: Roles = frozenset({Role.READ})
WRITE: Roles = frozenset({Role.WRITE})
READ_OR_WRITE: Roles = READ | WRITE
ADMIN: Roles = frozenset({Role.ADMIN})
ANY: Roles = frozenset(Role)


class Access:
    """The rights of one client; immutable and thread-safe.

    Args:
        name: its name in the audit log and in errors.
        patterns: topic patterns by role.
        groups: patterns of consumer groups; None: all.
    """

    def __init__(self, name: str, patterns: Mapping[Role, Iterable[str]], groups: Iterable[str] | None = None) -> None:
        self.name = name
        self.groups = None if groups is None else frozenset(groups)
        self._matches_group = None if self.groups is None else name_matcher(self.groups)
        self._named_groups = frozenset(group for group in self.groups or () if group.strip("*"))
        self._matches_named_group = name_matcher(self._named_groups)
        given = {role: frozenset(patterns.get(role, ())) for role in Role}
        self.patterns = {role: given[role] | given[Role.ADMIN] for role in Role}
        self._matches = {role: name_matcher(of_role) for role, of_role in self.patterns.items()}

    @property
    def is_admin(self) -> bool:
        """Whether it may see the state of the store."""
        return self.has(ADMIN)

    @property
    def may_do_everything(self) -> bool:
        """Whether it is an admin of every topic, and may consume for every group: RocketMQ's Super user."""
        return self.has_all_topics(ADMIN) and self.groups is None

    def has(self, roles: Roles) -> bool:
        """Whether it has one of the roles, for any topic."""
        return any(self.patterns[role] for role in roles)

    def has_all_topics(self, roles: Roles) -> bool:
        """Whether it has one of the roles for every topic."""
        return any("*" in self.patterns[role] for role in roles)

    def patterns_of(self, roles: Roles) -> tuple[str, ...]:
        """The patterns of the topics for which it has one of the roles."""
        return tuple(sorted(frozenset[str]().union(*(self.patterns[role] for role in roles))))

    def and_also(self, other: "Access") -> "Access":
        """The rights of both, under this name."""
        groups = None if self.groups is None or other.groups is None else self.groups | other.groups
        return Access(self.name, {role: self.patterns[role] | other.patterns[role] for role in Role}, groups)

    @cached_property
    def as_member(self) -> "Access":
        """These rights, and to read what the groups send back that are named: the topic `%RETRY%` and the group.

        A client of RocketMQ's remoting protocol pulls that topic itself. It has messages of all topics of the group, so `*`
        alone names no group.
        """
        named = {f"{RETRY_PREFIX}{group}" for group in self._named_groups}
        if not named:
            return self
        return Access(self.name, {**self.patterns, Role.READ: self.patterns[Role.READ] | named}, self.groups)

    def allows_group(self, consumer_group: str) -> bool:
        """Whether it may consume for the group."""
        if len(consumer_group) > NAME_CHARACTERS_MAX:
            return self.groups is None or "*" in self.groups
        matches = self._matches_group
        return matches is None or matches.fullmatch(consumer_group) is not None

    def names_group(self, consumer_group: str) -> bool:
        """Whether it may consume for the group, and says so by more than `*`: the group's retry topic is its own."""
        if len(consumer_group) > NAME_CHARACTERS_MAX:
            return False
        return self._matches_named_group.fullmatch(consumer_group) is not None

    def allows(self, roles: Roles, topic: str) -> bool:
        """Whether one of the roles holds for the topic."""
        if len(topic) > NAME_CHARACTERS_MAX:
            return self.has_all_topics(roles)
        return _decided(self, roles, topic)

    @property
    def may_write_some(self) -> bool:
        """Whether it may append to any topic at all."""
        return self.has(WRITE)

    def may_write(self, topic: str) -> bool:
        """Whether it may append to the topic."""
        return self.allows(WRITE, topic)

    def matches(self, roles: Roles, topic: str) -> bool:
        """The same by the patterns, for any name."""
        return any(self._matches[role].fullmatch(topic) is not None for role in roles)


@lru_cache(DECISION_COUNT_MAX)
def _decided(access: Access, roles: Roles, topic: str) -> bool:
    return access.matches(roles, topic)
