"""The envelope, who is let in, and paths that lead nowhere: peer_assertions.md 5.1, design.md §7."""

from email.utils import parsedate_to_datetime

import pytest

from services.api_tokens import ApiTokenService
from services.principal import Principal

UNAUTHORIZED = "<Unauthorized '401: Unauthorized'>"
NOT_ALLOWED = "<MethodNotAllowed '405: Method Not Allowed'>"
STRING_BODY = "AttributeError(\"'str' object has no attribute 'get'\")"

ROUTES_WITH_BODIES = {
    "create chat": ("POST", "/chats"),
    "put chat": ("PUT", "/chats/{chat}"),
    "patch chat": ("PATCH", "/chats/{chat}"),
    "delete chats": ("DELETE", "/chats"),
    "create session": ("POST", "/chats/{chat}/sessions"),
    "patch session": ("PATCH", "/chats/{chat}/sessions/{session}"),
    "delete sessions": ("DELETE", "/chats/{chat}/sessions"),
    "feedback": ("PUT", "/chats/{chat}/sessions/{session}/messages/m/feedback"),
    "create token": ("POST", "/system/tokens"),
    "recommendation": ("POST", "/chat/recommendation"),
}
every_route_with_a_body = pytest.mark.parametrize("route", ROUTES_WITH_BODIES)

GUARDED = [
    ("POST", "/chats"), ("GET", "/chats"), ("DELETE", "/chats"), ("GET", "/chats/none"), ("PUT", "/chats/none"),
    ("PATCH", "/chats/none"), ("DELETE", "/chats/none"), ("POST", "/chats/none/sessions"),
    ("GET", "/chats/none/sessions"), ("DELETE", "/chats/none/sessions"), ("GET", "/chats/none/sessions/none"),
    ("PATCH", "/chats/none/sessions/none"), ("POST", "/chats/none/completions"), ("POST", "/chat/completions"),
    ("GET", "/system/tokens"), ("GET", "/runs/none"),
]


@pytest.fixture
def route_to(chat, session):
    """Method and path of one of ROUTES_WITH_BODIES, on a session that exists."""

    def found(name):
        method, path = ROUTES_WITH_BODIES[name]
        return method, path.format(chat=chat["id"], session=session["id"])

    return found


def test_a_success_has_code_message_and_data(alice):
    answer = alice("GET", "/chats")
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    assert answer.get_json() == {"code": 0, "message": "success", "data": {"chats": [], "total": 0}}


def test_a_refusal_has_data_too(alice):
    answer = alice("POST", "/chats", {"name": ""})
    assert answer.status_code == 200
    assert answer.get_json() == {"code": 102, "message": "`name` is required", "data": None}


def test_a_chat_that_is_not_owned_is_109_with_false(alice):
    answer = alice("GET", "/chats/unknown")
    assert answer.status_code == 200
    assert answer.get_json() == {"code": 109, "message": "no authorization", "data": False}


@pytest.mark.parametrize(("method", "path"), GUARDED, ids=lambda text: text.strip("/").replace("/", " "))
def test_without_a_token_every_route_is_401_before_anything_is_looked_up(nobody, method, path):
    answer = nobody(method, path)
    assert answer.status_code == 401
    assert answer.get_json() == {"code": 401, "message": UNAUTHORIZED, "data": None}


@pytest.mark.parametrize("header", {
    "unknown token": "Bearer chatkeep-unknown", "the scheme alone": "Bearer", "the scheme and a space": "Bearer ",
    "nothing": "", "other scheme": "Basic YWxpY2U6YWxpY2U=", "not ascii": "Bearer chatk\u00e9ep",
}.items(), ids=lambda item: item[0])
def test_a_header_without_a_valid_token_is_401(nobody, header):
    answer = nobody("GET", "/chats", headers={"Authorization": header[1]})
    assert (answer.status_code, answer.get_json()["message"]) == (401, UNAUTHORIZED)


@pytest.mark.parametrize("header", ["{}", "bearer {}", "BEARER {}", "Bearer   {}"],
                         ids=["bare", "lower case", "upper case", "more spaces"])
def test_the_scheme_word_may_be_missing_or_in_any_case(alice, nobody, header):
    answer = nobody("GET", "/chats", headers={"Authorization": header.format(alice.token)})
    assert answer.get_json()["code"] == 0


def test_an_embed_token_is_401_on_a_token_route(alice, nobody, chat):
    principal = Principal(alice.tenant_id)
    _, secret = ApiTokenService.create(principal, chat_id=chat["id"])
    answer = nobody("GET", "/chats", headers={"Authorization": f"Bearer {secret}"})
    assert (answer.status_code, answer.get_json()["message"]) == (401, UNAUTHORIZED)


def test_an_unknown_path_is_404_without_asking_for_a_token(nobody):
    answer = nobody("GET", "/__missing_route__")
    assert answer.status_code == 404
    assert answer.get_json() == {
        "code": 404, "error": "Not Found", "message": "Not Found: /api/v1/__missing_route__", "data": None,
    }


@pytest.mark.parametrize(("method", "path"), [
    ("POST", "/chats//sessions"), ("PATCH", "/chats/{chat}/sessions/"), ("DELETE", "/chats/{chat}/sessions/{session}"),
    ("PATCH", "/chats"), ("POST", "/chats/{chat}"),
], ids=["empty chat id", "empty session id", "delete one session", "patch all chats", "post to a chat"])
def test_a_wrong_method_is_100_with_http_200(alice, chat, session, method, path):
    answer = alice(method, path.format(chat=chat["id"], session=session["id"]), {"name": "x"})
    assert answer.status_code == 200
    assert answer.get_json() == {"code": 100, "message": NOT_ALLOWED, "data": None}


@pytest.mark.parametrize("path", ["/chats/", "//chats", "/chats//{chat}", "/chats/{chat}/", "/chats/{chat}/sessions/"])
def test_slashes_at_the_end_or_doubled_do_not_matter(alice, chat, path):
    answer = alice("GET", path.format(chat=chat["id"]))
    assert (answer.status_code, answer.get_json()["code"]) == (200, 0)


@every_route_with_a_body
def test_a_json_text_as_body_is_ragflows_literal(alice, route_to, route):
    method, path = route_to(route)
    answer = alice(method, path, data='"not json"', content_type="application/json")
    assert answer.status_code == 200
    assert answer.get_json() == {"code": 100, "message": STRING_BODY, "data": None}


def test_a_form_is_read_like_json(alice, chat, session):
    assert alice.ok("POST", "/chats", data={"name": "by form"})["name"] == "by form"
    renamed = alice.ok("PATCH", f"/chats/{chat['id']}/sessions/{session['id']}", data={"name": "form"})
    assert renamed["name"] == "form"


@pytest.mark.parametrize("more", [{}, {"data": "", "content_type": "application/json"}, {"data": " \n"}],
                         ids=["none", "empty", "blank"])
def test_no_body_is_an_empty_object(alice, chat, more):
    assert alice.ok("POST", f"/chats/{chat['id']}/sessions", **more)["name"] == "New session"


@pytest.mark.parametrize("path", ["/chats?surprise=1", "/chats/{chat}/sessions?surprise=1&surprise=2"])
def test_unknown_query_parameters_are_ignored(alice, session, path):
    found = alice.ok("GET", path.format(chat=session["chat_id"]))
    assert len(found["chats"] if isinstance(found, dict) else found) == 1


def test_dates_are_http_dates_of_the_milliseconds(chat, session):
    for row in (chat, session):
        assert row["create_date"].endswith(" GMT")
        for moment in ("create", "update"):
            date = parsedate_to_datetime(row[f"{moment}_date"])
            assert date.timestamp() == row[f"{moment}_time"] // 1000


def test_a_token_route_allows_no_other_origin(alice):
    answer = alice("GET", "/chats", headers={"Origin": "https://elsewhere.example"})
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.settings(server={"cors_origins": ["https://app.example"]})
def test_a_configured_origin_is_allowed_and_another_is_not(alice):
    def allowed(origin):
        return alice("GET", "/chats", headers={"Origin": origin}).headers.get("Access-Control-Allow-Origin")

    assert allowed("https://app.example") == "https://app.example"
    assert allowed("https://elsewhere.example") is None


@pytest.mark.settings(server={"base_path": "/chat"})
def test_behind_a_base_path_every_route_speaks_its_own_protocol(alice):
    assert alice.at("GET", "/chat/v1/models").get_json() == {"object": "list", "data": []}
    assert alice.at("GET", "/chat/v1/none").get_json().keys() == {"error"}
    assert alice.at("GET", "/chat/api/v1/none").get_json()["code"] == 404
    answer = alice.at("DELETE", "/chat/api/v1/chats/none/sessions/none")
    assert (answer.status_code, answer.get_json()["code"]) == (200, 100)
    assert alice.at("GET", "/v1/models").get_json()["code"] == 404


def test_a_bug_of_ours_answers_a_sentence_and_no_details(app, alice):
    def broken():
        raise ValueError("inner detail 401 not_found")

    app.view_functions["chats.list_chats"] = broken
    answer = alice("GET", "/chats")
    body = answer.get_json()
    assert (answer.status_code, body["code"], body["data"]) == (200, 100, None)
    assert "inner detail" not in body["message"]


def test_a_bug_of_ours_is_a_server_error_for_openais_clients(app, alice):
    def broken(**_):
        raise ValueError("inner detail")

    app.view_functions |= {"openai.list_models": broken, "openai_chats.list_model_of_chat": broken}
    for path in ("/v1/models", "/api/v1/openai/none/models"):
        answer = alice.at("GET", path)
        assert (answer.status_code, answer.get_json()["error"]["type"]) == (500, "server_error")
        assert "inner detail" not in answer.get_data(as_text=True)


def test_every_answer_names_its_request(alice):
    first, second = (alice("GET", "/chats").headers["X-Request-Id"] for _ in range(2))
    assert first and second and first != second
