"""Who a caller is: keys, JWTs and certificates, and what is not to be believed."""

import base64
import functools
import gc
import hashlib
import hmac
import json
import pathlib
import tempfile
import threading
import time
import weakref
from zoneinfo import ZoneInfo

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from gateway.auth.access import READ, WRITE, Access, Role
from gateway.auth.access_file import LOOK_SECONDS, WatchedFile, hash_key, make_key, parse_access_file
from gateway.auth.jwt_tokens import JwtTokens, parse_jwks
from gateway.auth.sign_in import SignatureDates, SignIn
from services.serving.identity import CERTIFICATE_FACT
from store.errors import InvalidSettingError, UnauthenticatedError
from tests.support.certificates import Authority
from tests.support.waiting import WAIT_SECONDS_MAX

ISSUER, AUDIENCE = "https://issuer.example", "reput"
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ACCESS = """
[[clients]]
name = "jane"
jwt_subjects = ["jane@example.com"]
read = ["a-*"]
[[clients]]
name = "team"
jwt_groups = ["team"]
write = ["b"]
[[clients]]
name = "billing"
certificates = ["spiffe://shop/billing"]
read = ["*"]
"""


def jwk(key, kid):
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return json.loads(algorithm.to_jwk(key.public_key())) | {"kid": kid}


def claims(**changes):
    now = time.time()
    wanted = {"iss": ISSUER, "aud": AUDIENCE, "sub": "jane@example.com", "exp": now + 300} | changes
    return {name: value for name, value in wanted.items() if value is not None}


class Context:
    """As much of a call as signing in looks at."""

    def __init__(self, metadata=(), names=()):
        self._metadata, self._names = metadata, tuple(names)

    def invocation_metadata(self):
        return self._metadata

    def auth_context(self):
        return {CERTIFICATE_FACT: [certificate_with(self._names)]} if self._names else {}


@functools.cache
def certificate_with(names):
    with tempfile.TemporaryDirectory() as directory:
        return Authority(pathlib.Path(directory)).issue("client", *names).certificate.read_bytes()


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def access_path(tmp_path):
    path = tmp_path / "access.toml"
    path.write_text(ACCESS)
    return path


@pytest.fixture
def sign_in(tmp_path, access_path, clock):
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps({"keys": [jwk(RSA_KEY, "rsa"), jwk(EC_KEY, "ec")]}))
    tokens = JwtTokens(keys, ISSUER, AUDIENCE, clock=lambda: clock[0], wall_clock=lambda: time.time() + clock[0])
    return SignIn(
        WatchedFile("access_file", access_path, parse_access_file, lambda: clock[0]),
        tokens,
        asks_certificates=True,
        dates=SignatureDates(300),
    )


def bearer(token):
    return Context([("authorization", f"Bearer {token}")])


@pytest.mark.parametrize(("key", "algorithm", "kid"), [(RSA_KEY, "RS256", "rsa"), (EC_KEY, "ES256", "ec")])
def test_a_sound_jwt_has_the_rights_of_its_subject_and_of_its_groups(sign_in, key, algorithm, kid):
    token = jwt.encode(claims(groups=["team", "unknown", 7]), key, algorithm, headers={"kid": kid})

    for _ in range(2):  # checked, and known from before
        access = sign_in.access_of(bearer(token))
        assert access.allows(READ, "a-1")
        assert access.allows(WRITE, "b")
        assert not access.allows(WRITE, "a-1")
        assert not access.allows(READ, "c")


def unsigned():
    def part(fields):
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none', 'kid': 'rsa'})}.{part(claims())}."


def signed_with_the_public_key():
    """The classic: the public key taken for a shared secret (HS256)."""
    pem = RSA_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "rsa"}).encode()).rstrip(b"=")
    body = base64.urlsafe_b64encode(json.dumps(claims()).encode()).rstrip(b"=")
    mac = base64.urlsafe_b64encode(hmac.new(pem, head + b"." + body, hashlib.sha256).digest()).rstrip(b"=")
    return b".".join((head, body, mac)).decode()


def signed(key=RSA_KEY, algorithm="RS256", kid="rsa", **changes):
    return jwt.encode(claims(**changes), key, algorithm, headers={"kid": kid})


@pytest.mark.parametrize(
    "token",
    [
        unsigned(),
        signed_with_the_public_key(),
        signed(exp=time.time() - 60),
        signed(nbf=time.time() + 600),
        signed(aud="another"),
        signed(iss="https://another.example"),
        signed(exp=None),
        signed(aud=None),
        signed(iss=None),
        signed(sub=None),
        signed(sub="nobody@example.com"),
        signed(kid="another"),
        signed(kid="ec"),
        signed(algorithm="RS384"),
        signed(algorithm="PS256"),
        signed(key=rsa.generate_private_key(65537, 2048)),
        signed()[:-4] + "AAAA",
        "no token",
        "x" * 10_000,
        "",
    ],
)
def test_a_jwt_that_is_not_to_be_believed_is_refused_and_not_repeated(sign_in, token):
    with pytest.raises(UnauthenticatedError) as refused:
        sign_in.access_of(bearer(token))

    assert not token or token not in f"{refused.value.message}{refused.value.metadata}"


def test_a_jwt_that_was_checked_before_expires_too(sign_in, clock):
    token = signed(exp=time.time() + 100)
    assert sign_in.access_of(bearer(token))
    clock[0] = 200.0

    with pytest.raises(UnauthenticatedError, match="expired"):
        sign_in.access_of(bearer(token))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ([jwk(RSA_KEY, "a"), jwk(EC_KEY, "a")], "two keys"),
        ([{"kty": "oct", "k": "c2VjcmV0"}], "only RSA and EC"),
        ([jwk(rsa.generate_private_key(65537, 1024), "a")], "bits"),
        ([jwk(RSA_KEY, "a") | {"alg": "HS256"}], "HS256"),
        ([json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY))], "private"),
        ([], "keys"),
    ],
)
def test_keys_that_would_let_strangers_in_are_refused(keys, why):
    with pytest.raises(ValueError, match=why):
        parse_jwks(json.dumps({"keys": keys}).encode())


def test_a_certificate_is_one_way_to_sign_in_and_nothing_shown_is_none(sign_in):
    assert sign_in.access_of(Context(names=["localhost", "spiffe://shop/billing"])).name == "billing"
    for context in (Context(), Context(names=["spiffe://shop/other"])):
        with pytest.raises(UnauthenticatedError):
            sign_in.access_of(context)


@pytest.mark.parametrize(
    "metadata",
    [
        [("authorization", "Basic dXNlcjpwYXNz")],
        [("authorization", "Bearer ")],
        [("x-api-key", "reput_a"), ("authorization", "Bearer reput_a")],
        [("x-api-key", "reput_a"), ("x-api-key", "reput_a")],
    ],
)
def test_what_is_shown_in_another_way_or_twice_is_refused(sign_in, metadata):
    with pytest.raises(UnauthenticatedError):
        sign_in.access_of(Context(metadata, names=["spiffe://shop/billing"]))


SHOP = """
[[clients]]
name = "shop"
access_keys = {shop-key = "its-secret", new-key = "new-secret"}
write = ["a-*"]
"""
SIGNED_SECONDS = 1_795_977_588  # 2026-11-29T18:39:48Z


def signed_call(key="shop-key", secret="its-secret", date="20261129T183948Z", *others):
    digest = hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest()
    authorization = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return Context([("x-mq-date-time", date), ("authorization", authorization), *others])


@pytest.fixture
def signing(access_path, clock):
    access_path.write_text(ACCESS + SHOP)
    dates = SignatureDates(300, (), lambda: SIGNED_SECONDS + clock[0])
    return SignIn(
        WatchedFile("access_file", access_path, parse_access_file, lambda: clock[0]),
        None,
        asks_certificates=True,
        dates=dates,
    )


def test_a_call_that_an_access_key_signs_has_the_rights_of_its_client(signing):
    assert signing.access_of(signed_call()).name == "shop"
    assert signing.access_of(signed_call("new-key/region/RocketMQ", "new-secret")).allows(WRITE, "a-1")


@pytest.mark.parametrize(
    "call",
    [
        signed_call("other-key"),
        signed_call(secret="new-secret"),
        signed_call("jane"),
        Context([("authorization", "MQv2-HMAC-SHA1 Credential=shop-key, SignedHeaders=x-mq-date-time, Signature=")]),
        Context(
            [
                ("x-mq-date-time", "20261129T183948Z"),
                ("authorization", "MQv2-HMAC-SHA1 Credential=shop-key, Signature="),
            ]
        ),
    ],
)
def test_a_call_with_a_wrong_signature_is_refused_without_its_parts(signing, call):
    with pytest.raises(UnauthenticatedError) as refused:
        signing.access_of(call)
    digest = dict(call.invocation_metadata())["authorization"].partition("Signature=")[2]
    for part in ("shop-key", "its-secret", "new-secret", "20261129T183948Z", digest or "Signature="):
        assert part not in refused.value.message


def test_a_key_that_is_not_known_and_a_wrong_secret_get_the_same_answer(signing):
    texts = set()
    for call in (signed_call("other-key"), signed_call(secret="wrong-secret")):
        with pytest.raises(UnauthenticatedError) as refused:
            signing.access_of(call)
        texts.add(refused.value.message)
    assert len(texts) == 1


def test_a_key_that_is_not_known_takes_a_signature_to_refuse(signing, monkeypatch):
    signed = []
    monkeypatch.setattr("gateway.auth.sign_in.signature_of", lambda data, secret: signed.append(secret) or "")
    for call in (signed_call("other-key"), signed_call()):
        with pytest.raises(UnauthenticatedError):
            signing.access_of(call)
    assert len(signed) == 2


def test_a_date_is_told_to_be_off_only_to_a_client_that_has_the_secret(signing, clock):
    clock[0] = 3600
    with pytest.raises(UnauthenticatedError, match="not known") as refused:
        signing.access_of(signed_call(secret="wrong-secret"))
    assert "client" not in refused.value.metadata
    with pytest.raises(UnauthenticatedError, match="3600 s behind") as refused:
        signing.access_of(signed_call())
    assert refused.value.metadata["client"] == "shop"


@pytest.mark.parametrize("date", ["00010101T000000Z", "99991231T235959Z", "0001-01-01T00:00:00+14:00"])
def test_the_first_and_the_last_year_are_dates_that_are_off(access_path, clock, date):
    access_path.write_text(ACCESS + SHOP)
    dates = SignatureDates(300, (ZoneInfo("Asia/Shanghai"), ZoneInfo("America/New_York")), lambda: SIGNED_SECONDS)
    clients = WatchedFile("access_file", access_path, parse_access_file, lambda: clock[0])
    with pytest.raises(UnauthenticatedError, match=r"is no date|s ahead|s behind"):
        SignIn(clients, None, asks_certificates=False, dates=dates).access_of(signed_call(date=date))


@pytest.mark.parametrize("off_seconds", [-3600, -301, 301, 3600])
def test_a_clock_that_is_off_by_more_than_the_window_is_named_in_the_refusal(signing, clock, off_seconds):
    clock[0] = off_seconds
    with pytest.raises(UnauthenticatedError, match=f"{abs(off_seconds)} s {'ahead' if off_seconds < 0 else 'behind'}"):
        signing.access_of(signed_call())
    clock[0] = 300 if off_seconds > 0 else -300
    assert signing.access_of(signed_call())


def test_a_signature_that_was_read_on_its_way_is_of_no_use_after_the_window(signing, clock):
    call = signed_call()
    assert signing.access_of(call)
    clock[0] = 301
    with pytest.raises(UnauthenticatedError, match="signature_time_zones"):
        signing.access_of(call)
    # A stream that began in the window goes on, as long as its key is in the file.
    assert signing.access_of(call, has_begun=True).name == "shop"


def test_a_stream_ends_with_the_key_that_signed_it(signing, access_path, clock):
    call = signed_call()
    access_path.write_text(ACCESS)
    clock[0] += LOOK_SECONDS
    with pytest.raises(UnauthenticatedError, match="not known"):
        signing.access_of(call, has_begun=True)
    access_path.write_text(ACCESS + SHOP.replace("its-secret", "a-later-secret"))
    clock[0] += LOOK_SECONDS
    with pytest.raises(UnauthenticatedError, match="not known"):
        signing.access_of(call, has_begun=True)


@pytest.mark.parametrize("date", ["yesterday", "x" * 1_000])
def test_a_signed_date_that_is_none_is_refused_and_shown_in_short(signing, date):
    with pytest.raises(UnauthenticatedError, match="is no date") as refused:
        signing.access_of(signed_call(date=date))
    assert len(refused.value.message) < 200


def test_a_call_with_an_empty_access_key_signs_in_by_what_else_it_has(signing):
    unsigned = ("authorization", "MQv2-HMAC-SHA1 Credential=//Rocketmq, SignedHeaders=x-mq-date-time, Signature=00")
    assert signing.access_of(Context([unsigned], names=["spiffe://shop/billing"])).name == "billing"
    with pytest.raises(UnauthenticatedError, match="no credentials"):
        signing.access_of(Context([unsigned]))


@pytest.mark.parametrize("text", ["MQv2-HMAC-SHA1 garbage", "MQv2-HMAC-SHA1 credential=shop-key, Signature=00"])
def test_a_signature_without_a_readable_credential_does_not_sign_in_as_the_certificate(signing, text):
    with pytest.raises(UnauthenticatedError, match="names no Credential"):
        signing.access_of(Context([("authorization", text)], names=["spiffe://shop/billing"]))


def test_a_signature_beside_an_api_key_is_refused_as_two_credentials(signing):
    with pytest.raises(UnauthenticatedError, match="two credentials"):
        signing.access_of(signed_call("shop-key", "its-secret", "20261129T183948Z", ("x-api-key", "reput_a")))


def test_a_key_signs_in_by_its_hash_and_by_nothing_else(sign_in, access_path, clock):
    key = make_key(lambda count: bytes(range(count)))
    access_path.write_text(f'{ACCESS}\n[[clients]]\nname = "k"\napi_key_sha256 = ["{hash_key(key)}"]\nread = ["x"]\n')
    clock[0] += LOOK_SECONDS

    assert sign_in.access_of(bearer(key)).name == "k"
    assert sign_in.access_of(Context([("x-api-key", key)])).allows(READ, "x")
    for wrong in (f"reput_{hash_key(key)}", hash_key(key), key[:-1], key.upper()):
        with pytest.raises(UnauthenticatedError) as refused:
            sign_in.access_of(bearer(wrong))
        assert wrong not in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        '[[clients]]\nname = "a"\nreads = ["x"]',
        '[[clients]]\nname = "a"\nread = ["a b"]',
        '[[clients]]\nname = "a"\n[[clients]]\nname = "a"',
        '[[clients]]\nname = "a"\njwt_groups = ["g"]\n[[clients]]\nname = "b"\njwt_groups = ["g"]',
        '[[clients]]\nname = "a"\napi_key_sha256 = ["reput_the-key-itself"]',
        "clients = 5",
        "[",
    ],
)
def test_an_access_file_that_makes_no_sense_is_refused_without_its_values(tmp_path, text):
    path = tmp_path / "access.toml"
    path.write_text(text)

    with pytest.raises(InvalidSettingError) as refused:
        WatchedFile("access_file", path, parse_access_file, time.monotonic)

    assert "the-key-itself" not in refused.value.message


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders-*", "orders-", True),
        ("orders-*", "orders", False),
        ("*", "anything", True),
        ("%RETRY%*", "%RETRY%group", True),
        ("a*c", "abbc", True),
        ("a*c", "abb", False),
        ("a|b", "a", False),
        ("a.c", "abc", False),
        ("orders", "orders\n", False),
    ],
)
def test_a_pattern_is_a_name_with_stars_and_nothing_more(pattern, topic, fits):
    assert Access("a", {Role.READ: [pattern]}).allows(READ, topic) is fits
    assert not Access("a", {Role.READ: [pattern]}).allows(WRITE, topic)
    assert Access("a", {Role.ADMIN: [pattern]}).allows(WRITE, topic) is fits


def client_text(name):
    return f'[[clients]]\nname = "{name}"\nread = ["*"]\n'


def test_a_file_that_could_not_be_read_once_is_read_again(tmp_path, clock, monkeypatch):
    """A key that was taken out of it must not stay."""
    path = tmp_path / "access.toml"
    path.write_text(ACCESS)
    watched = WatchedFile("access_file", path, parse_access_file, lambda: clock[0])
    before = watched.current()
    path.write_text(client_text("nobody"))

    def fail(_path, *_arguments):
        raise OSError("stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.open", fail)
        clock[0] += LOOK_SECONDS
        assert watched.current() is before
    clock[0] += LOOK_SECONDS

    assert "jane@example.com" in before.by_subject
    assert watched.current().by_subject == {}


def test_a_file_that_makes_no_sense_is_told_once(tmp_path, clock):
    path = tmp_path / "access.toml"
    path.write_text(ACCESS)
    parsed = []

    def parse(data):
        parsed.append(data)
        return parse_access_file(data)

    watched = WatchedFile("access_file", path, parse, lambda: clock[0])
    path.write_text("clients = 5")
    for _ in range(3):
        clock[0] += LOOK_SECONDS
        assert watched.current().by_subject

    assert len(parsed) == 2


def test_an_older_version_is_not_installed_after_a_newer_one(tmp_path, clock):
    path = tmp_path / "access.toml"
    path.write_text("first")
    reading, go_on = threading.Event(), threading.Event()

    def parse(data):
        if data == b"second version":
            reading.set()
            assert go_on.wait(WAIT_SECONDS_MAX)
        return data

    watched = WatchedFile("access_file", path, parse, lambda: clock[0])
    path.write_text("second version")
    clock[0] += LOOK_SECONDS
    slow = threading.Thread(target=watched.current)
    slow.start()
    assert reading.wait(WAIT_SECONDS_MAX)
    path.write_text("the third version")
    clock[0] += LOOK_SECONDS
    watched.current()
    go_on.set()
    slow.join()
    clock[0] += LOOK_SECONDS

    assert watched.current() == b"the third version"


def test_rights_of_an_older_file_are_not_kept(sign_in, access_path, clock):
    """Each version of a large file would stay in memory with the rights of its JWTs."""
    sign_in.access_of(bearer(signed()))
    older = weakref.ref(sign_in.clients.current())
    access_path.write_text(ACCESS + client_text("another"))
    clock[0] += LOOK_SECONDS
    assert sign_in.access_of(bearer(signed())).allows(READ, "a-1")
    gc.collect()

    assert older() is None


@pytest.mark.parametrize(
    ("parse", "good", "garbage"),
    [
        (parse_access_file, ACCESS.encode(), b"clients = " + b"[" * 100_000),
        (parse_access_file, ACCESS.encode(), b"clients = " + b"{a=" * 100_000),
        (parse_jwks, json.dumps({"keys": [jwk(RSA_KEY, "rsa")]}).encode(), b'{"keys":' + b"[" * 100_000),
        (parse_jwks, json.dumps({"keys": [jwk(RSA_KEY, "rsa")]}).encode(), b'{"keys":[{"kty":["RSA"]}]}'),
        (parse_jwks, json.dumps({"keys": [jwk(RSA_KEY, "rsa")]}).encode(), b'{"keys":[{"kty":"RSA","kty":"EC"}]}'),
    ],
)
def test_garbage_of_any_shape_in_a_watched_file_leaves_the_previous_version_in_force(
    tmp_path, clock, parse, good, garbage
):
    """A parser's RecursionError ended the call that looked, once a second."""
    path = tmp_path / "watched"
    path.write_bytes(good)
    watched = WatchedFile("access_file", path, parse, lambda: clock[0])
    before = watched.current()
    path.write_bytes(garbage)
    for _ in range(3):
        clock[0] += LOOK_SECONDS
        assert watched.current() is before

    with pytest.raises(InvalidSettingError, match="access_file"):
        WatchedFile("access_file", path, parse, lambda: clock[0])
    path.write_bytes(good)
    clock[0] += LOOK_SECONDS
    assert watched.current() is not before


@pytest.mark.parametrize("token", ["\ud800.a.b", "\u00e9.a.b", signed(exp=10**400)])
def test_a_token_that_python_cannot_hold_is_refused_and_not_an_error_of_the_gateway(sign_in, token):
    with pytest.raises(UnauthenticatedError):
        sign_in.access_of(bearer(token))
