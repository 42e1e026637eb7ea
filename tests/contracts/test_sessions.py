"""Sessions: every row of peer_assertions.md 5.6 that design.md §6 and §7 let stand."""
# ruff: noqa: F811 (a fixture that is imported is then named by a parameter)

from concurrent.futures import ThreadPoolExecutor

import pytest

from db.database import connection
from db.models import Conversation
from tests.contracts.shared_server import acme, alice, app, bob, charlie, models, overrides  # noqa: F401

KEYS = {"chat_id", "create_date", "create_time", "id", "messages", "name", "reference", "update_date", "update_time",
        "user_id"}
NOT_OWNED = (109, "no authorization")
NO_NAME = (102, "`name` can not be empty")
NO_SESSION = (102, "Session not found!")
MALFORMED = "Malformed JSON syntax: Missing commas/brackets or invalid encoding"


def table(**rows):
    """One parametrize list: the ids are the rows' names in words."""
    return [pytest.param(*row, id=name.replace("_", " ")) for name, row in rows.items()]


@pytest.fixture
def path(chat):
    return f"/chats/{chat['id']}/sessions"


@pytest.fixture
def other_chat(alice):
    return alice.ok("POST", "/chats", {"name": "Alice's other chat"})


@pytest.fixture
def other_session(alice, other_chat):
    return alice.ok("POST", f"/chats/{other_chat['id']}/sessions", {"name": "elsewhere"})


@pytest.fixture
def five(alice, path):
    """Five sessions, made one after the other."""
    return [alice.ok("POST", path, {"name": name}) for name in ("s_0", "S_1", "b", "a", "s_4")]


@pytest.fixture
def rows_of_sessions(alice):
    """Reads all of Alice's rows."""

    def read():
        with connection():
            rows = Conversation.select().where(Conversation.tenant_id == alice.tenant_id)
            return list(rows.order_by(Conversation.id).dicts())

    return read


def names(sessions):
    return [session["name"] for session in sessions]


def at_once(app, person, calls):
    """The bodies of these calls `(method, path, json)`, made by five threads."""

    def call(args):
        method, path, json = args
        headers = {"Authorization": f"Bearer {person.token}"}
        return app.test_client().open(f"/api/v1{path}", method=method, json=json, headers=headers).get_json()

    with ThreadPoolExecutor(5) as pool:
        return list(pool.map(call, calls))


# -- POST ---------------------------------------------------------------------------------------


def test_a_new_session_has_exactly_ragflows_keys(alice, chat, path):
    made = alice.ok("POST", path, {"name": "valid_name"})
    assert set(made) == KEYS
    assert (made["name"], made["chat_id"], made["user_id"]) == ("valid_name", chat["id"], alice.tenant_id)
    assert alice.ok("GET", f"{path}?id={made['id']}") == [made]


def test_a_new_session_begins_with_the_prologue_that_no_id_can_find(session):
    [entry] = session["messages"]
    assert (entry["role"], entry["content"], entry["seq"]) == ("assistant", "Welcome.", 1)
    assert set(entry) == {"role", "content", "uid", "seq", "created_at"}
    assert session["reference"] == []


@pytest.mark.parametrize("prologue", ["", None])
def test_a_chat_without_a_prologue_opens_sessions_without_messages(alice, prologue):
    chat = alice.ok("POST", "/chats", {"name": "silent", "prompt_config": {"prologue": prologue}})
    made = alice.ok("POST", f"/chats/{chat['id']}/sessions", {"name": "x"})
    assert (made["messages"], made["reference"]) == ([], [])


def test_a_later_prologue_changes_no_older_session(alice, chat, path, session):
    alice.ok("PATCH", f"/chats/{chat['id']}", {"prompt_config": {"prologue": "Later."}})
    assert alice.ok("GET", f"{path}?id={session['id']}") == [session]
    assert alice.ok("POST", path)["messages"][0]["content"] == "Later."


NAMES_REFUSED = table(empty=("",), blank=(" ",), tabs=("\t\n",), number=(1,), null=(None,), list=([],), true=(True,))


@pytest.mark.parametrize("name", NAMES_REFUSED)
def test_a_name_that_is_no_name_makes_no_session(alice, path, rows_of_sessions, name):
    assert alice.refused("POST", path, {"name": name}) == NO_NAME
    assert rows_of_sessions() == []


NAMES_KEPT = table(
    as_sent=("valid_name", "valid_name"), padded=("  padded\t", "padded"), long=("a" * 256, "a" * 255),
    characters_not_bytes=("\u4e2d" * 300, "\u4e2d" * 255), other_planes=("\U0001f600" * 256, "\U0001f600" * 255),
)


@pytest.mark.parametrize(("name", "kept"), NAMES_KEPT)
def test_a_name_is_trimmed_and_cut_to_255_characters(alice, path, session, name, kept):
    assert alice.ok("POST", path, {"name": name})["name"] == kept
    assert alice.ok("PATCH", f"{path}/{session['id']}", {"name": name})["name"] == kept


def test_sessions_may_share_a_name(alice, path):
    shared = [alice.ok("POST", path, {"name": name}) for name in ("Same", "Same", "same")]
    assert names(shared) == ["Same", "Same", "same"]
    assert len({session["id"] for session in shared}) == 3


@pytest.mark.parametrize("body", [None, {}, {"messages": [1]}], ids=["no body", "empty", "unknown key"])
def test_a_session_without_a_name_is_a_new_session(alice, path, body):
    made = alice.ok("POST", path, body)
    assert (made["name"], len(made["messages"])) == ("New session", 1)


def test_an_id_in_the_body_is_ignored(alice, path):
    assert alice.ok("POST", path, {"id": "a" * 32, "name": "x"})["id"] != "a" * 32


def test_a_session_may_belong_to_an_end_user(alice, path):
    assert alice.ok("POST", path, {"user_id": "carol@example.org"})["user_id"] == "carol@example.org"
    assert alice.ok("POST", path, {"user_id": "u" * 255})["user_id"] == "u" * 255


@pytest.mark.parametrize("user_id", ["u" * 256, 1, ["u"], {"id": "u"}, True],
                         ids=["long", "number", "list", "object", "true"])
def test_an_end_user_that_is_no_short_text_is_an_argument_error(alice, path, rows_of_sessions, user_id):
    assert alice.refused("POST", path, {"name": "x", "user_id": user_id})[0] == 101
    assert rows_of_sessions() == []


def test_twenty_sessions_made_by_five_threads_are_all_there(app, alice, path):
    answers = at_once(app, alice, [("POST", path, {"name": f"session {n}"}) for n in range(20)])
    assert {answer["code"] for answer in answers} == {0}
    listed = alice.ok("GET", f"{path}?page_size=30")
    assert sorted(names(listed)) == sorted(f"session {n}" for n in range(20))


ROUTES = table(
    create=("POST", ""), list=("GET", ""), delete=("DELETE", ""), get=("GET", "/{session}"),
    patch=("PATCH", "/{session}"), put=("PUT", "/{session}"), delete_message=("DELETE", "/{session}/messages/m"),
    feedback=("PUT", "/{session}/messages/m/feedback"),
)


@pytest.mark.parametrize(("method", "tail"), ROUTES)
def test_an_unknown_foreign_or_deleted_chat_is_109_before_the_body_is_read(
    alice, charlie, chat, session, method, tail, rows_of_sessions
):
    tail, before = tail.format(session=session["id"]), rows_of_sessions()
    assert charlie.refused(method, f"/chats/{chat['id']}/sessions{tail}", {"name": 1}) == NOT_OWNED
    alice.ok("DELETE", f"/chats/{chat['id']}")
    for chat_id in ("0" * 32, chat["id"]):
        malformed = {"data": "not json", "content_type": "application/json"}
        assert alice.refused(method, f"/chats/{chat_id}/sessions{tail}", **malformed) == NOT_OWNED
    assert rows_of_sessions() == before


# -- GET a list ---------------------------------------------------------------------------------


def test_a_list_is_bare_and_newest_first(alice, path, five):
    found = alice.ok("GET", path)
    assert found == five[::-1]


def test_a_list_holds_at_most_thirty(app, alice, path):
    at_once(app, alice, [("POST", path, None)] * 31)
    assert len(alice.ok("GET", path)) == 30
    assert len(alice.ok("GET", f"{path}?page=2")) == 1
    assert len(alice.ok("GET", f"{path}?page_size=100")) == 31


LISTS = table(
    page_absent=("page_size=2", 2), page_zero=("page=0&page_size=2", 2), page_negative=("page=-1&page_size=2", 2),
    page_text=("page=a&page_size=2", 2), page_two=("page=2&page_size=2", 2), page_three=("page=3&page_size=2", 1),
    page_beyond=("page=9&page_size=2", 0), size_absent=("", 5), size_one=("page_size=1", 1),
    size_six=("page_size=6", 5),
    size_zero=("page_size=0", 5), size_negative=("page_size=-1", 5), size_text=("page_size=a", 5),
    size_hundred=("page_size=100", 5), id_empty=("id=", 5), id_known=("id={id}", 1), id_unknown=("id=unknown", 0),
    name_empty=("name=", 5), name_known=("name=S_1", 1), name_unknown=("name=unknown", 0),
    name_in_other_case=("name=B", 0),
    both=("id={id}&name=S_1", 1), id_and_other_name=("id={id}&name=b", 0), bad_id_and_name=("id=bad&name=S_1", 0),
    unknown_parameter=("surprise=1", 5), unknown_user=("user_id=unknown", 0), tenant_as_user=("user_id={tenant}", 5),
)


def test_filters_and_pages_choose_what_is_listed(alice, path, five):
    for query, count in [row.values for row in LISTS]:
        found = alice.ok("GET", f"{path}?" + query.format(id=five[1]["id"], tenant=alice.tenant_id))
        assert (query, len(found)) == (query, count)


@pytest.mark.parametrize("page", [10**9, 10**20])
def test_a_page_number_beyond_all_pages_is_an_empty_list(alice, path, five, page):
    assert alice.ok("GET", f"{path}?page={page}") == []


def test_pages_follow_each_other(alice, path, five):
    pages = [names(alice.ok("GET", f"{path}?page={n}&page_size=2")) for n in ("1", "2", "3")]
    assert pages == [["s_4", "a"], ["b", "S_1"], ["s_0"]]


def test_a_list_is_descending_unless_desc_is_the_text_false(alice, path, five):
    for desc in ("", "&desc=", "&desc=true", "&desc=True", "&desc=unknown", "&desc=0"):
        for field in ("create_time", "update_time"):
            assert names(alice.ok("GET", f"{path}?orderby={field}{desc}")) == names(five)[::-1]
    for desc in ("false", "False"):
        assert names(alice.ok("GET", f"{path}?desc={desc}")) == names(five)
        assert names(alice.ok("GET", f"{path}?orderby=update_time&desc={desc}")) == names(five)
        assert names(alice.ok("GET", f"{path}?orderby=name&desc={desc}")) == ["S_1", "a", "b", "s_0", "s_4"]


def test_a_change_moves_a_session_to_the_front_of_the_last_changed(alice, path, five):
    with connection():
        Conversation.update(update_time=1).where(Conversation.tenant_id == alice.tenant_id).execute()
    alice.ok("PATCH", f"{path}/{five[2]['id']}", {"name": "renamed"})
    assert names(alice.ok("GET", f"{path}?orderby=update_time"))[0] == "renamed"
    assert names(alice.ok("GET", path))[0] == "s_4"


def test_many_sessions_of_one_millisecond_keep_their_order_over_pages(alice, path, five):
    with connection():
        Conversation.update(create_time=1).where(Conversation.tenant_id == alice.tenant_id).execute()
    assert names(alice.ok("GET", path)) == names(five)[::-1]
    assert [names(alice.ok("GET", f"{path}?page_size=1&page={n}"))[0] for n in range(1, 6)] == names(five)[::-1]


LISTS_REFUSED = table(
    unknown_order=("orderby=unknown", "invalid orderby field: unknown"),
    empty_order=("orderby=", "invalid orderby field: "),
    large_page=("page_size=101", "page_size must be less than or equal to 100"),
    huge_page=(f"page_size={10**20}", "page_size must be less than or equal to 100"),
    page_is_checked_before_the_order=("page_size=101&orderby=x", "page_size must be less than or equal to 100"),
)


@pytest.mark.parametrize(("query", "message"), LISTS_REFUSED)
def test_a_list_that_cannot_be_is_an_argument_error(alice, path, query, message):
    assert alice.refused("GET", f"{path}?{query}") == (101, message)


def test_an_end_users_sessions_are_found_apart_from_the_tenants(alice, path, five):
    theirs = alice.ok("POST", path, {"name": "carol's", "user_id": "carol"})
    assert alice.ok("GET", f"{path}?user_id=carol") == [theirs]
    assert names(alice.ok("GET", f"{path}?user_id={alice.tenant_id}")) == names(five)[::-1]


def test_a_list_holds_the_sessions_of_its_chat_only(alice, path, session, other_chat, other_session):
    assert alice.ok("GET", path) == [session]
    assert alice.ok("GET", f"/chats/{other_chat['id']}/sessions") == [other_session]
    assert alice.ok("GET", f"{path}?id={other_session['id']}") == []


def test_a_light_list_leaves_the_documents_out(alice, path, session):
    whole = {key: value for key, value in session.items() if key not in ("messages", "reference")}
    assert alice.ok("GET", f"{path}?light=true") == [whole]


def test_lists_read_at_once_are_all_whole(app, alice, path, five):
    answers = at_once(app, alice, [("GET", path, None)] * 10)
    assert [answer["data"] for answer in answers] == [five[::-1]] * 10


# -- GET one ------------------------------------------------------------------------------------


def test_one_session_comes_with_its_chats_icon(alice, chat, path, session):
    alice.ok("PATCH", f"/chats/{chat['id']}", {"icon": "raw-avatar-value"})
    assert alice.ok("GET", f"{path}/{session['id']}") == session | {"avatar": "raw-avatar-value"}


def test_a_session_that_is_not_there_is_not_found(alice, charlie, path, session):
    chat = charlie.ok("POST", "/chats", {"name": "Charlie's chat"})
    theirs = charlie.ok("POST", f"/chats/{chat['id']}/sessions", {"name": "x"})
    for session_id in ("unknown", "0" * 32, theirs["id"]):
        assert alice.refused("GET", f"{path}/{session_id}") == NO_SESSION


def test_a_session_of_ones_own_other_chat_says_so(alice, path, other_session):
    refusal = alice.refused("GET", f"{path}/{other_session['id']}")
    assert refusal == (102, "Session does not belong to this chat!")


# -- PATCH and PUT ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_a_session_is_renamed_and_keeps_the_rest(alice, path, session, method):
    for name in ("renamed", "renamed", "RENAMED"):
        changed = alice.ok(method, f"{path}/{session['id']}", {"name": name})
        assert changed == session | {"name": name} | {key: changed[key] for key in ("update_time", "update_date")}
        assert alice.ok("GET", f"{path}?id={session['id']}") == [changed]


UPDATES_REFUSED = table(
    empty_name=({"name": ""}, *NO_NAME), blank_name=({"name": "  "}, *NO_NAME), number_as_name=({"name": 1}, *NO_NAME),
    messages=({"messages": [{"role": "user"}]}, 102, "`messages` cannot be changed"),
    no_messages=({"messages": []}, 102, "`messages` cannot be changed"),
    message=({"message": [], "name": "x"}, 102, "`messages` cannot be changed"),
    null_message=({"message": None}, 102, "`messages` cannot be changed"),
    reference=({"reference": [], "name": "x"}, 102, "`reference` cannot be changed"),
)


@pytest.mark.parametrize(("body", "code", "message"), UPDATES_REFUSED)
@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_an_update_of_what_cannot_be_changed_changes_nothing(
    alice, path, session, method, body, code, message, rows_of_sessions
):
    before = rows_of_sessions()
    assert alice.refused(method, f"{path}/{session['id']}", body) == (code, message)
    assert rows_of_sessions() == before


@pytest.mark.parametrize("key", ["surprise", "revision", "next_seq", "tenant_id", "format", "name_source"])
def test_an_unknown_key_is_an_argument_error_and_changes_nothing(alice, path, session, key, rows_of_sessions):
    before = rows_of_sessions()
    assert alice.refused("PATCH", f"{path}/{session['id']}", {"name": "new", key: 1})[0] == 101
    assert rows_of_sessions() == before


def test_keys_that_clients_send_back_are_ignored(alice, path, session, other_chat):
    body = {"id": "x", "dialog_id": other_chat["id"], "chat_id": other_chat["id"], "user_id": "mallory"}
    changed = alice.ok("PATCH", f"{path}/{session['id']}", body)
    assert changed == session | {key: changed[key] for key in ("update_time", "update_date")}


def test_a_name_of_null_is_stored_as_null(alice, path, session):
    assert alice.ok("PATCH", f"{path}/{session['id']}", {"name": None})["name"] is None
    assert alice.ok("GET", f"{path}?id={session['id']}")[0]["name"] is None


@pytest.mark.parametrize("body", [None, {}], ids=["no body", "empty"])
def test_an_empty_update_touches_the_time_only(alice, path, session, body):
    with connection():
        Conversation.update(update_time=1).where(Conversation.id == session["id"]).execute()
    changed = alice.ok("PATCH", f"{path}/{session['id']}", body)
    assert changed["update_time"] >= session["update_time"]
    assert changed == session | {key: changed[key] for key in ("update_time", "update_date")}


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_a_session_elsewhere_is_not_found_before_the_body_is_checked(
    alice, path, method, other_session, rows_of_sessions
):
    before = rows_of_sessions()
    for session_id in ("unknown", other_session["id"]):
        for more in ({"json": {"name": ""}}, {"json": {"messages": []}}, {"data": "not json"}):
            assert alice.refused(method, f"{path}/{session_id}", content_type="application/json", **more) == NO_SESSION
    assert rows_of_sessions() == before


def test_twenty_updates_by_five_threads_all_succeed(app, alice, path, five):
    calls = [("PATCH", f"{path}/{five[n % 5]['id']}", {"name": f"name {n}"}) for n in range(20)]
    assert {answer["code"] for answer in at_once(app, alice, calls)} == {0}
    assert all(name.startswith("name ") for name in names(alice.ok("GET", path)))


# -- DELETE -------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [
    None, {}, {"ids": []}, {"ids": None}, {"ids": None, "delete_all": False}, {"delete_all": "true"}, {"delete_all": 1},
], ids=str)
def test_a_deletion_without_ids_deletes_nothing(alice, path, session, body):
    assert alice("DELETE", path, body).get_json() == {"code": 0, "message": "success", "data": {}}
    assert alice.ok("GET", path) == [session]


def test_sessions_are_deleted_one_by_one_or_together(alice, path, five):
    assert alice.ok("DELETE", path, {"ids": [five[0]["id"]]}) is True
    assert alice.ok("GET", path) == five[:0:-1]
    assert alice.ok("DELETE", path, {"ids": [session["id"] for session in five[1:]]}) is True
    assert alice.ok("GET", path) == []


def test_all_sessions_of_one_chat_are_deleted_with_delete_all(alice, path, five, other_chat, other_session):
    assert alice.ok("DELETE", path, {"delete_all": True}) is True
    assert alice.ok("GET", path) == []
    assert alice.ok("DELETE", path, {"delete_all": True}) == {}
    assert alice.ok("GET", f"/chats/{other_chat['id']}/sessions") == [other_session]


def test_an_unknown_id_deletes_nothing(alice, path, session, other_session):
    for unknown in ("invalid_id", "!@#$%^&*()\n\u3002", other_session["id"]):
        refusal = alice.refused("DELETE", path, {"ids": [unknown]})
        assert refusal == (102, f"The chat doesn't own the session {unknown}")
    assert alice.ok("GET", path) == [session]
    assert alice.ok("GET", f"/chats/{other_session['chat_id']}/sessions") == [other_session]


@pytest.mark.parametrize("place", [0, 2, 5], ids=["first", "in the middle", "last"])
def test_an_unknown_id_among_known_ones_is_reported(alice, path, five, place):
    ids = [session["id"] for session in five]
    ids.insert(place, "invalid_id")
    assert alice("DELETE", path, {"ids": ids}).get_json() == {
        "code": 0, "message": "Partially deleted 5 sessions with 1 errors",
        "data": {"success_count": 5, "errors": ["The chat doesn't own the session invalid_id"]},
    }
    assert alice.ok("GET", path) == []


def test_every_id_twice_is_deleted_once_and_reported(alice, path, five):
    ids = [session["id"] for session in five]
    deleted = alice.ok("DELETE", path, {"ids": ids + ids})
    assert deleted["success_count"] == 5
    assert sorted(deleted["errors"]) == sorted(f"Duplicate session ids: {id}" for id in ids)


def test_one_id_twice_is_reported_once(alice, path, session):
    deleted = alice.ok("DELETE", path, {"ids": [session["id"]] * 2})
    assert deleted == {"success_count": 1, "errors": [f"Duplicate session ids: {session['id']}"]}


def test_missing_ids_are_reported_before_repeated_ones(alice, path, session):
    deleted = alice.ok("DELETE", path, {"ids": [session["id"], session["id"], "gone"]})
    assert deleted["errors"] == [
        "The chat doesn't own the session gone", f"Duplicate session ids: {session['id']}",
    ]


def test_a_repeated_deletion_finds_nothing(alice, path, five):
    ids = [session["id"] for session in five]
    alice.ok("DELETE", path, {"ids": ids})
    code, message = alice.refused("DELETE", path, {"ids": ids})
    assert code == 102
    assert all(f"The chat doesn't own the session {id}" in message for id in ids)


def test_malformed_json_is_101_and_deletes_nothing(alice, path, session):
    assert alice.refused("DELETE", path, data="not json", content_type="application/json") == (101, MALFORMED)
    assert alice.ok("GET", path) == [session]


def test_a_null_among_the_ids_is_102_and_deletes_nothing(alice, path, session):
    for ids in ([None], [session["id"], None]):
        assert alice.refused("DELETE", path, {"ids": ids})[0] == 102
    assert alice.ok("GET", path) == [session]


def test_ids_as_a_text_are_not_taken_apart(alice, path, session):
    for ids in ("ab", session["id"]):
        assert alice.refused("DELETE", path, {"ids": ids})[0] == 101
    assert alice.ok("GET", path) == [session]


def test_twenty_deletions_by_five_threads_all_succeed(app, alice, path):
    ids = [alice.ok("POST", path)["id"] for _ in range(20)]
    answers = at_once(app, alice, [("DELETE", path, {"ids": [id]}) for id in ids])
    assert [(answer["code"], answer["data"]) for answer in answers] == [(0, True)] * 20
    assert alice.ok("GET", path) == []


def test_a_hundred_sessions_go_in_one_call(app, alice, path):
    ids = [answer["data"]["id"] for answer in at_once(app, alice, [("POST", path, None)] * 101)]
    assert alice.ok("DELETE", path, {"ids": ids}) is True
    assert alice.ok("GET", path) == []


def test_a_thousand_ids_go_in_one_call_and_no_more(alice, path, session):
    ids = [f"unknown {n}" for n in range(999)] + [session["id"]]
    assert alice.refused("DELETE", path, {"ids": [*ids, "one more"]})[0] == 101
    deleted = alice.ok("DELETE", path, {"ids": ids})
    assert (deleted["success_count"], len(deleted["errors"])) == (1, 999)
