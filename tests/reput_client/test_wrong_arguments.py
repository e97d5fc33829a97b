"""Arguments of a wrong type are named, with what to give."""

import pytest

from reput_client import Producer, QueryClient

NOWHERE = "127.0.0.1:1"  # nothing is sent: the arguments are refused first


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delay": 1}, r"delay is 1: give a timedelta"),
        ({"delivery_time": 5}, r"delivery_time is 5: give a datetime with a time zone"),
        ({"born_time": "x"}, r"born_time is 'x': give a datetime with a time zone"),
        ({"keys": 5}, r"keys is 5: give collections.abc.Iterable\[str\]"),
        ({"keys": "abc"}, r"keys is a text: give a sequence of keys"),
        ({"keys": [1]}, r"keys is \[1\]"),
        ({"tags": 5}, r"tags is 5: give str"),
        ({"properties": {"a": 1}}, r"properties is \{'a': 1\}"),
        ({"queue_id": "1"}, r"queue_id is '1'"),
        ({"delay_level": "3"}, r"delay_level is '3': give int"),
        ({"priority": "3"}, r"priority is '3': give int"),
        ({"priority": True}, r"priority is True: give int"),
        ({"flag": "x"}, r"flag is 'x': give int"),
        ({"unique_key": 5}, r"unique_key is 5"),
    ],
)
def test_a_producer_names_an_argument_of_a_wrong_type(given, message) -> None:
    with Producer(NOWHERE) as producer, pytest.raises(TypeError, match=f"^{message}"):
        producer.send_and_wait("Orders", b"body", **given)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda client: client.by_key("Orders", 5), "key is 5: give str"),
        (lambda client: client.by_key("Orders", "k", begin="now"), "begin is 'now': give a datetime with a time zone"),
        (lambda client: client.by_key("Orders", "k", max_messages="5"), "max_messages is '5'"),
        (lambda client: client.by_offset("Orders", "0", 0), "queue_id is '0': give int"),
        (lambda client: client.search("Orders", properties=5), "properties is 5"),
        (lambda client: client.reset_offsets("group", "Orders", time=5), "time is 5: give a datetime with a time zone"),
        (lambda client: client.by_id(5), "offset_msg_id is 5: give str"),
    ],
)
def test_a_query_client_names_an_argument_of_a_wrong_type(ask, message) -> None:
    with QueryClient(NOWHERE) as client, pytest.raises(TypeError, match=f"^{message}"):
        ask(client)
