"""The commands of transcripts about consumer groups: pop, acknowledge, fail, wait, restart.

A story runs on the real rules of the consumer service over a log in memory (tests/consumer_svc/memory_log.py). The clock moves
only when a command says so; what is due by then ends at once. A message is named by its body.

    send topic= body="one two" [queue=] [message-group=] [tags=]
    group name= [ordered=yes] [attempts=]   settings of a group
    pop group= [topic=] [count=] [invisible-seconds=] [tags=] [sql=] [attempt-id=]
    ack group= body="one two"          by the newest receipt handle of each
    ack-again group= body=             by the handle before the newest
    hide group= body= seconds=         comes again after that time
    give-up group= body=               the consumer cannot consume it
    pass seconds=
    kill                               the service ends and reads its state from the log
    position group= [topic=]           the consumer offset of each queue, and what is in flight
    reset group= topic= queue= to=
    track body=                        what became of a message, for each group
    log-of topic=                      the messages of a topic
"""

from consumer_svc.state.group_states import GroupSettings
from reput.consumer.v1.consumer_service_pb2 import AckMessagesResponse
from reput.gateway.v1.gateway_service_pb2 import MessageFilter
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import StoreError
from store.format.properties import ORIGIN_MESSAGE_ID
from tests.consumer_svc.asking import pop_of, state_of
from tests.consumer_svc.memory_log import START_MILLIS, LogLife, ManualClock, MemoryLog
from tests.scenarios.transcript import Command

TOPIC = "Orders"
ATTEMPTS_MAX = 3


class DeliveryStory:
    """One shard's consumer groups through the lives of the service."""

    def __init__(self) -> None:
        self._clock = ManualClock()
        self._log = MemoryLog(self._clock)
        self._life = LogLife(self._log, attempts_max=ATTEMPTS_MAX)
        self._handles: dict[tuple[str, str], list[str]] = {}  # by group and body, newest last

    def close(self) -> None:
        """End the life that is going on."""
        self._life.close()

    def answer(self, command: Command) -> str:
        """Run one command; an error of the store is an answer."""
        method = getattr(self, "_" + command.words[0].replace("-", "_"))
        values = {name.replace("-", "_"): value for name, value in command.values.items()}
        try:
            return str(method(*command.words[1:], **values))
        except StoreError as error:
            return f"{type(error).__name__}: {error.message}"

    def _send(self, body: str, topic: str = TOPIC, queue: str = "0", message_group: str = "", tags: str = "") -> str:
        sent = [self._log.send(topic, each.encode(), int(queue), message_group, tags) for each in body.split()]
        return "\n".join(f"{_place(message)} {message.body.decode()}" for message in sent)

    def _group(self, name: str, ordered: str = "no", attempts: str = str(ATTEMPTS_MAX)) -> str:
        self._life.groups.update(GroupSettings(name, ordered == "yes", int(attempts)))
        return f"{name}: {'ordered, ' if ordered == 'yes' else ''}{attempts} attempts"

    def _pop(
        self,
        group: str,
        topic: str = TOPIC,
        count: str = "32",
        invisible_seconds: str = "30",
        tags: str = "",
        sql: str = "",
        attempt_id: str = "",
    ) -> str:
        wanted = MessageFilter(sql=sql) if sql else MessageFilter(tags=tags)
        delivered = self._life.pop(
            pop_of(
                group,
                topic,
                max_messages=int(count),
                invisible_millis=int(invisible_seconds) * 1_000,
                client_id="c1",
                attempt_id=attempt_id,
                filter=wanted,
            )
        )
        lines = []
        for one in delivered:
            body = one.message.body.decode()
            self._handles.setdefault((group, body), []).append(one.receipt_handle)
            hidden = self._seconds(one.invisible_until.ToMilliseconds())
            lines.append(f"{_place(one.message)} {body}, attempt {one.delivery_attempt}, hidden until {hidden}")
        return "\n".join(lines) or "nothing"

    def _ack(self, group: str, body: str) -> str:
        return self._acked(group, body, -1)

    def _ack_again(self, group: str, body: str) -> str:
        return self._acked(group, body, -2)

    def _acked(self, group: str, body: str, which: int) -> str:
        bodies = body.split()
        outcomes = self._life.acks.ack(group, [self._handles[group, each][which] for each in bodies])
        return "\n".join(
            f"{each}: {AckMessagesResponse.Outcome.Name(outcome).removeprefix('OUTCOME_')}"
            for each, outcome in zip(bodies, outcomes, strict=True)
        )

    def _hide(self, group: str, body: str, seconds: str) -> str:
        handles = self._handles[group, body]
        handles.append(self._life.acks.change_invisible(group, handles[-1], int(seconds) * 1_000))
        return f"{body} comes again at {self._seconds(self._clock.now) + int(seconds)}"

    def _give_up(self, group: str, body: str) -> str:
        self._life.acks.give_up(group, self._handles[group, body][-1])
        return f"{body} is given up"

    def _pass(self, seconds: str) -> str:
        self._clock.now += int(seconds) * 1_000
        before = len(self._log.written)
        self._life.expire()
        moved = [
            message for message in self._log.written[before:] if message.properties.get(ORIGIN_MESSAGE_ID) is not None
        ]
        told = [f"{_place(message)} {message.body.decode()} is appended" for message in moved]
        return "\n".join([f"it is {self._seconds(self._clock.now)}", *told])

    def _kill(self) -> str:
        self._life.close()
        self._life = LogLife(self._log, attempts_max=ATTEMPTS_MAX)
        return "the state is read from the log"

    def _position(self, group: str, topic: str = "") -> str:
        states = self._life.states.groups[group]
        return "\n".join(
            f"{ref.topic}/{ref.queue_id} consumer_offset={state.consumer_offset} in flight: {len(state.leases)}"
            for ref, state in states.queues()
            if topic in ("", ref.topic)
        )

    def _reset(self, group: str, queue: str, to: str, topic: str = TOPIC) -> str:
        resets = self._life.pulls.reset(group, topic, {int(queue): int(to)}, dry_run=False)
        return "\n".join(f"{topic}/{one.queue_id} {one.before} -> {one.after}" for one in resets)

    def _track(self, body: str) -> str:
        message = next(each for each in self._log.written if each.body.decode() == body)
        tracks = self._life.track(message)
        return "\n".join(f"{track.consumer_group}: {state_of(track)}" for track in tracks)

    def _log_of(self, topic: str) -> str:
        return "\n".join(f"{_place(each)} {each.body.decode()}" for each in self._log.messages(topic)) or "nothing"

    def _seconds(self, millis: int) -> int:
        return (millis - START_MILLIS) // 1_000


def _place(message: StoredMessage) -> str:
    return f"{message.topic}/{message.queue_id}@{message.queue_offset}"
