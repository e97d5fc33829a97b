"""Key explanations and summaries of an index, from its protos."""

from gateway.ports.key_facts import FileVisit, HeldKeys, KeyExplanation, PassedOver, SealedKeys
from reput.index.v1 import index_service_pb2 as index_pb

PASSED_OVER = {
    index_pb.PASSED_OVER_UNSPECIFIED: PassedOver.NOT,
    index_pb.PASSED_OVER_CURSOR: PassedOver.CURSOR,
    index_pb.PASSED_OVER_TIME: PassedOver.TIME,
    index_pb.PASSED_OVER_FILTER: PassedOver.FILTER,
}


def explanation_of(explanation: index_pb.KeyExplanation) -> KeyExplanation:
    """The explanation of how candidates were found."""
    return KeyExplanation(
        explanation.key_hash,
        explanation.slot,
        explanation.slot_count,
        tuple(
            FileVisit(
                visit.name,
                PASSED_OVER[visit.passed_over],
                visit.entry_count,
                visit.chain_entry_count,
                visit.same_hash_count,
                visit.outside_count,
                visit.candidate_count,
                visit.damaged,
                visit.read_bytes,
            )
            for visit in explanation.visits
        ),
        explanation.elapsed_micros,
    )


def held_of(summary: index_pb.IndexSummary) -> HeldKeys:
    """The times and keys that the index holds."""

    def optional(message: index_pb.IndexSummary | index_pb.IndexSummary.Sealed, field: str) -> int | None:
        return getattr(message, field) if message.HasField(field) else None

    return HeldKeys(
        tuple(
            SealedKeys(
                row.name,
                row.header_crc,
                optional(row, "begin_time_millis"),
                optional(row, "end_time_millis"),
                row.block_count,
            )
            for row in summary.sealed
        ),
        summary.next_offset,
        optional(summary, "later_times_millis"),
        summary.has_newest,
        optional(summary, "newest_begin_time_millis"),
        optional(summary, "newest_end_time_millis"),
    )
