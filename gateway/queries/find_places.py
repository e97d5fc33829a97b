"""Where a find goes on in each shard, inside a page token.

    from:SHARD          topics up to this one, by name, are done, but for what the rows below say
    to:SHARD            an open group: the topics behind `from` up to this one ...
    below:SHARD         ... of which only records that start below this byte of the log are left
    in:SHARD NUL TOPIC  of this topic only records that start below this byte are left; without an open group, these
                        topics are all that is left of those up to `from`
    end:SHARD           1: no topic follows

A shard that is not named has not been asked yet, or did not answer. Most of the time a text is in a few topics, and they
are named, so that a later page asks only for them. When it is in many, the group and one byte stand for all of them; then
only a topic is named whose matches lie behind so many candidates of other keys that one call did not get past them: the next
one must not begin with these again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

_TOPIC_MARK = "\0"


@dataclass(frozen=True, slots=True)
class Place:
    """See the module; `below` and the values of `named` are bytes of the log.

    Attributes:
        after: `from`; empty: no topic is done.
        last: `to`; empty: no group is open.
        below: of the open group.
        named: cursors by topic.
        is_last: `end`.
    """

    after: str = ""
    last: str = ""
    below: int = 0
    named: Mapping[str, int] = field(default_factory=dict)
    is_last: bool = False

    @property
    def is_done(self) -> bool:
        """Whether nothing is left in the shard."""
        return self.is_last and not self.last and not self.named

    def cursor_of(self, topic: str) -> int | None:
        """Below which byte records of a topic are left; None: all."""
        if not self.last:
            return self.named.get(topic)
        return min(self.below, self.named.get(topic, self.below))


def to_fields(places: Mapping[str, Place]) -> dict[str, str | int]:
    """What a page token holds, for places by shard name."""
    fields: dict[str, str | int] = {}
    for name, place in places.items():
        fields[f"from:{name}"] = place.after
        fields |= {f"in:{name}{_TOPIC_MARK}{topic}": cursor for topic, cursor in place.named.items()}
        if place.last:
            fields |= {f"to:{name}": place.last, f"below:{name}": place.below}
        if place.is_last:
            fields[f"end:{name}"] = 1
    return fields


def from_fields(fields: Mapping[str, str | int]) -> dict[str, Place]:
    """The other way. The fields come out of a seal and are what `to_fields` gave."""
    named: dict[str, dict[str, int]] = {}
    for key, value in fields.items():
        kind, _, rest = key.partition(":")
        name, _, topic = rest.partition(_TOPIC_MARK)
        if kind == "in":
            named.setdefault(name, {})[topic] = int(value)
    names = [key.removeprefix("from:") for key in fields if key.startswith("from:")]
    return {
        name: Place(
            str(fields[f"from:{name}"]),
            str(fields.get(f"to:{name}", "")),
            int(fields.get(f"below:{name}", 0)),
            named.get(name, {}),
            f"end:{name}" in fields,
        )
        for name in names
    }
