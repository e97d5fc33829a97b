"""What the door does with any request, whatever its code."""

from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import ONEWAY


def test_a_code_that_is_not_served_is_refused_by_name(client):
    answer = client.call(200_050)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 200050 not supported: POP by remoting"
    assert client.call(999).remark == " request type 999 not supported"


def test_a_missing_field_is_told_as_rocketmq_tells_it(client):
    answer = client.call(RequestCode.GET_MAX_OFFSET, topic="t")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the custom field <queueId> is null")


def test_a_field_that_is_no_number_is_refused(client):
    answer = client.call(RequestCode.GET_MAX_OFFSET, topic="t", queueId="zero")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "queueId" in answer.remark


def test_a_oneway_request_is_not_answered(client):
    client.send(client.request(RequestCode.GET_MAX_OFFSET, command_flag=ONEWAY))
    assert client.call(999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
