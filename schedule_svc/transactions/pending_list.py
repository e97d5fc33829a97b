"""PendingList: pages of the half messages that wait, the oldest first.

The order is that of their making, then of the hash of topic and unique key. Both stay when a half message is renewed, so a page
token is good while others end, come and are renewed. Half messages of equal time and names count as one place.
"""

import re

from reput.message.v1.message_pb2 import StoredMessage
from reput.schedule.v1 import schedule_service_pb2 as pb
from schedule_svc.listing import topics_asked
from schedule_svc.transactions.checker import CheckGateways
from schedule_svc.transactions.half_messages import HalfMessage, half_of, transaction_id_of
from schedule_svc.transactions.transactions import Transactions, is_gone
from services.convert import millis_to_timestamp
from store.errors import InvalidArgumentError, InvalidPageTokenError, StoreError
from store.format.properties import PRODUCER_GROUP

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 64, 1_000
_TOKEN = re.compile(r"([0-9]{1,18})-([0-9]{1,19})")


class PendingList:
    """See the top of this file; thread-safe.

    Args:
        transactions: of this life.
        gateways: can ask producers.
        broker_name: of this shard.
    """

    def __init__(self, transactions: Transactions, gateways: CheckGateways, broker_name: str) -> None:
        self._transactions = transactions
        self._gateways = gateways
        self._broker_name = broker_name

    def list(self, request: pb.ListPendingTransactionsRequest) -> pb.ListPendingTransactionsResponse:
        """See ListPendingTransactions.

        Raises:
            InvalidArgumentError: the page size is negative.
            InvalidPageTokenError: the token is none.
            StoreError: the half messages cannot be read now.
        """
        if request.page_size < 0:
            raise InvalidArgumentError("page_size is negative: 0 means 64", field="page_size")
        count = min(request.page_size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
        after = _parse_token(request.page_token)
        transactions = self._transactions
        transactions.catch_up()
        transactions.read_all_details()
        with transactions.lock:
            table = transactions.table
            rows = table.page(request.topic, after, count + 1, topics_asked(request.topic_patterns))
            places = [table.commit_log_offset(queue_offset) for _, _, queue_offset in rows[:count]]
            checks = [table.next_check_millis(queue_offset) for _, _, queue_offset in rows[:count]]
            response = pb.ListPendingTransactionsResponse(pending_count=len(table))
        if len(rows) > count:
            made_millis, hashed, _ = rows[count - 1]
            response.next_page_token = f"{made_millis}-{hashed}"
        outcomes = transactions.read(places, 1) if places else ()
        for place, outcome, next_check_millis in zip(places, outcomes, checks, strict=True):
            if isinstance(outcome, StoreError):
                if is_gone(outcome, place):
                    continue
                raise outcome
            half = half_of(outcome)
            if half is not None:
                self._describe(response.transactions.add(), outcome, half, next_check_millis)
        return response

    def _describe(
        self, row: pb.PendingTransaction, record: StoredMessage, half: HalfMessage, next_check_millis: int
    ) -> None:
        row.topic = half.topic
        row.unique_key = half.unique_key
        row.transaction_id = transaction_id_of(half, self._broker_name, record.commit_log_offset)
        row.producer_group = record.properties.get(PRODUCER_GROUP, "")
        row.offset_msg_id = record.offset_msg_id
        row.born_time.CopyFrom(record.born_time)
        row.check_count = half.check_count
        if self._gateways.has_producer(half.asked):
            row.next_check_time.CopyFrom(millis_to_timestamp(next_check_millis))


def _parse_token(token: str) -> tuple[int, int]:
    """The place behind which a page begins."""
    if not token:
        return -1, -1
    parts = _TOKEN.fullmatch(token)
    if parts is None or int(parts[2]) >> 63:
        raise InvalidPageTokenError(f"page_token {token!r} was not made by this service", pageToken=token[:64])
    return int(parts[1]), int(parts[2])
