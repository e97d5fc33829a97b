"""A request for each RPC that clients call, for the API reference; all work on the sample messages of `make run`.

Ids are those of the first sample message. Handles and transactions are placeholders: only their owner has one.
"""

from typing import Any

FIRST_ID = "7F00000100002A9F0000000000000000"
UNIQUE_KEY = "7F0000010A2B18B4AAC20000000000"
TIME = "2026-11-21T10:29:12Z"
_QUEUE = {"topic": "Orders", "queue_id": 0}

EXAMPLES: dict[str, tuple[dict[str, Any], ...]] = {
    "AppendMessages": (
        {
            "messages": [{"topic": "Orders", "body": "aGVsbG8=", "keys": ["order-9002"], "tags": "Paid"}],
            "flush": "FLUSH_MODE_SYNC",
        },
    ),
    "AppendMessageStream": (
        {"messages": [{"topic": "Orders", "body": "b25l", "keys": ["order-9003"]}]},
        {"messages": [{"topic": "Orders", "body": "dHdv", "keys": ["order-9003"]}]},
    ),
    "QueryMessageByKey": ({"topic": "Orders", "key": "order-1001", "page_size": 10},),
    "QueryMessageById": ({"offset_msg_id": FIRST_ID},),
    "QueryMessageByUniqueKey": ({"topic": "Orders", "unique_key": UNIQUE_KEY},),
    "QueryMessageByOffset": ({**_QUEUE, "queue_offset": 0, "max_messages": 2},),
    "FindMessage": ({"text": "order-1001"},),
    "SearchMessages": ({"topic": "Orders", "body_text": "cup", "max_records": 1000},),
    "ExplainQuery": ({"by_key": {"topic": "Orders", "key": "order-1001"}},),
    "DownloadBody": ({"offset_msg_id": FIRST_ID},),
    "SearchOffset": ({**_QUEUE, "time": TIME, "boundary": "BOUNDARY_LOWER"},),
    "ListTopics": ({"name_contains": "Ord"},),
    "CreateTopic": ({"topic": "Refunds", "queue_count": 4, "message_type": "MESSAGE_TYPE_FIFO"},),
    "UpdateTopic": ({"topic": "Refunds", "queue_count": 8},),
    "DeleteTopic": ({"topic": "Refunds"},),
    "PullMessages": ({**_QUEUE, "queue_offset": 0, "filter": {"tags": "created || paid"}},),
    "CommitOffsets": ({"consumer_group": "billing", "positions": [{**_QUEUE, "consumer_offset": 1}]},),
    "SendBackMessages": ({"consumer_group": "billing", **_QUEUE, "queue_offsets": [0], "delay_level": 1},),
    "LockQueues": ({"consumer_group": "billing", "client_id": "worker-1", "queues": [_QUEUE]},),
    "GetOffsets": ({"consumer_group": "billing"},),
    "ResetOffsets": ({"consumer_group": "billing", "topic": "Orders", "earliest": True, "dry_run": True},),
    "ListConsumerGroups": ({},),
    "GetConsumerGroup": ({"consumer_group": "billing"},),
    "UpdateConsumerGroup": ({"consumer_group": "billing", "delivery_attempts_max": 5},),
    "DeleteConsumerGroup": ({"consumer_group": "a-group-of-the-past"},),
    "TrackMessage": ({"offset_msg_id": FIRST_ID},),
    "ResendDeadLetters": ({"consumer_group": "billing", "dry_run": True},),
    "RecallMessage": ({"topic": "Orders", "recall_handle": "HANDLE"},),
    "EndTransaction": ({"topic": "Orders", "transaction_id": "ID", "resolution": "TRANSACTION_RESOLUTION_ROLLBACK"},),
    "ListPendingTransactions": ({},),
    "ListScheduledMessages": ({"topic": "Orders"},),
    "SendRequest": ({"message": {"topic": "Prices", "body": "Y3Vw"}, "timeout": "3s"},),
    "GetStatus": ({},),
}
