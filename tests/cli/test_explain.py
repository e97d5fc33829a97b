"""`reput explain` as people read it: what led nowhere is counted, what led to a message is shown."""

from typing import Any

from cli.explain import explanation_lines


def visit(name: str, candidates: int = 0, passed_over: str = "", *, damaged: bool = False) -> dict[str, Any]:
    counts = dict.fromkeys(("chain_entry_count", "same_hash_count", "outside_count"), 0)
    return {"name": name, "candidate_count": candidates, "passed_over": passed_over, "damaged": damaged, **counts}


def lookup(topic: str, visits: list[dict[str, Any]], passed_over: str = "") -> dict[str, Any]:
    numbers = dict.fromkeys(
        ("key_hash", "slot", "slot_count", "round_count", "read_bytes", "search_micros", "rejected_count", "unread_count"), 0
    )  # fmt: skip
    candidates = sum(each["candidate_count"] for each in visits)
    found = {"candidate_count": candidates, "match_count": candidates, "visits": visits, "rejected": []}
    return {"topic": topic, "key": "k", "passed_over": passed_over, **numbers, **found}


def lines(*lookups: dict[str, Any], folded: bool = True) -> list[str]:
    shard = {"broker_name": "a", "elapsed_micros": 0, "steps": [], "lookups": list(lookups)}
    document = {"message_count": 1, "completeness": "COMPLETE", "elapsed_micros": 0, "next_page_token": ""}
    return list(explanation_lines({**document, "shards": [shard]}, folded=folded))


FILES = [
    visit("f1", 1),
    *(visit(f"f{n}", passed_over="filter") for n in range(2, 22)),
    visit("f22"),
    visit("f23", damaged=True),
]
OTHERS = [lookup(f"T{n}", [], passed_over="summary") for n in range(90)] + [lookup("T99", [visit("f1")])]


def test_files_and_topics_that_led_nowhere_are_counted() -> None:
    shown = lines(lookup("Orders", FILES), *OTHERS)

    assert len([line for line in shown if "Orders#k" in line]) == 1
    assert [line.split(":")[0].strip() for line in shown if line.startswith("    file")] == ["file f1", "file f23"]
    assert "    21 files (20 passed over by filter) have no candidate" in shown
    assert "  91 lookups (90 passed over by summary) led to no candidate; --all shows them" in shown


def test_all_of_it_is_shown_when_asked_for() -> None:
    shown = lines(lookup("Orders", FILES), *OTHERS, folded=False)

    assert len([line for line in shown if line.startswith("    file")]) == len(FILES) + 1
    assert len([line for line in shown if "#k" in line]) == 92


def test_the_only_lookup_is_shown_though_it_led_nowhere() -> None:
    shown = lines(lookup("Orders", [visit("f1", passed_over="filter")]))

    assert "    file f1: passed over by filter" in shown
