"""Tokens of a tenant: the secret is seen once, and gone is gone. design.md §6, ragflow.md 0.9."""

import hashlib
import re

import pytest

from db.database import connection
from db.models import ApiToken
from services.api_tokens import ApiTokenService
from services.principal import Principal


@pytest.fixture
def token(alice):
    return alice.ok("POST", "/system/tokens", {"name": "backend"})


def is_let_in(person, secret):
    return person("GET", "/chats", headers={"Authorization": f"Bearer {secret}"}).status_code == 200


def test_a_new_token_is_answered_with_its_secret(alice, nobody, token):
    assert re.fullmatch(r"chatkeep-[A-Za-z0-9_-]{43}", token["token"])
    assert {"id", "tenant_id", "name", "beta", "create_time", "create_date", "update_time", "update_date"} <= set(token)
    assert (token["tenant_id"], token["name"]) == (alice.tenant_id, "backend")
    assert is_let_in(nobody, token["token"])


def test_a_name_is_optional(alice):
    assert alice.ok("POST", "/system/tokens")["name"] is None


@pytest.mark.parametrize("name", ["x" * 256, 1, ["a"], {"a": 1}, True],
                         ids=["long", "number", "list", "object", "bool"])
def test_a_name_that_is_no_short_text_is_refused_and_makes_no_token(alice, name):
    before = alice.ok("GET", "/system/tokens")
    assert alice.refused("POST", "/system/tokens", {"name": name})[0] == 101
    assert [row["id"] for row in alice.ok("GET", "/system/tokens")] == [row["id"] for row in before]


def test_the_list_is_newest_first_and_holds_no_secret(alice, token):
    second = alice.ok("POST", "/system/tokens", {"name": "second"})
    listed = alice("GET", "/system/tokens")
    assert [row["id"] for row in listed.get_json()["data"][:2]] == [second["id"], token["id"]]
    for secret in (token["token"], second["token"], alice.token):
        assert secret not in listed.text
        assert hashlib.sha256(secret.encode()).hexdigest() not in listed.text


def test_a_second_token_of_the_tenant_sees_the_same_list(alice, bob, token):
    ids = [[row["id"] for row in person.ok("GET", "/system/tokens")] for person in (alice, bob)]
    assert ids[0] == ids[1]
    assert token["id"] in ids[0]


def test_the_database_keeps_the_digest_only(token):
    with connection():
        [row] = ApiToken.select().where(ApiToken.id == token["id"]).dicts()
    assert row["token"] == hashlib.sha256(token["token"].encode()).hexdigest()
    assert token["token"] not in str(row)


@pytest.mark.parametrize("key", ["id", "token"])
def test_a_token_is_revoked_by_its_id_or_by_itself(alice, nobody, token, key):
    assert alice.ok("DELETE", f"/system/tokens/{token[key]}") is True
    assert not is_let_in(nobody, token["token"])
    assert token["id"] not in [row["id"] for row in alice.ok("GET", "/system/tokens")]


def test_revoking_twice_or_an_unknown_token_is_a_success(alice, token):
    for _ in range(2):
        assert alice.ok("DELETE", f"/system/tokens/{token['id']}") is True
    assert alice.ok("DELETE", "/system/tokens/unknown") is True
    assert alice.ok("GET", "/chats")["total"] == 0


@pytest.mark.parametrize("key", ["id", "token"])
def test_a_stranger_revokes_nothing_and_learns_nothing(alice, charlie, nobody, token, key):
    unknown = charlie("DELETE", "/system/tokens/unknown").get_json()
    assert charlie("DELETE", f"/system/tokens/{token[key]}").get_json() == unknown
    assert is_let_in(nobody, token["token"])
    assert token["id"] not in charlie("GET", "/system/tokens").text


def test_a_token_may_revoke_itself(alice):
    assert alice.ok("DELETE", f"/system/tokens/{alice.token}") is True
    assert alice("GET", "/chats").status_code == 401


def test_an_expired_token_is_401(nobody, token):
    with connection():
        ApiToken.update(expires_time=1).where(ApiToken.id == token["id"]).execute()
    assert not is_let_in(nobody, token["token"])


def test_the_digest_of_a_token_is_no_token(nobody, token):
    assert not is_let_in(nobody, hashlib.sha256(token["token"].encode()).hexdigest())
    assert not is_let_in(nobody, token["id"])
    assert not is_let_in(nobody, token["prefix"])


def test_a_token_of_a_tenant_can_also_close_an_embedded_page(alice, chat):
    row, secret = ApiTokenService.create(Principal(alice.tenant_id), chat_id=chat["id"], origins=["https://a.example"])
    listed = next(item for item in alice.ok("GET", "/system/tokens") if item["id"] == row.id)
    assert (listed["dialog_id"], listed["source"], listed["origins"]) == (chat["id"], "embed", ["https://a.example"])
    alice.ok("DELETE", f"/system/tokens/{secret}")
    assert row.id not in [item["id"] for item in alice.ok("GET", "/system/tokens")]


def test_last_use_is_noted(alice, nobody, token):
    assert is_let_in(nobody, token["token"])
    listed = next(row for row in alice.ok("GET", "/system/tokens") if row["id"] == token["id"])
    assert listed["last_used_time"] >= token["create_time"]


def test_no_log_line_holds_a_token(alice, token, capfd, caplog):
    alice("DELETE", f"/system/tokens/{token['token']}")
    alice("GET", f"/system/tokens/{token['token']}")
    told = capfd.readouterr()
    assert token["token"] not in told.out + told.err + caplog.text
