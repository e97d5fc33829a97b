"""What a search says of itself is what a walk over the files' bytes finds; and what an index says of what it holds."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from index_svc.index_file_set import IndexFileSet
from index_svc.index_summaries import IndexSummaries
from index_svc.servicer import IndexServicer
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as pb
from services.convert import millis_to_timestamp
from services.following.follower_progress import FollowerProgress
from store.derive.dispatch_columns import DispatchColumns
from store.errors import RecordNotFoundError, StoreRecoveringError
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import (
    HEADER_SIZE,
    decode_index_entry,
    decode_index_header,
    entry_position,
    index_key,
    key_hash,
    slot_position,
)
from store.format.derived.index_summary import (
    PAGE_SIZE,
    block_holds,
    block_of,
    block_place,
    decode_summary_header,
    index_header_crc,
    key_bits,
    spread,
)
from store.readers.index_reader import IndexLayout
from tests.support.dispatches import make_request

LAYOUT = IndexLayout(5, 13)
T0 = 1_700_000_000_000


@pytest.fixture
def opened(tmp_path):
    summaries = IndexSummaries(tmp_path, RealFileSystem())
    files = IndexFileSet(tmp_path, RealFileSystem(), LAYOUT, lambda: T0, summaries=summaries)
    progress = FollowerProgress()
    progress.see_log(0, 0)
    servicer = IndexServicer(progress)
    servicer.open(files)
    yield files, progress, servicer
    files.close()


def fill(files, progress, requests):
    files.apply(DispatchColumns.of(requests))
    files.flush()
    progress.see_log(0, requests[-1].next_offset)
    progress.advance(requests[-1].next_offset, requests[-1].store_time_millis)
    assert files.summaries.settle(30)


def walk(path, hash_):
    """(Entries in the chain, those with the hash) by the file's bytes, each with its number."""
    data = path.read_bytes()
    number = int.from_bytes(data[slot_position(hash_ % 5) :][:4], "big")
    chain = []
    while number:
        entry = decode_index_entry(data, entry_position(number, 5))
        chain.append((number, entry))
        number = entry.previous
    return chain, [(number, entry) for number, entry in chain if entry.key_hash == hash_]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=80),
    asked=st.sampled_from("abcxyz"),
    begin=st.one_of(st.none(), st.integers(0, 80)),
    page_size=st.sampled_from([0, 3]),
    is_header_known=st.booleans(),
)
@example(keys=["a"] * 13, asked="a", begin=None, page_size=0, is_header_known=True).via(
    "a header that is in memory was expected to be read"
)
@example(keys=["a"] * 13, asked="a", begin=None, page_size=0, is_header_known=False).via("a header without a checksum")
def test_the_numbers_are_those_of_a_walk_over_the_bytes(
    tmp_path_factory, keys, asked, begin, page_size, is_header_known
):
    root = tmp_path_factory.mktemp("explain")
    summaries = IndexSummaries(root, RealFileSystem())
    files = IndexFileSet(root, RealFileSystem(), LAYOUT, lambda: T0, summaries=summaries)
    progress = FollowerProgress()
    servicer = IndexServicer(progress)
    servicer.open(files)
    requests = [make_request(n, time_millis=T0 + n * 1000, keys=[key]) for n, key in enumerate(keys)]
    fill(files, progress, requests)
    if not is_header_known:
        for view in files.sealed_views():
            view.known_header = None
    request = pb.SearchKeyRequest(topic="orders", key=asked, page_size=page_size, explain=True)
    if begin is not None:
        request.begin_time.CopyFrom(millis_to_timestamp(T0 + begin * 1000))
    try:
        answer = servicer.SearchKey(request, None)
        explanation = answer.explanation
        hash_ = key_hash(index_key("orders", asked))
        assert (explanation.key_hash, explanation.slot, explanation.slot_count) == (hash_, hash_ % 5, 5)
        paths = files.paths()
        by_name = {path.name: path for path in paths}
        expected_names = [path.name for path in reversed(paths)]
        names = [visit.name for visit in explanation.visits]
        assert names == expected_names[: len(names)]
        assert names == expected_names or answer.next_page_token
        shown = 0
        for visit in explanation.visits:
            header = decode_index_header(by_name[visit.name].read_bytes())
            chain, same = walk(by_name[visit.name], hash_)
            assert visit.entry_count == header.entry_count - 1
            is_sealed = visit.name != paths[-1].name
            held = (summaries.directory / visit.name).read_bytes() if is_sealed else b""
            if is_sealed and begin is not None and header.end_time_millis < T0 + begin * 1000:
                assert (visit.passed_over, visit.read_bytes) == (gateway_pb.PASSED_OVER_TIME, 0)
            elif is_sealed and not _may_hold(held, hash_):
                assert not same
                assert (visit.passed_over, visit.read_bytes) == (gateway_pb.PASSED_OVER_FILTER, PAGE_SIZE)
            else:
                assert visit.passed_over == gateway_pb.PASSED_OVER_UNSPECIFIED
                if visit.name != names[-1] or not answer.next_page_token:  # the page did not end in it
                    assert visit.chain_entry_count == len(chain)
                    assert visit.same_hash_count == len(same)
                    outside = [
                        number
                        for number, entry in same
                        if begin is not None
                        and number > 1
                        and entry.time_diff_seconds > 0
                        and header.begin_time_millis + entry.time_diff_seconds * 1000 + 999 < T0 + begin * 1000
                    ]
                    assert visit.outside_count == len(outside)
                overhead = PAGE_SIZE + (0 if is_header_known else HEADER_SIZE) + 4 if is_sealed else 0
                assert visit.read_bytes == overhead + 20 * visit.chain_entry_count
            assert visit.candidate_count + visit.outside_count <= visit.same_hash_count
            shown += visit.candidate_count
        assert shown == len(answer.commit_log_offsets) + bool(answer.next_page_token)
    finally:
        files.close()


def _may_hold(data, hash_):
    header = decode_summary_header(data[:PAGE_SIZE])
    number, place = block_place(block_of(spread(hash_), header.block_count))
    return block_holds(data[number * PAGE_SIZE + place :][:32], key_bits(hash_))


def test_nobody_pays_for_what_nobody_asks(opened):
    files, progress, servicer = opened
    fill(files, progress, [make_request(n, keys=["k"]) for n in range(40)])
    answer = servicer.SearchKey(pb.SearchKeyRequest(topic="orders", key="k"), None)
    assert not answer.HasField("explanation")
    assert not answer.HasField("summary")


def summarized(servicer):
    answer = servicer.SearchKey(pb.SearchKeyRequest(topic="orders", key="k", summarize=True), None)
    return answer.summary if answer.HasField("summary") else None


def test_an_index_says_what_times_it_holds(opened):
    files, progress, servicer = opened
    fill(files, progress, [make_request(n, time_millis=T0 + n * 1000, keys=["k"]) for n in range(40)])

    summary = summarized(servicer)

    # Twelve keys a file: three sealed ones, and 36 to 39 in the newest.
    spans = [(row.begin_time_millis - T0, row.end_time_millis - T0) for row in summary.sealed]
    assert spans == [(0, 11_000), (12_000, 23_000), (24_000, 35_000)]
    assert (summary.newest_begin_time_millis - T0, summary.newest_end_time_millis - T0) == (36_000, 39_000)
    assert summary.has_newest
    assert (summary.next_offset, summary.later_times_millis) == (4_000, T0 + 39_000)


def test_what_is_not_known_is_not_said(tmp_path, opened):
    files, progress, servicer = opened
    assert summarized(servicer) is None, "nothing is applied yet"
    fill(files, progress, [make_request(n, time_millis=T0 + n * 1000, keys=["k"]) for n in range(40)])

    progress.stall()
    assert not summarized(servicer).HasField("later_times_millis"), "the log may not be what it was"
    progress.advance(4_000, T0 + 39_000)
    assert summarized(servicer).HasField("later_times_millis")

    foreign = IndexServicer(progress, times_rise=False)
    foreign.open(files)
    assert not summarized(foreign).HasField("later_times_millis")

    files.sealed_views()[1].summary = None
    files.live.time_span = None
    summary = summarized(servicer)
    assert [row.HasField("begin_time_millis") for row in summary.sealed] == [True, False, True]
    assert summary.has_newest
    assert not summary.HasField("newest_begin_time_millis")

    progress.restart()
    files.clear()
    assert summarized(servicer) is None


def test_a_restart_remembers_the_times_of_the_newest_file(tmp_path):
    from tests.support import builders

    requests = [make_request(n, time_millis=T0 + n * 7, keys=["k", f"u{n}"]) for n in range(70)]
    builder = builders.open_index(tmp_path, requests)
    builders.follow(builder, requests[:60])
    builder.stop()
    builder = builders.open_index(tmp_path, requests)
    assert builder._files.live.time_span == (T0 + 50 * 7, T0 + 59 * 7)  # 50 records a file
    builders.follow(builder, requests)
    assert builder._files.live.time_span == (T0 + 50 * 7, T0 + 69 * 7)
    builder.abandon()
    builder = builders.open_index(tmp_path, requests)
    builders.follow(builder, requests)
    assert builder._files.live.time_span == (T0 + 50 * 7, T0 + 69 * 7)
    builder.stop()


def test_pages_of_a_filter_are_those_of_the_file(opened):
    files, progress, servicer = opened
    fill(files, progress, [make_request(n, keys=["k"]) for n in range(40)])
    view = files.sealed_views()[1]
    crc = index_header_crc(decode_index_header(view.path.read_bytes()))
    whole = (files.summaries.directory / view.path.name).read_bytes()

    def ask(name=view.path.name, header_crc=crc, first_page=1):
        request = pb.GetFilterPagesRequest(name=name, header_crc=header_crc, first_page=first_page)
        return servicer.GetFilterPages(request, None).pages

    assert ask() == whole[PAGE_SIZE:]
    assert ask(first_page=2) == b""
    assert ask(first_page=0) == whole[PAGE_SIZE:]
    for wrong in ({"name": "../checkpoint.json"}, {"header_crc": crc ^ 1}, {"name": files.paths()[-1].name}):
        with pytest.raises(RecordNotFoundError):
            ask(**wrong)
    with (files.summaries.directory / view.path.name).open("r+b") as file:
        file.seek(PAGE_SIZE + 50)
        file.write(b"\x5a")
    with pytest.raises(RecordNotFoundError):
        ask()
    servicer.shut()
    with pytest.raises(StoreRecoveringError):
        ask()
