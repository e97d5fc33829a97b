"""TopicAdmin over a commitlog service."""

from collections.abc import Callable, Mapping

from gateway.ports.deadline import Deadline
from gateway.ports.topic_admin import TopicChange, TopicSettings
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.calling.commitlog import CommitLogClient
from services.calling.port_calls import port_call


class RemoteTopicAdmin:
    """See the port.

    Args:
        client: of the commit log.
        deleted: called after a deletion, so that the next query sees it.
    """

    def __init__(self, client: CommitLogClient, deleted: Callable[[], object] = lambda: None) -> None:
        self._client = client
        self._deleted = deleted

    @port_call("commitlog.list-topics")
    def settings(self, deadline: Deadline) -> Mapping[str, TopicSettings]:
        """See the port."""
        response = self._client.list_topics(timeout_seconds=deadline.remaining_seconds())
        return {topic.topic: _settings(topic) for topic in response.topics}

    @port_call("commitlog.create-topic")
    def create(self, topic: str, change: TopicChange, deadline: Deadline) -> TopicSettings:
        """See the port."""
        request = pb.CreateTopicRequest(topic=topic, queue_count=change.write_queue_count, perm=change.perm)
        if change.message_type is not None:
            request.message_type = change.message_type  # type: ignore[assignment]  # numbers are enum values here
        return _settings(self._client.create_topic(request, timeout_seconds=deadline.remaining_seconds()))

    @port_call("commitlog.update-topic")
    def update(self, topic: str, change: TopicChange, deadline: Deadline) -> TopicSettings:
        """See the port."""
        request = pb.UpdateTopicRequest(
            topic=topic,
            write_queue_count=change.write_queue_count,
            read_queue_count=change.read_queue_count,
            perm=change.perm,
        )
        if change.message_type is not None:
            request.message_type = change.message_type  # type: ignore[assignment]  # numbers are enum values here
        return _settings(self._client.update_topic(request, timeout_seconds=deadline.remaining_seconds()))

    @port_call("commitlog.delete-topic")
    def delete(self, topic: str, deadline: Deadline) -> bool:
        """See the port."""
        try:
            return self._client.delete_topic(topic, timeout_seconds=deadline.remaining_seconds())
        finally:
            self._deleted()


def _settings(topic: pb.ListTopicsResponse.Topic) -> TopicSettings:
    return TopicSettings(
        topic.topic, topic.write_queue_count, topic.read_queue_count, topic.perm, int(topic.message_type)
    )
